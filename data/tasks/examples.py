"""Examples of labelled sets, predictions, and the declaration of a task."""

import abc
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

_SHOWN_LABELS = 50  # in a message
Mention = tuple[int, int]  # numbers of its first and last word
# The recipe of a task whose files set words and marks apart by spaces.
SPACES = {'words': {'task.split': 'spaces'}}


class Example(abc.ABC):
  """An example of a labelled set.

  `id` is as in the file, or the example's number in it. A `group`, which may be
  empty, is also scored alone. `has_no_answer` marks unanswerable questions.
  """

  id: str
  group = ''
  has_no_answer = False

  @property
  def is_labelled(self) -> bool:
    """Returns whether the label is known."""
    return self.label is not None

  @abc.abstractmethod
  def problems(self, task: 'Task') -> Iterator[str]:
    """Yields the reasons why this cannot be an example of the task."""


@dataclasses.dataclass(frozen=True)
class TextExample(Example):
  """One text or two; the label is a class or a score, None if unknown."""

  id: str
  texts: tuple[str, ...]
  label: str | float | None
  group: str = ''

  def problems(self, task: 'Task') -> Iterator[str]:  # noqa: D102
    if len(self.texts) != task.num_texts:
      yield f'found {len(self.texts)} texts, expected {task.num_texts}'
    yield from _empty_texts(self.texts, 'text', task)
    if self.label is None:
      return
    if task.labels:
      yield from _unknown_label('label', self.label, task)
      return
    low, high = task.score_range
    if not low <= float(self.label) <= high:  # NaN is not either
      yield (
        f'found the score {self.label}, expected {low:g} to {high:g}'
        f'{task.label_hint}'
      )


@dataclasses.dataclass(frozen=True)
class ChoiceExample(Example):
  """A context with K continuations or answers, one of them right.

  The question, which may be empty, stands between the context and every choice.
  The label is the number of the right choice, None if unknown.
  """

  id: str
  context: str
  question: str
  choices: tuple[str, ...]
  label: int | None
  group: str = ''

  def problems(self, task: 'Task') -> Iterator[str]:  # noqa: D102
    count = len(self.choices)
    if (task.num_choices and count != task.num_choices) or count < 2:
      yield f'found {count} choices, expected {task.num_choices or "2 or more"}'
    yield from _empty_texts(self.choices, 'choice', task)
    if not (self.context + self.question).strip():
      yield 'found neither context nor question, expected words'
    if self.label is not None and not 0 <= self.label < count:
      yield f'found {self.label} as the right choice, expected 0 to {count - 1}'


@dataclasses.dataclass(frozen=True)
class TaggedExample(Example):
  """A sentence of tagged words.

  Attributes:
    words: at least one.
    tags: one a word, in IOB2 if they mark entities; None if unknown.
    document: number of its document in the file; its sentences are adjacent.
    columns: other columns of each word (POS, chunk); may be empty.
    predicate: of a `RoleExample` only.
  """

  id: str
  words: tuple[str, ...]
  tags: tuple[str, ...] | None
  document: int = 0
  columns: tuple[tuple[str, ...], ...] = ()
  predicate = None

  @property
  def is_labelled(self) -> bool:  # noqa: D102
    return self.tags is not None

  def problems(self, task: 'Task') -> Iterator[str]:  # noqa: D102
    if not self.words:
      yield 'found an empty sentence, expected words'
    for word in self.words:
      if not word.strip():
        yield f'found the word {word!r}, expected a word'
    if self.tags is None:
      return
    if len(self.tags) != len(self.words):
      yield (
        f'found {len(self.tags)} tags, expected one for each of '
        f'{len(self.words)} words'
      )
    for tag in self.tags:
      yield from _unknown_label('tag', tag, task)


@dataclasses.dataclass(frozen=True)
class RoleExample(TaggedExample):
  """A predicate of a sentence, and the roles of the words to it.

  The tags mark the arguments, and the predicate itself as V. The V may stand at
  another word than the predicate, or reach over several.

  Attributes:
    predicate: place of the predicate's word in the sentence.
    roleset: its sense in PropBank, such as come.03; may be empty.
    lemma: as in the file, which a submission repeats; may be empty.
    sentence: number of its sentence in the file.
    skipped: numbers of words of the sentences without any predicate that stand
      in the file just before this one, and after it at the end of the file.
  """

  predicate: int = dataclasses.field(kw_only=True)
  roleset: str = ''
  lemma: str = ''
  sentence: int = 0
  skipped: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
  group: str = ''

  def problems(self, task: 'Task') -> Iterator[str]:  # noqa: D102
    yield from super().problems(task)
    if not 0 <= self.predicate < len(self.words):
      yield (
        f'found the predicate at {self.predicate}, expected the place of one of'
        f' {len(self.words)} words, from 0'
      )
    if self.tags is not None and 'B-V' not in self.tags:
      yield f'found no B-V in {" ".join(self.tags)!r}, expected the predicate'


@dataclasses.dataclass(frozen=True)
class SpanExample(Example):
  """A question with its answer, a span of a text, or with none.

  Attributes:
    question: without white space at its ends.
    context: the text exactly as in the file.
    answers: (text, first character in the context) of each right answer; empty
      if the question has none.
  """

  id: str
  question: str
  context: str
  answers: tuple[tuple[str, int], ...]
  is_labelled: bool = True

  @property
  def has_no_answer(self) -> bool:  # noqa: D102
    return self.is_labelled and not self.answers

  def problems(self, task: 'Task') -> Iterator[str]:  # noqa: D102
    del task
    if not self.question:
      yield 'found an empty question, expected words'
    if not self.context.strip():
      yield 'found an empty context, expected words'
    for text, start in self.answers:
      if not text or start < 0:
        yield (
          f'found the answer {text!r} at {start}, expected a part of the text'
        )
      there = self.context[max(start, 0) : start + len(text)]
      if there != text:
        yield (
          f'found {there!r} in the context at character {start}, expected the '
          f'answer {text!r}'
        )


@dataclasses.dataclass(frozen=True)
class DocumentExample(Example):
  """A document whose mentions of one entity form a cluster.

  Attributes:
    sentences: the words of each.
    speakers: of each word, shaped as `sentences`; '' is unknown.
    genre: one of the task's labels, or any other name.
    clusters: of two mentions or more; a mention is the numbers of its first and
      last word in the document. None if unknown.
    singles: mentions that corpora other than OntoNotes annotate, and that no
      other one refers to.
  """

  id: str
  sentences: tuple[tuple[str, ...], ...]
  speakers: tuple[tuple[str, ...], ...]
  genre: str
  clusters: tuple[tuple[Mention, ...], ...] | None
  singles: tuple[Mention, ...] = ()

  @property
  def words(self) -> tuple[str, ...]:
    """The words of all sentences."""
    return tuple(itertools.chain(*self.sentences))

  @property
  def is_labelled(self) -> bool:  # noqa: D102
    return self.clusters is not None

  def problems(self, task: 'Task') -> Iterator[str]:  # noqa: D102
    del task
    lengths = [len(words) for words in self.sentences]
    if not all(lengths) or not lengths:
      yield f'found sentences of {lengths} words, expected words in each'
    for word in self.words:
      if not word.strip():
        yield f'found the word {word!r}, expected a word'
    if [len(names) for names in self.speakers] != lengths:
      yield 'found speakers of other numbers than words, expected one a word'
    yield from cluster_problems(self.clusters or (), lengths)


def cluster_problems(
  clusters: Sequence[Sequence[Mention]], lengths: Sequence[int]
) -> Iterator[str]:
  """Yields what is wrong with clusters in sentences of these lengths."""
  sentence_of = [i for i, length in enumerate(lengths) for _ in range(length)]
  seen: set[Mention] = set()
  for cluster in clusters:
    if len(cluster) < 2:
      yield f'found the cluster {cluster}, expected two mentions or more'
    for mention in cluster:
      first, last = mention
      if not 0 <= first <= last < len(sentence_of):
        yield (
          f'found the mention {mention}, expected its first and last word of '
          f'{len(sentence_of)}, from 0'
        )
      elif sentence_of[first] != sentence_of[last]:
        yield f'found the mention {mention}, expected words of one sentence'
      if mention in seen:
        yield f'found the mention {mention} twice, expected it in one cluster'
      seen.add(mention)


def _empty_texts(
  texts: tuple[str, ...], name: str, task: 'Task'
) -> Iterator[str]:
  empty = [i for i, text in enumerate(texts) if not text.strip()]
  if empty and not (task.allow_empty and len(empty) < len(texts)):
    which = f'{name} {empty[0] + 1} of {len(texts)}' if texts[1:] else name
    yield f'found an empty {which}, expected words'


def _unknown_label(name: str, label: Any, task: 'Task') -> Iterator[str]:
  if label not in task.known_labels:
    shown = [repr(each) for each in task.labels[:_SHOWN_LABELS]]
    if len(task.labels) > _SHOWN_LABELS:
      shown.append(f'... ({len(task.labels):,} in all)')
    yield (
      f'found the {name} {label!r}, expected one of [{", ".join(shown)}]'
      f'{task.label_hint}'
    )


@dataclasses.dataclass(frozen=True)
class Prediction:
  """A model's answer to an example.

  Attributes:
    answer: label; score; number of the choice; tags, one a word; the text of
      the answer, empty if the model finds none; or the clusters of a document.
    probabilities: of the labels or choices, in their order; of each word's
      chosen tag; of the answer of a question.
    n_best: of a question, (text, probability), the best first.
    no_answer: of a question, the score of no answer minus the best answer's.
  """

  id: str
  answer: str | float | int | tuple[Any, ...]
  probabilities: tuple[float, ...] = ()
  n_best: tuple[tuple[str, float], ...] = ()
  no_answer: float | None = None


# A reader yields each example after its place in the file, for messages.
Found = Iterable[tuple[str, Example]]


def needs_labels(split: str) -> bool:
  """Returns whether all examples of a split must have labels."""
  return split.startswith(('train', 'dev'))


class Tfds(NamedTuple):
  """Where TFDS (TensorFlow Datasets) has a labelled set.

  Attributes:
    names: data sets, with commas between them.
    read: (record, split, number) -> example, or a list of them.
    splits: split -> split of TFDS; NAME:SPLIT is of another data set.
  """

  names: str
  read: Callable[[Mapping[str, Any], str, int], Any]
  splits: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Task:
  """The declaration of a labelled set.

  A `TextTask` and a `ChoiceTask` say more about their examples.

  Attributes:
    name: as in `task=NAME`.
    kind: a key of `data.scoring.kinds.KINDS`.
    files: split -> possible names of its file in the task's folder; the first
      that exists is read. Every task has 'train' and 'dev'.
    rows: (file, split) -> examples, each after its place. RACE's file is a
      folder.
    folders: possible names of the task's folder inside a folder of many; empty
      for a user's own files.
    labels: classes, tags, or genres of documents, in the order of their
      numbers; else empty.
    label_hint: ends the message about a wrong label; may be empty.
    metrics: see `data.scoring.scores`; the first decides which model is best.
    submission: official format, see `data.scoring.submissions`; may be empty.
    sizes: split -> official number of examples.
    tfds: where TFDS has it; None: nowhere.
    language: of the texts to train on; empty: `languages` are too.
    languages: language -> the declaration of its dev and test sets; of
      `language` too, where the files hold other languages beside it.
    recipe: recipe of `configs.transfer` -> {'section.key': value} in which the
      paper of this set differs from the recipe. 'bert' is the beginning of all
      recipes for language models, 'words' that of ELMo's task models.
  """

  name: str
  title: str
  kind: str
  files: Mapping[str, tuple[str, ...]]
  rows: Callable[[epath.Path, str], Found]
  folders: tuple[str, ...] = ()
  labels: tuple[str, ...] = ()
  label_hint: str = ''
  metrics: tuple[str, ...] = ('accuracy',)
  submission: str = ''
  sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
  tfds: Tfds | None = None
  url: str = ''
  language: str = ''
  languages: Mapping[str, 'Task'] = dataclasses.field(default_factory=dict)
  recipe: Mapping[str, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict
  )

  # Fields of the classes below.
  num_texts = 1
  symmetric = False
  score_range = (0.0, 1.0)
  num_choices = 0
  allow_empty = False

  @functools.cached_property
  def known_labels(self) -> frozenset[str]:
    """The labels, to look one up among many."""
    return frozenset(self.labels)

  def read(self, file: epath.Path, split: str) -> list[Any]:
    """Returns the checked examples of a file; see `gather`."""
    return self.gather(self.rows(file, split), split, str(file))

  def gather(self, found: Found, split: str, source: str) -> list[Any]:
    """Returns a split's examples; raises ValueError at a wrong one's place."""
    places: dict[str, str] = {}
    gathered = []
    for where, example in found:
      if example.id in places:
        raise ValueError(
          f'{where}: found the id {example.id!r} of {places[example.id]} again,'
          ' expected a different id for each example'
        )
      places[example.id] = where
      for problem in example.problems(self):
        raise ValueError(f'{where}: {problem}')
      if needs_labels(split) and not example.is_labelled:
        raise ValueError(
          f'{where}: found no label, expected one: the split {split!r} is for '
          'training or scoring'
        )
      gathered.append(example)
    if not gathered:
      raise ValueError(
        f'{source}: found no example, expected those of the split {split!r}'
      )
    return gathered


@dataclasses.dataclass(frozen=True)
class TextTask(Task):
  """A task of `TextExample`s.

  Attributes:
    num_texts: texts of an example.
    symmetric: the order of two texts has no meaning: GPT reads both orders.
    allow_empty: one of two texts may be empty (some releases).
    score_range: lowest and highest score, where labels are scores.
  """

  num_texts: int = 1
  symmetric: bool = False
  allow_empty: bool = False
  score_range: tuple[float, float] = (0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class ChoiceTask(Task):
  """A task of `ChoiceExample`s.

  Attributes:
    num_choices: choices of an example; 0: of each example its own number.
    allow_empty: some choices may be empty (some releases).
  """

  num_choices: int = 0
  allow_empty: bool = False


def evenly(examples: Sequence[Any], limit: int | None) -> list[Any]:
  """Returns at most `limit` examples, evenly spaced and always the same."""
  count = len(examples)
  if limit is None or limit >= count:
    return list(examples)
  return [examples[i * count // limit] for i in range(limit)]
