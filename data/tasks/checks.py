"""What no labelled set may hold is refused by the place where it stands."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from etils import epath

from data.tasks import examples

# What a reader yields: where an example stands, for messages, and the example.
Found = Iterable[tuple[str, examples.Example]]


def is_labelled(split: str) -> bool:
  """Whether a split must have labels: those for training and choosing."""
  return split.startswith(('train', 'dev'))


@dataclasses.dataclass(frozen=True)
class Limits:
  """What the examples of a task may be; see `examples.Task`.

  Attributes:
    kind: see there, as are all but the last.
    labels: see there.
    num_texts: see there.
    num_choices: see there; 0 for any number.
    score_range: see there.
    allow_empty: one of several texts or choices may be empty.
    hint: how other labels and scores are allowed; may be empty.
  """

  kind: str
  labels: tuple[str, ...] = ()
  num_texts: int = 1
  num_choices: int = 0
  score_range: tuple[float, float] = (0.0, 1.0)
  allow_empty: bool = False
  hint: str = ''

  def refusal(self, found: str, expected: str) -> str:
    """Returns what is wrong with a label."""
    hint = f' ({self.hint})' if self.hint else ''
    return f'found {found}, expected {expected}{hint}'


@dataclasses.dataclass(frozen=True)
class Reader:
  """Reads files of a task: what `examples.Task.read` is.

  Attributes:
    rows: (file, split) -> what stands in the file.
    limits: of what may stand there.
  """

  rows: Callable[[epath.Path, str], Found]
  limits: Limits

  def __call__(self, file: epath.Path, split: str) -> list[Any]:
    """Returns the examples of a file; see `gather` for what it refuses."""
    return gather(self.rows(file, split), split, self.limits, str(file))


def declare(
  rows: Callable[[epath.Path, str], Found],
  *,
  allow_empty: bool = False,
  hint: str = '',
  **declaration: Any,
) -> examples.Task:
  """Returns a task whose examples are checked while they are read.

  Args:
    rows: see `Reader`.
    allow_empty: see `Limits`; some releases hold such examples.
    hint: see `Limits`.
    **declaration: fields of `examples.Task`, all but `read`.
  """
  names = {field.name for field in dataclasses.fields(Limits)}
  limits = Limits(
    **{name: declaration[name] for name in names & declaration.keys()},
    allow_empty=allow_empty,
    hint=hint,
  )
  return examples.Task(read=Reader(rows, limits), **declaration)


def gather(found: Found, split: str, limits: Limits, source: str) -> list[Any]:
  """Returns the examples of a split, all of them fit to be used.

  Args:
    found: see `Found`.
    split: whose they are; those of `is_labelled` must have labels.
    limits: of what they may be.
    source: of all of them, for messages.

  Raises:
    ValueError: at duplicate ids, empty texts, unknown and missing labels, by
      their place; and if there is no example.
  """
  problems = {
    'classification': _text_problems,
    'regression': _text_problems,
    'choice': _choice_problems,
    'tagging': _tag_problems,
    'span': _span_problems,
  }[limits.kind]
  places: dict[str, str] = {}
  gathered = []
  for where, example in found:
    if example.id in places:
      raise ValueError(
        f'{where}: found the id {example.id!r} of {places[example.id]} again, '
        'expected ids that tell examples apart'
      )
    places[example.id] = where
    for problem in problems(example, limits):
      raise ValueError(f'{where}: {problem}')
    if is_labelled(split) and not _has_label(example):
      raise ValueError(
        f'{where}: found no label, expected one: the split {split!r} is '
        'learnt from or scored'
      )
    gathered.append(example)
  if not gathered:
    raise ValueError(
      f'{source}: found no example, expected those of the split {split!r}'
    )
  return gathered


def _has_label(example: examples.Example) -> bool:
  if isinstance(example, examples.SpanExample):
    return example.is_labelled
  if isinstance(example, examples.TaggedExample):
    return example.tags is not None
  return example.label is not None


def _text_problems(
  example: examples.TextExample, limits: Limits
) -> Iterator[str]:
  if len(example.texts) != limits.num_texts:
    yield f'found {len(example.texts)} texts, expected {limits.num_texts}'
  yield from _empty(example.texts, 'text', limits)
  label = example.label
  if label is None:
    return
  if limits.kind == 'classification':
    if label not in limits.labels:
      yield limits.refusal(
        f'the label {label!r}', f'one of {list(limits.labels)}'
      )
    return
  low, high = limits.score_range
  if not low <= float(label) <= high:  # nor is NaN
    yield limits.refusal(f'the score {label}', f'{low:g} to {high:g}')


def _empty(texts: tuple[str, ...], what: str, limits: Limits) -> Iterator[str]:
  empty = [i for i, text in enumerate(texts) if not text.strip()]
  if empty and not (limits.allow_empty and len(empty) < len(texts)):
    which = f'{what} {empty[0] + 1} of {len(texts)}' if texts[1:] else what
    yield f'found an empty {which}, expected words'


def _choice_problems(
  example: examples.ChoiceExample, limits: Limits
) -> Iterator[str]:
  count = len(example.choices)
  if (limits.num_choices and count != limits.num_choices) or count < 2:
    yield f'found {count} choices, expected {limits.num_choices or "2 or more"}'
  yield from _empty(example.choices, 'choice', limits)
  if not (example.context + example.question).strip():
    yield 'found neither context nor question, expected words'
  if example.label is not None and not 0 <= example.label < count:
    yield (
      f'found {example.label} as the right choice, expected 0 to {count - 1}'
    )


def _tag_problems(
  example: examples.TaggedExample, limits: Limits
) -> Iterator[str]:
  if not example.words:
    yield 'found an empty sentence, expected words'
  for word in example.words:
    if not word.strip():
      yield f'found the word {word!r}, expected a word'
  if example.tags is None:
    return
  if len(example.tags) != len(example.words):
    yield (
      f'found {len(example.tags)} tags, expected one for each of '
      f'{len(example.words)} words'
    )
  for tag in example.tags:
    if tag not in limits.labels:
      yield limits.refusal(f'the tag {tag!r}', f'one of {list(limits.labels)}')


def _span_problems(
  example: examples.SpanExample, limits: Limits
) -> Iterator[str]:
  del limits  # of spans there are none
  if not example.question:
    yield 'found an empty question, expected words'
  if not example.context.strip():
    yield 'found an empty context, expected words'
  for text, start in example.answers:
    if not text or start < 0:
      yield f'found the answer {text!r} at {start}, expected a part of the text'
    there = example.context[max(start, 0) : start + len(text)]
    if there != text:
      yield (
        f'found {there!r} in the context at character {start}, expected the '
        f'answer {text!r}'
      )
