"""Story Cloze (Mostafazadeh et al. 2016): the right ending of a story."""

import numpy as np
from etils import epath

from data.tasks import examples, files

# GPT's release trains on the labelled stories of 2016 and keeps 374 of the
# 1,871 for dev: scikit-learn's train_test_split with this seed.
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
  """Returns the rows for training and for dev, in the release's order."""
  num_dev = max(1, round(count * _NUM_DEV / _NUM_STORIES))
  order = np.random.RandomState(_SEED).permutation(count).tolist()
  return order[num_dev:], order[:num_dev]


def _rows(file: epath.Path, split: str) -> examples.Found:
  """Returns the stories of a split; training and dev share one file."""
  stories = list(_stories(file, split))
  if not examples.needs_labels(split):
    return stories
  train, dev = split_rows(len(stories))
  return [stories[i] for i in (train if split == 'train' else dev)]


def _stories(file: epath.Path, split: str) -> examples.Found:
  labelled = examples.needs_labels(split)
  columns = (*_COLUMNS, _LABEL) if labelled else _COLUMNS
  for where, record in files.read_csv(file, columns):
    label = record.get(_LABEL)
    if label not in ('1', '2', None):
      raise ValueError(
        f'{where}: found the right ending {label!r}, expected 1 or 2'
      )
    key, *sentences, first, second = (record[title] for title in _COLUMNS)
    for title, text in zip(_COLUMNS[1:5], sentences, strict=True):
      if not text.strip():
        raise ValueError(f'{where}: found an empty {title}, expected words')
    yield (
      where,
      examples.ChoiceExample(
        key,
        ' '.join(sentences),
        '',
        (first, second),
        label=None if label is None else int(label) - 1,
      ),
    )


_LABELLED = (
  'cloze_test_val__spring2016 - cloze_test_ALL_val.csv',
  'cloze_test_val__spring2016.csv',
)
STORY_CLOZE = examples.ChoiceTask(
  rows=_rows,
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
