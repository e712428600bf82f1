"""Topics of news: AG News in English, titles of THUCNews in Chinese."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from etils import epath

from data.tasks import examples, files, glue

_AG_TOPICS = ('World', 'Sports', 'Business', 'Sci/Tech')
# Order of class.txt, where a topic's number is that of its line from 0.
_THUC_TOPICS = (
  'finance',
  'realty',
  'stocks',
  'education',
  'science',
  'society',
  'politics',
  'sports',
  'game',
  'entertainment',
)


# Topics of THUCNews -> those of AG News; the others have none.
_COMMON = {
  'politics': 'World',
  'sports': 'Sports',
  'finance': 'Business',
  'stocks': 'Business',
  'science': 'Sci/Tech',
}


def _ag_rows(file: epath.Path, split: str) -> examples.Found:
  """Yields the news of a table without titles; all files have labels."""
  del split
  titles = ('class', 'title', 'description')
  for number, (where, record) in enumerate(
    files.read_csv(file, (), titles=titles)
  ):
    label = _topic(where, record['class'], _AG_TOPICS, first=1)
    yield where, examples.TextExample(str(number), _ag_texts(record), label)


def _ag_texts(record: Mapping[str, Any]) -> tuple[str]:
  """Returns one text; the release writes line breaks as backslashes."""
  return (f'{record["title"]} {record["description"]}'.replace('\\', ' '),)


def _ag_record(
  record: Mapping[str, Any], split: str, number: int
) -> examples.TextExample:
  del split
  label = _AG_TOPICS[record['label']]
  return examples.TextExample(str(number), _ag_texts(record), label)


def _thuc_rows(file: epath.Path, split: str) -> examples.Found:
  """Yields titles of news; without labels a line is a title alone."""
  del split
  titles = ('text', 'topic')[: len(files.header_of(file))]
  return glue.text_examples(
    files.read_tsv(file, (), titles=titles),
    ('text',),
    'topic',
    to_label=lambda where, number: _topic(where, number, _THUC_TOPICS, first=0),
  )


def _common_rows(file: epath.Path, split: str) -> examples.Found:
  """Yields the titles whose topic AG News has, with its name there."""
  for where, example in _thuc_rows(file, split):
    if example.label is None or example.label in _COMMON:
      label = _COMMON.get(example.label)
      yield where, dataclasses.replace(example, label=label)


def _topic(
  where: str, number: str, topics: tuple[str, ...], *, first: int
) -> str:
  """Returns the topic of a number in a file, where the first has `first`."""
  known = {str(i): topic for i, topic in enumerate(topics, start=first)}
  if number not in known:
    raise ValueError(
      f'{where}: found the topic {number!r}, expected a number from {first} to '
      f'{len(topics) - 1 + first}'
    )
  return known[number]


THUCNEWS = examples.TextTask(
  rows=_thuc_rows,
  name='thucnews',
  title='THUCNews, titles',
  kind='classification',
  files={split: (f'{split}.txt',) for split in ('train', 'dev', 'test')},
  folders=('thucnews', 'THUCNews', 'THUCNews/data'),
  labels=_THUC_TOPICS,
  sizes={'train': 180000, 'dev': 10000, 'test': 10000},
  url='https://github.com/649453932/Chinese-Text-Classification-Pytorch',
)
AG_NEWS = examples.TextTask(
  rows=_ag_rows,
  name='ag_news',
  title='AG News',
  kind='classification',
  # The release has no dev set: dev is its test set, unless a user makes one out
  # of train.csv.
  files={
    'train': ('train.csv',),
    'dev': ('dev.csv', 'test.csv'),
    'test': ('test.csv',),
  },
  folders=('ag_news', 'ag_news_csv', 'AG_NEWS'),
  labels=_AG_TOPICS,
  sizes={'train': 120000, 'test': 7600},
  tfds=examples.Tfds(
    'ag_news_subset',
    _ag_record,
    {'train': 'train', 'dev': 'test', 'test': 'test'},
  ),
  url='https://github.com/mhjabreel/CharCnn_Keras',
  language='en',
  languages={
    'zh': dataclasses.replace(
      THUCNEWS, rows=_common_rows, labels=_AG_TOPICS, sizes={}
    )
  },
)

TASKS = (AG_NEWS, THUCNEWS)
