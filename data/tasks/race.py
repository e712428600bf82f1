"""RACE (Lai et al. 2017): questions of English examinations."""

import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from data import storage
from data.tasks import examples, files

_FIELDS = ('article', 'questions', 'options', 'answers')
_LETTERS = 'ABCD'
GROUPS = ('middle', 'high')


def _rows(folder: epath.Path, split: str) -> examples.Found:
  """Yields the questions of both schools: a folder each, a file an article."""
  passages = [
    (group, file)
    for group in GROUPS
    if (folder / group).is_dir()
    for file in sorted(storage.find_files(folder / group, '*.txt'), key=_number)
  ]
  if not passages:
    raise ValueError(
      f'{folder}: found no article, expected files middle/*.txt and high/*.txt '
      f'of the split {split!r}'
    )
  for group, file in passages:
    record = files.read_json(file)
    files.check_fields(str(file), record, _FIELDS)
    yield from _questions(str(file), record, f'{group}{file.name}', group)


def _number(file: epath.Path) -> tuple[int, str]:
  """Returns a key that sorts 9.txt before 10.txt."""
  digits = re.match(r'\d*', file.name)[0]
  return int(digits or 0), file.name


def _questions(
  where: str, record: Mapping[str, Any], key: str, group: str
) -> examples.Found:
  """Yields (place, example) of the questions of an article."""
  parts = [files.list_of(where, record, field) for field in _FIELDS[1:]]
  counts = list(map(len, parts))
  if len(set(counts)) > 1:
    raise ValueError(
      f'{where}: found {counts[0]} questions, {counts[1]} options and '
      f'{counts[2]} answers, expected as many of each'
    )
  for i, (question, options, answer) in enumerate(zip(*parts, strict=True)):
    place = f'{where}, question {i + 1}'
    told = [question, *options] if isinstance(options, list) else [options]
    for text in (record['article'], *told):
      if not isinstance(text, str) or text is options:
        raise ValueError(
          f'{place}: found {str(text)[:60]!r}, expected the article and the'
          ' question as text, and a list of options, each of them text'
        )
    if answer not in tuple(_LETTERS):
      raise ValueError(
        f'{place}: found the answer {answer!r}, expected one of '
        f'{list(_LETTERS)}'
      )
    yield (
      place,
      examples.ChoiceExample(
        f'{key}-{i}',
        record['article'],
        question,
        tuple(options),
        label=_LETTERS.index(answer),
        group=group,
      ),
    )


def _from_tfds(
  record: Mapping[str, Any], split: str, number: int
) -> list[examples.ChoiceExample]:
  """Returns the examples of a TFDS record, which is an article."""
  del split, number
  key = record['example_id']
  group = next(group for group in GROUPS if key.startswith(group))
  found = _questions(f'TFDS race, {key}', record, key, group)
  return [example for _, example in found]


RACE = examples.ChoiceTask(
  rows=_rows,
  name='race',
  title='RACE',
  kind='choice',
  allow_empty=True,  # a few options are empty in the release
  files={split: (split,) for split in ('train', 'dev', 'test')},
  folders=('RACE', 'race'),
  num_choices=4,
  sizes={'train': 87866, 'dev': 4887, 'test': 4934},
  tfds=examples.Tfds(
    'race/middle,race/high',
    _from_tfds,
    {'train': 'train', 'dev': 'dev', 'test': 'test'},
  ),
  url='https://www.cs.cmu.edu/~glai1/data/race',
  recipe={'bert': {'task.max_length': 512}},
)

TASKS = (RACE,)
