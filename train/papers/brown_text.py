"""The Brown corpus as Bengio et al. 2003 read it: one running text of words."""

import collections
import pathlib
from typing import NamedTuple

import numpy as np
from etils import epath

from data.store import build, corpus
from data.text import text_files
from data.vocabulary import words
from train.host import files
from train.language import held_out

TRAIN, VALID = 800_000, 200_000  # words; the rest is to test
SELDOM = 3  # types seen so often or less, in the whole corpus, are one symbol
# Words of a line of the store's text, whose last lines are held out. A line is
# a sentence to an ELMo alone, which predicts its end.
LINE = 1_000
FILE = 'brown.txt'


class BrownText(NamedTuple):
  """The text in three parts.

  Attributes:
    store: the words to train on and, held out, those to choose by.
    valid: ids of the latter, int [words].
    test: ids of the rest, int [words].
  """

  store: corpus.Store
  valid: np.ndarray
  test: np.ndarray


def find(data: str | None) -> epath.Path:
  """Returns the file of the corpus in a folder of data sets, or in its own."""
  if data is None:
    raise ValueError(
      'lm/brown needs --data DIR, where DIR or DIR/brown holds the Brown corpus'
      f' as {FILE}: words and marks between white space'
    )
  places = [epath.Path(data) / name / FILE for name in ('.', 'brown')]
  for place in places:
    if place.exists():
      return place
  raise FileNotFoundError(f'--data {data}: holds no {FILE}, nor brown/{FILE}')


def read(path: epath.Path) -> tuple[list[str], list[str]]:
  """Returns the words of the corpus, seldom ones as one symbol, and the types.

  The types come by falling count. Raises ValueError for a shorter corpus.
  """
  text = text_files.read_text(path).split()
  if len(text) <= TRAIN + VALID + 1:
    raise ValueError(
      f'{path}: {len(text):,} words, expected more than {TRAIN + VALID:,}, the'
      ' first to train on and to choose by'
    )
  counts = collections.Counter(text)
  kept = [word for word, count in counts.items() if count > SELDOM]
  kept.sort(key=lambda word: (-counts[word], word))
  known = set(kept) - set(words.SPECIALS)
  spelt = [word if word in known else words.UNKNOWN for word in text]
  return spelt, [word for word in kept if word in known]


def prepare(path: epath.Path, folder: epath.Path) -> BrownText:
  """Returns the parts of the corpus; makes their store in a folder.

  A store that stands there is used if it is of the same text.
  """
  spelt, types = read(path)
  pieces = [*words.SPECIALS, *types]
  text, vocabulary = folder / 'text' / FILE, folder / 'words.txt'
  text.parent.mkdir(parents=True, exist_ok=True)
  first = spelt[: TRAIN + VALID]
  lines = (
    ' '.join(first[start : start + LINE]) + '\n'
    for start in range(0, len(first), LINE)
  )
  _write_once(text, ''.join(lines))
  _write_once(vocabulary, '\n'.join(pieces) + '\n')
  store = build.ensure_store(
    str(text),
    str(vocabulary),
    pathlib.Path(folder / 'store'),
    held_out=VALID / (TRAIN + VALID),
    progress=False,
  )
  ids = {piece: number for number, piece in enumerate(pieces)}
  test = np.array([ids[word] for word in spelt[TRAIN + VALID :]], np.int32)
  (valid,) = held_out.read(store)
  return BrownText(store, np.asarray(valid.tokens), test)


def _write_once(path: epath.Path, text: str) -> None:
  # A store knows its source by the time of its files, too.
  if not path.exists() or path.read_text() != text:
    files.write_atomically(path, text)
