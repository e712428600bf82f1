"""Stanford's sentiment trees (Socher et al. 2013) with five labels."""

import functools
import re
from typing import Any

from etils import epath

from data.tasks import examples, files

_PART = re.compile(r'\(([^ ()]+) |([^ ()]+)|(\))| ')
_ESCAPES = {'-LRB-': '(', '-RRB-': ')'}


def parse(where: str, tree: str) -> list[tuple[str, str]]:
  """Returns (label, words) of every phrase of a tree, the whole one first.

  A tree is '(label word)' or '(label tree tree)'; other text is a ValueError.
  """
  words: list[str] = []
  phrases: list[tuple[str, int, int]] = []  # label, first word, end
  opened: list[int] = []
  place = 0
  while place < len(tree):
    part = _PART.match(tree, place)
    closes = part is not None and part[3] is not None
    # There is one outermost tree, and every word is in a tree.
    if part is None or (place and not opened) or (not place and not part[1]):
      break
    if part[1] is not None:
      opened.append(len(phrases))
      phrases.append((part[1], len(words), -1))
    elif part[2] is not None:
      words.append(_word(part[2]))
    elif closes:
      label, first, _ = phrases[opened[-1]]
      phrases[opened.pop()] = (label, first, len(words))
    place = part.end()
  if place < len(tree) or opened or not words:
    raise ValueError(
      f'{where}: found no tree at character {place:,}, expected (label word) '
      f'or (label tree tree): {tree[max(0, place - 20) : place + 40]!r}'
    )
  return [(label, ' '.join(words[first:end])) for label, first, end in phrases]


def _word(word: str) -> str:
  return _ESCAPES.get(word, word).replace('\\/', '/').replace('\\*', '*')


def _rows(
  file: epath.Path, split: str, *, phrases: bool = False
) -> examples.Found:
  """Yields the sentences; in training perhaps all their phrases."""
  trees = ((line, tree) for line, tree in files.read_lines(file) if tree)
  for number, (line, tree) in enumerate(trees):
    where = f'{file}, line {line:,}'
    found = parse(where, tree)
    if not (phrases and split == 'train'):
      yield (
        where,
        examples.TextExample(str(number), (found[0][1],), found[0][0]),
      )
      continue
    for place, (label, text) in enumerate(found):
      yield where, examples.TextExample(f'{number}-{place}', (text,), label)


def _sst5(name: str, title: str, rows: Any, train_size: int) -> examples.Task:
  return examples.TextTask(
    rows=rows,
    name=name,
    title=title,
    kind='classification',
    files={
      split: (f'{split}.txt', f'trees/{split}.txt')
      for split in ('train', 'dev', 'test')
    },
    folders=('sst5', 'SST-5', 'trainDevTestTrees_PTB'),
    labels=('0', '1', '2', '3', '4'),
    sizes={'train': train_size, 'dev': 1101, 'test': 2210},
    url='https://nlp.stanford.edu/sentiment',
    recipe=examples.SPACES,
  )


SST5 = _sst5('sst5', 'SST-5', _rows, 8544)
SST5_PHRASES = _sst5(
  'sst5_phrases',
  'SST-5, trained on all phrases',
  functools.partial(_rows, phrases=True),
  318582,
)

TASKS = (SST5, SST5_PHRASES)
