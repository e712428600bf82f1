"""What a labelled set consists of, whatever its files look like."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath

KINDS = ('classification', 'regression', 'choice', 'tagging', 'span')


@dataclasses.dataclass(frozen=True)
class TextExample:
  """One text or two, with a class or a score.

  Attributes:
    id: as it stands in the file, or the number of the example in it.
    texts: one, or two.
    label: one of the task's labels, or a score; None where there is none.
    group: what it is scored with, where a task scores parts by themselves.
  """

  id: str
  texts: tuple[str, ...]
  label: str | float | None
  group: str = ''


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
  """Several ways to go on, or answers, of which one is right.

  Attributes:
    id: see `TextExample`.
    context: what is read first: a passage, a story, a caption.
    question: what follows the context before every choice; may be empty.
    choices: K of them.
    label: number of the right one; None where it is not told.
    group: see `TextExample`.
  """

  id: str
  context: str
  question: str
  choices: tuple[str, ...]
  label: int | None
  group: str = ''


@dataclasses.dataclass(frozen=True)
class TaggedExample:
  """A sentence whose words have tags.

  Attributes:
    id: see `TextExample`.
    words: at least one.
    tags: one a word, IOB2 where they are of entities; None: not told.
    document: number of its document in the file; the sentences of one stand
      together.
    columns: what else the file says of each word (POS, chunk), to be written
      back; may be empty.
  """

  id: str
  words: tuple[str, ...]
  tags: tuple[str, ...] | None
  document: int = 0
  columns: tuple[tuple[str, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class SpanExample:
  """A question whose answer is a stretch of a text, or none.

  Attributes:
    id: as in the file.
    question: without white space round it.
    context: the text exactly as in the file.
    answers: (text, first character in the context) of each that counts as
      right; of a question without answer there is none.
    is_labelled: whether the file tells.
  """

  id: str
  question: str
  context: str
  answers: tuple[tuple[str, int], ...]
  is_labelled: bool = True


Example = TextExample | ChoiceExample | TaggedExample | SpanExample


@dataclasses.dataclass(frozen=True)
class Prediction:
  """What a model says of an example.

  Attributes:
    id: of the example.
    answer: its label; score; number of the choice; tags, one a word; or the
      text of the answer, empty for none.
    probabilities: of the labels or choices, in their order; of tags, one of
      each word's chosen tag; of spans, that of the answer alone.
    n_best: of spans: (text, probability), the best first.
    no_answer: of spans: score of no answer less that of the best answer.
  """

  id: str
  answer: str | float | int | tuple[str, ...]
  probabilities: tuple[float, ...] = ()
  n_best: tuple[tuple[str, float], ...] = ()
  no_answer: float | None = None


@dataclasses.dataclass(frozen=True)
class Task:
  """The declaration of a labelled set.

  Attributes:
    name: as in `task=NAME`.
    title: for people.
    kind: one of `KINDS`.
    files: split -> the names that its file may have in the task's folder, the
      first that is there is read. 'train' and 'dev' always; 'test' and others
      where they are published.
    read: (file, split) -> examples; refuses what is wrong in the file; a
      `checks.Reader`. RACE's file is a folder.
    folders: names that the task's folder may have inside of a folder of many;
      empty for files of one's own.
    labels: classes in the order of their numbers; tags; empty for scores,
      choices and spans.
    num_texts: of a `TextExample`.
    symmetric: neither text comes first: GPT reads both orders.
    num_choices: of a `ChoiceExample`.
    score_range: of a score, lowest and highest.
    metrics: what it is scored by, see `data.scoring.scores`; the first decides
      which model is best.
    submission: its official output, see `data.scoring.submissions`; may be
      empty.
    sizes: split -> official number of examples.
    tfds: name of the data set in TFDS, if it is there; of several that are
      read one after the other with commas between.
    from_tfds: (record, split, number) -> example, or a list of them.
    tfds_splits: split -> that of TFDS; NAME:SPLIT is of another data set.
    url: where the files come from.
  """

  name: str
  title: str
  kind: str
  files: Mapping[str, tuple[str, ...]]
  read: Callable[[epath.Path, str], list[Any]]
  folders: tuple[str, ...] = ()
  labels: tuple[str, ...] = ()
  num_texts: int = 1
  symmetric: bool = False
  num_choices: int = 0
  score_range: tuple[float, float] = (0.0, 1.0)
  metrics: tuple[str, ...] = ('accuracy',)
  submission: str = ''
  sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
  tfds: str = ''
  from_tfds: Callable[[Mapping[str, Any], str, int], Any] | None = None
  tfds_splits: Mapping[str, str] = dataclasses.field(default_factory=dict)
  url: str = ''


def evenly(examples: Sequence[Any], limit: int | None) -> list[Any]:
  """Returns at most so many examples, evenly spaced, always the same ones."""
  count = len(examples)
  if limit is None or limit >= count:
    return list(examples)
  return [examples[i * count // limit] for i in range(limit)]


METRICS = {
  'classification': ('accuracy', 'f1', 'macro_f1', 'matthews'),
  'regression': ('pearson', 'spearman'),
  'choice': ('accuracy',),
  'tagging': ('f1', 'precision', 'recall', 'accuracy'),
  'span': ('em', 'f1'),
}
