"""Stanford's sentiment trees (Socher et al. 2013) with five labels."""

import re
from collections.abc import Iterator

from etils import epath

from data.tasks import checks, examples, files

_PART = re.compile(r'\(([^ ()]+) |([^ ()]+)|(\))| ')
# The Penn Treebank's spellings of characters.
_ESCAPES = {'-LRB-': '(', '-RRB-': ')'}


def parse(where: str, tree: str) -> list[tuple[str, str]]:
  """Returns (label, words) of every phrase of a tree, the whole one first.

  Args:
    where: of the tree, for errors.
    tree: '(label word)' or '(label tree tree)', nested.

  Raises:
    ValueError: if it is no tree.
  """
  words: list[str] = []
  phrases: list[tuple[str, int, int]] = []  # label, first word, end
  opened: list[int] = []
  place = 0
  while place < len(tree):
    part = _PART.match(tree, place)
    closes = part is not None and part[3] is not None
    # There is one outermost tree, and a word is in one.
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
  """A word as it is written: the treebank masks brackets, '/' and '*'."""
  return _ESCAPES.get(word, word).replace('\\/', '/').replace('\\*', '*')


def _rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TextExample]]:
  """The sentences, each with its tree's label."""
  del split
  trees = ((line, tree) for line, tree in files.read_lines(file) if tree)
  for number, (line, tree) in enumerate(trees):
    where = f'{file}, line {line:,}'
    label, text = parse(where, tree)[0]
    yield where, examples.TextExample(str(number), (text,), label)


def _phrase_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TextExample]]:
  """In training every phrase of every sentence, with its own label."""
  if split != 'train':
    yield from _rows(file, split)
    return
  trees = ((line, tree) for line, tree in files.read_lines(file) if tree)
  for number, (line, tree) in enumerate(trees):
    where = f'{file}, line {line:,}'
    for place, (label, text) in enumerate(parse(where, tree)):
      yield where, examples.TextExample(f'{number}-{place}', (text,), label)


def _sst5(name: str, title: str, rows, train_size: int) -> examples.Task:
  return checks.declare(
    rows,
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
  )


SST5 = _sst5('sst5', 'SST-5', _rows, 8544)
SST5_PHRASES = _sst5(
  'sst5_phrases', 'SST-5, trained on all phrases', _phrase_rows, 318582
)

TASKS = (SST5, SST5_PHRASES)
