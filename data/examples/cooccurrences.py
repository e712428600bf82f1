"""Counts how often words are neighbours, and makes rows of counts, for GloVe.

Each word in the vocabulary adds 1 / distance to its count with each of the
`window` words before it, in both directions, as GloVe's cooccur.c does; words
outside of the vocabulary are left out before distances are taken. Neighbours
lie in one document, or in one sentence if the text has a sentence on each line.

A text is counted once, into a folder inside of the store's:

  words.npy     int32 [E], the row of each entry of the matrix that is not 0
  contexts.npy  int32 [E], its column
  counts.npy    float32 [E], its value
  index.json    the number of words that were counted

The entries lie in an order drawn once, so that T entries in sequence are a
random row. Pairs are sorted by parts, and the parts merged by ranges of words:
counting takes about 1.5 GB of memory whatever the text, and disk for the parts.
100 novels (16 million words) have 24 million entries with a window of 10, which
take 290 MB, and are counted in a minute.
"""

import itertools
import json
import pathlib
import shutil
from collections.abc import Iterator

import jax
import numpy as np

from data.examples import permutation, pipeline, sampled_words
from data.examples.pipeline import Batch
from data.store import corpus, folders

_VERSION = 1
_SHUFFLE = 4  # keeps this permutation apart from others
_BLOCK = 1 << 24  # pairs, or entries, looked at together: bounds the memory
_EVERY = 1 << 10  # a code of so many shows where parts are cut

_ENTRY = np.dtype(
  [('words', np.int32), ('contexts', np.int32), ('counts', np.float32)]
)


class CountExamples(pipeline.Permuted):
  """One split of a store of whole words, as rows of T entries of its counts.

  The counts of held-out text are multiplied by the ratio of the words of both
  splits: a loss compares them with the counts of the training text.
  """

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    *,
    held_out: bool,
    window: int,
    min_count: int,
  ) -> None:
    """Opens the counts, and counts first if they are missing.

    Words of fewer than `min_count` occurrences in the training text are left
    out. Raises ValueError if no pair of words remains, or the store is not of
    whole words.
    """
    counts = sampled_words.word_counts(store, min_count)
    split = 'held-out' if held_out else 'training'
    folder = folders.make_beside(
      store.folder,
      f'cooccurrences-{window}-{min_count}-{split}-v{_VERSION}'
      f'-{store.meta["digest"][:16]}',
      lambda partial: _write(
        store, window, counts > 0, store.held_out == held_out, partial
      ),
    )
    self._words, self._contexts, self._counts = (
      np.load(folder / f'{name}.npy', mmap_mode='r').view(np.ndarray)
      for name in ('words', 'contexts', 'counts')
    )
    self._scale = np.float32(1)
    if held_out:
      num_words = json.loads((folder / 'index.json').read_text())['num_words']
      self._scale = np.float32(counts.sum() / num_words)
    super().__init__(length, {'': -(-len(self._words) // length)}, 1.0)

  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Returns `words`, `contexts` int32 and `counts` float32, each [B, T].

    Padding has the words 0 and the count 0.
    """
    del draws
    places = numbers[:, None] * self.length + np.arange(self.length)
    inside = places < len(self._words)
    places = np.where(inside, places, 0)
    return {
      'words': self._words[places] * inside,
      'contexts': self._contexts[places] * inside,
      'counts': self._counts[places] * inside * self._scale,
    }


def batch_shapes(length: int, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes and dtypes of a host batch, made without text."""
  dtypes = {'words': np.int32, 'contexts': np.int32, 'counts': np.float32}
  shapes = {
    name: jax.ShapeDtypeStruct((rows, length), dtype)
    for name, dtype in dtypes.items()
  }
  return shapes | {
    'example_ids': jax.ShapeDtypeStruct((rows,), np.int32),
    'example_mask': jax.ShapeDtypeStruct((rows,), np.bool_),
  }


def _write(
  store: corpus.Store,
  window: int,
  is_learnt: np.ndarray,
  chosen: np.ndarray,
  folder: pathlib.Path,
) -> None:
  """Writes the counts of some documents, bool [D], between words, bool [V]."""
  size, num_words, num_parts = len(is_learnt), 0, 0
  parts = folder / 'parts'
  parts.mkdir()
  for words, segments, first in _read(store, window, is_learnt, chosen):
    num_words += len(words) - first
    codes, sums = _count(words, segments, first, window, size)
    np.save(parts / f'codes-{num_parts}.npy', codes)
    np.save(parts / f'sums-{num_parts}.npy', sums)
    num_parts += 1
  with open(parts / 'entries.bin', 'wb') as file:
    for codes, sums in _merge(parts, num_parts):
      low, high = np.divmod(codes, size)
      mirrored = low != high
      entries = np.zeros(len(codes) + np.count_nonzero(mirrored), _ENTRY)
      entries['words'] = np.concatenate([low, high[mirrored]])
      entries['contexts'] = np.concatenate([high, low[mirrored]])
      # A word beside itself counts in both directions.
      sums = np.where(mirrored, sums, 2 * sums)
      entries['counts'] = np.concatenate([sums, sums[mirrored]])
      entries.tofile(file)
  if not (parts / 'entries.bin').stat().st_size:
    raise ValueError(
      f'{store.folder}: the chosen documents have {num_words} words of the'
      ' vocabulary, and no two of them are neighbours: bring more text, or set'
      ' another data.held_out'
    )
  _shuffle(parts / 'entries.bin', folder)
  shutil.rmtree(parts)
  (folder / 'index.json').write_text(json.dumps({'num_words': num_words}))


def _read(
  store: corpus.Store,
  window: int,
  is_learnt: np.ndarray,
  chosen: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
  """Yields (words, segments, first): the words of a part of the text.

  The words before `first` are the last of the part before.
  """
  is_word = np.zeros(len(store.counts), bool)
  is_word[: len(is_learnt)] = is_learnt
  bounds, inside = store.sentences[store.documents], chosen
  if store.tokenizer.sentence_per_line:
    bounds = store.sentences
    inside = np.repeat(chosen, np.diff(store.documents))
  words, segments = np.zeros(0, np.int64), np.zeros(0, np.int64)
  block = max(1, _BLOCK // window)
  for begin in range(0, len(store.tokens), block):
    end = min(begin + block, len(store.tokens))
    first, last = np.searchsorted(bounds, [begin, end], side='right')
    number = np.arange(first - 1, last)
    edges = np.concatenate([[begin], bounds[first:last], [end]])
    segment = np.repeat(number, np.diff(edges))
    tokens = store.tokens[begin:end]
    # Behind the last segment is nothing.
    kept = is_word[tokens] & inside[segment]
    words = np.concatenate([words[-window:], tokens[kept].astype(np.int64)])
    segments = np.concatenate([segments[-window:], segment[kept]])
    yield words, segments, len(words) - int(np.count_nonzero(kept))


def _count(
  words: np.ndarray, segments: np.ndarray, first: int, window: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns pairs of words, int64 ascending, and their sums, float32.

  A pair is its lower word times `size`, and the other.
  """
  found = []
  for distance in range(1, window + 1):
    begin = max(first, distance)
    right, left = words[begin:], words[begin - distance : len(words) - distance]
    same = segments[begin:] == segments[begin - distance : -distance]
    right, left = right[same], left[same]
    low, high = np.minimum(left, right), np.maximum(left, right)
    found.append((low * size + high) * window + (distance - 1))
  keys = np.concatenate(found)
  keys.sort()
  codes, distances = np.divmod(keys, window)
  return _sum(codes, 1 / (1 + distances))


def _sum(
  codes: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the distinct ones of ascending codes, and the sums, float32."""
  if not len(codes):
    return codes, np.zeros(0, np.float32)
  starts = np.flatnonzero(np.diff(codes, prepend=-1))
  return codes[starts], np.add.reduceat(values, starts).astype(np.float32)


def _merge(
  folder: pathlib.Path, num_parts: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yields the sums over all parts, as `_sum`, by ranges of ascending codes."""
  parts = [
    [
      np.load(folder / f'{name}-{part}.npy', mmap_mode='r').view(np.ndarray)
      for name in ('codes', 'sums')
    ]
    for part in range(num_parts)
  ]
  some = np.sort(np.concatenate([codes[::_EVERY] for codes, _ in parts]))
  num_ranges = -(-sum(len(codes) for codes, _ in parts) // _BLOCK)
  cuts = [some[i * len(some) // num_ranges] for i in range(1, num_ranges)]
  for low, high in itertools.pairwise([0, *cuts, np.iinfo(np.int64).max]):
    places = [slice(*np.searchsorted(codes, [low, high])) for codes, _ in parts]
    codes, sums = (
      np.concatenate(
        [part[i][at] for part, at in zip(parts, places, strict=True)]
      )
      for i in (0, 1)
    )
    order = np.argsort(codes, kind='stable')
    yield _sum(codes[order], sums[order].astype(np.float64))


def _shuffle(entries: pathlib.Path, folder: pathlib.Path) -> None:
  """Writes the columns of a file of entries in an order drawn by a key."""
  found = np.memmap(entries, _ENTRY, mode='r').view(np.ndarray)
  size = len(found)
  columns = {
    name: np.lib.format.open_memmap(
      folder / f'{name}.npy', 'w+', _ENTRY[name], (size,)
    )
    for name in _ENTRY.names
  }
  key = permutation.make_keys(_SHUFFLE)
  for begin in range(0, size, _BLOCK // 8):
    places = np.arange(begin, min(begin + _BLOCK // 8, size))
    some = found[permutation.permute(places, size, key)]
    for name, column in columns.items():
      column[places] = some[name]
  for column in columns.values():
    column.flush()
