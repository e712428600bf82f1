"""Sentences with labelled spans of words (Tenney et al. 2019)."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from etils import epath

Span = tuple[int, int]  # its first word, the word after its last


class Target(NamedTuple):
  """A question about a sentence, and its answer.

  Attributes:
    spans: one span of words, or two.
    labels: the classes of the span, or of the relation of the two; empty if
      none applies.
  """

  spans: tuple[Span, ...]
  labels: tuple[str, ...]


class Sentence(NamedTuple):
  """A sentence and its targets; it may have none."""

  words: tuple[str, ...]
  targets: tuple[Target, ...]


# A reader yields each sentence after its place in the file, for messages.
Found = Iterable[tuple[str, Sentence]]


@dataclasses.dataclass(frozen=True)
class Probe:
  """The declaration of a probing task.

  Attributes:
    name: as in --tasks.
    num_spans: 1 or 2, of each target.
    rows: (file, split) -> sentences, each after its place.
    files: split -> possible names of its file in the set's folder; 'train' and
      'dev', and mostly 'test'.
    folders: possible names of the set's folder inside a folder of many.
    corpus: name of the text; the vectors of its sentences are shared.
    is_whole: whether `rows` yields all sentences of its files.
    is_scored: label -> whether the F1 counts its class.
    has_control: whether a control task is defined, see `control`.
    url: of the set.
  """

  name: str
  title: str
  num_spans: int
  rows: Callable[[epath.Path, str], Found]
  files: Mapping[str, tuple[str, ...]]
  folders: tuple[str, ...] = ()
  corpus: str = ''
  is_whole: bool = True
  is_scored: Callable[[str], bool] = lambda label: True
  has_control: bool = False
  url: str = ''

  def read(self, file: epath.Path, split: str) -> list[Sentence]:
    """Returns the checked sentences of a file.

    Raises ValueError at the place of a wrong target, and if no sentence has a
    target; in the training split, if none has a label.
    """
    sentences = []
    count = 0
    for where, sentence in self.rows(file, split):
      check_targets(where, sentence, self.num_spans)
      sentences.append(sentence)
      count += len(sentence.targets)
    if not count:
      raise ValueError(
        f'{file}: found {len(sentences):,} sentences and no target, expected'
        f' targets of the task {self.name}, split {split!r}'
      )
    if split == 'train' and not labels_of(sentences):
      raise ValueError(
        f'{file}: found {count:,} targets and no label, expected labels in the'
        ' training split'
      )
    return sentences


def check_targets(where: str, sentence: Sentence, num_spans: int) -> None:
  """Raises ValueError at a sentence without words, or a wrong target."""
  count = len(sentence.words)
  if not count:
    raise ValueError(f'{where}: found an empty sentence, expected words')
  for word in sentence.words:
    if not word.strip():
      raise ValueError(f'{where}: found the word {word!r}, expected a word')
  for spans, labels in sentence.targets:
    if len(spans) != num_spans:
      raise ValueError(
        f'{where}: found a target of {len(spans)} spans, expected {num_spans}'
        ' as in the other targets of the task'
      )
    for first, end in spans:
      if not 0 <= first < end <= count:
        raise ValueError(
          f'{where}: found the span [{first}, {end}) in a sentence of'
          f' {count} words, expected 0 <= first < end <= {count}: the words are'
          ' numbered from 0, and the end is the word after the last. Numbers of'
          ' characters or word pieces are of another tokenisation. Words:'
          f' {" ".join(sentence.words)[:80]!r}'
        )
    if not all(labels):
      raise ValueError(
        f'{where}: found the labels {list(labels)}, expected no empty one'
      )


def labels_of(sentences: Iterable[Sentence]) -> tuple[str, ...]:
  """Returns all labels of sentences, sorted."""
  return tuple(
    sorted(
      {
        label
        for sentence in sentences
        for target in sentence.targets
        for label in target.labels
      }
    )
  )


def spans_of_tags(tags: Sequence[str]) -> list[tuple[str, Span]]:
  """Returns (type, span) of each span that tags of IOB2 mark, in order."""
  spans = []
  for place, tag in enumerate(tags):
    if tag.startswith('B-'):
      spans.append((tag[2:], (place, place + 1)))
    elif tag.startswith('I-'):
      name, (first, _) = spans[-1]
      spans[-1] = name, (first, place + 1)
  return spans
