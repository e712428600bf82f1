"""Story Cloze (Mostafazadeh et al. 2016): the right end of a story."""

from collections.abc import Iterator

import numpy as np
from etils import epath

from data.tasks import checks, examples, files

# GPT's release trains on the labelled stories of 2016 and keeps 374 of the
# 1,871 for choosing: scikit-learn's train_test_split with this seed.
_SEED = 3535999445
_NUM_STORIES = 1871
_NUM_DEV = 374
_COLUMNS = (
  'InputStoryid',
  *(f'InputSentence{i}' for i in range(1, 5)),
  'RandomFifthSentenceQuiz1',
  'RandomFifthSentenceQuiz2',
)
_LABEL = 'AnswerRightEnding'


def split_rows(count: int) -> tuple[list[int], list[int]]:
  """Returns the rows for training and for choosing, in the release's order."""
  num_dev = max(1, round(count * _NUM_DEV / _NUM_STORIES))
  order = np.random.RandomState(_SEED).permutation(count).tolist()
  return order[num_dev:], order[:num_dev]


def _rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.ChoiceExample]]:
  """The stories of a split; training and dev are out of one file."""
  stories = list(_stories(file, split))
  if checks.is_labelled(split):
    train, dev = split_rows(len(stories))
    stories = [stories[i] for i in (train if split == 'train' else dev)]
  yield from stories


def _stories(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.ChoiceExample]]:
  has_label = _LABEL in files.csv_header_of(file) or checks.is_labelled(split)
  columns = (*_COLUMNS, *([_LABEL] if has_label else []))
  for line, fields in files.read_csv(file, columns):
    where = f'{file}, line {line:,}'
    label = None
    if has_label:
      if fields[-1] not in ('1', '2'):
        raise ValueError(
          f'{where}: found the right ending {fields[-1]!r}, expected 1 or 2'
        )
      label = int(fields[-1]) - 1
    for title, text in zip(columns[1:5], fields[1:5], strict=True):
      if not text.strip():
        raise ValueError(f'{where}: found an empty {title}, expected words')
    yield (
      where,
      examples.ChoiceExample(
        id=fields[0],
        context=' '.join(fields[1:5]),
        question='',
        choices=tuple(fields[5:7]),
        label=label,
      ),
    )


_LABELLED = (
  'cloze_test_val__spring2016 - cloze_test_ALL_val.csv',
  'cloze_test_val__spring2016.csv',
)
STORY_CLOZE = checks.declare(
  _rows,
  name='story_cloze',
  title='Story Cloze',
  kind='choice',
  files={
    'train': _LABELLED,
    'dev': _LABELLED,
    'test': (
      'cloze_test_test__spring2016 - cloze_test_ALL_test.csv',
      'cloze_test_test__spring2016.csv',
    ),
  },
  folders=('story_cloze', 'StoryCloze', 'ROCStories'),
  num_choices=2,
  sizes={'train': 1497, 'dev': 374, 'test': 1871},
  url='https://cs.rochester.edu/nlp/rocstories',
)

TASKS = (STORY_CLOZE,)
