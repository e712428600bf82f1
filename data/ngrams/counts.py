"""Counts of all n-grams of a text, by sorting.

An n-gram has a number among those of its order: its place when they are sorted
by (number of its first n - 1 words, last word). So each is one integer, its
key = number of the first n - 1 words * V + last word, whatever n and V. A text
of any length is read in blocks; each gives a sorted run in a folder, and the
runs are merged a range of keys at a time. Memory holds a block or a range.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

# Ids below the words': an unknown word, a text's beginning and its end.
SYMBOLS = ('<unk>', '<s>', '</s>')
UNKNOWN, BEGIN, END = range(len(SYMBOLS))
BLOCK = 1 << 22  # words, or keys, sorted at a time: about 200 MB


class NgramOrder(NamedTuple):
  """All n-grams of one order, int64 [n-grams], sorted by their keys.

  Attributes:
    keys: see above.
    counts: how often each occurs.
    suffixes: number of its last n - 1 words in the order below.
  """

  keys: np.ndarray
  counts: np.ndarray
  suffixes: np.ndarray


@dataclasses.dataclass(frozen=True)
class NgramCounts:
  """Counts of n-grams of 1 to N words; `orders[0]` has every one of V ids."""

  num_words: int
  orders: Sequence[NgramOrder]


def count(
  blocks: Iterable[np.ndarray],
  order: int,
  num_words: int,
  folder: pathlib.Path,
  block_size: int = BLOCK,
) -> NgramCounts:
  """Counts the n-grams, n = 1 to `order`, of texts.

  Args:
    blocks: int [words] parts of the text, ids below `num_words`. Each text
      begins with `BEGIN`; no n-gram reaches over a beginning.
    order: N.
    num_words: V, `SYMBOLS` included.
    folder: an empty one, where the counts lie while they are used.
    block_size: words read at a time.
  """
  tokens = _file(folder / 'tokens', np.int32, blocks)
  numbers = np.memmap(
    folder / 'numbers', np.int64, 'w+', shape=(max(len(tokens), 1),)
  )
  starts = range(0, len(tokens), block_size)
  once = np.zeros(num_words, np.int64)
  for start in starts:
    part = tokens[start : start + block_size]
    once += np.bincount(part, minlength=num_words)
    numbers[start : start + block_size] = part
  orders = [
    NgramOrder(np.arange(num_words), once, np.zeros(num_words, np.int64))
  ]
  for n in range(2, order + 1):
    runs = []
    before = -1
    for start in starts:
      run, before = _sort_block(
        tokens, numbers, before, start, block_size, num_words, folder / f'{n}'
      )
      runs.append(run)
    keys, counts = _merge(runs, folder / f'{n}', block_size)
    suffixes = np.memmap(
      folder / f'{n}.suffixes', np.int64, 'w+', shape=(max(len(keys), 1),)
    )
    for start, run in zip(starts, runs, strict=True):
      part = numbers[start : start + block_size]
      places = np.searchsorted(keys, run.keys)
      suffixes[places] = part[run.firsts]
      part[:] = -1
      part[run.inside] = places[run.inverse]
    del runs
    for path in folder.glob(f'{n}.[0-9]*'):
      path.unlink()
    orders.append(NgramOrder(keys, counts, suffixes[: len(keys)]))
  return NgramCounts(num_words, tuple(orders))


class _Run(NamedTuple):
  """The n-grams that end in a block: distinct sorted keys, and their places.

  Attributes:
    counts: of each key.
    firsts: a place in the block where each ends.
    inside: the places where any n-gram ends.
    inverse: the number among the keys of each of those.
  """

  keys: np.ndarray
  counts: np.ndarray
  firsts: np.ndarray
  inside: np.ndarray
  inverse: np.ndarray


def _sort_block(
  tokens: np.ndarray,
  numbers: np.ndarray,
  before: int,
  start: int,
  size: int,
  num_words: int,
  stem: pathlib.Path,
) -> tuple[_Run, int]:
  """Returns the run of a block, and the last number in it.

  `numbers` are those of the (n - 1)-grams that end at each place, -1 for none;
  `before` is the last one before the block.
  """
  words = tokens[start : start + size]
  here = np.asarray(numbers[start : start + size])
  heads = np.concatenate([[before], here[:-1]])
  inside = np.flatnonzero((heads >= 0) & (words != BEGIN))
  keys = heads[inside] * num_words + words[inside]
  order = np.argsort(keys)
  ordered = keys[order]
  new = np.ones(len(keys), bool)
  new[1:] = ordered[1:] != ordered[:-1]
  edges = np.flatnonzero(new)
  inverse = np.empty(len(keys), np.int32)
  inverse[order] = np.cumsum(new, dtype=np.int32) - 1
  run = _Run(
    ordered[edges],
    np.diff(np.append(edges, len(keys))),
    inside[order[edges]].astype(np.int32),
    inside.astype(np.int32),
    inverse,
  )
  kept = (
    _file(stem.with_name(f'{stem.name}.{start}.{name}'), array.dtype, [array])
    for name, array in run._asdict().items()
  )
  return _Run(*kept), int(here[-1])


def _merge(
  runs: Sequence[_Run], stem: pathlib.Path, size: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the distinct keys of all runs, sorted, and the sums of counts."""
  # Every so many keys of a run a boundary, so a range has about `size` keys.
  step = max(size // max(len(runs), 1), 1)
  edges = np.unique(np.concatenate([run.keys[::step] for run in runs] or [[]]))
  edges = edges[:: max(len(runs), 1)][1:]
  cuts = [
    [0, *np.searchsorted(run.keys, edges).tolist(), len(run.keys)]
    for run in runs
  ]
  keys, counts = (stem.with_name(f'{stem.name}.{name}') for name in ('k', 'c'))
  with keys.open('wb') as keys_file, counts.open('wb') as counts_file:
    for part in range(len(edges) + 1):
      pieces = [
        (run, slice(cut[part], cut[part + 1]))
        for run, cut in zip(runs, cuts, strict=True)
      ]
      found = np.concatenate([r.keys[s] for r, s in pieces] or [[]])
      order = np.argsort(found)
      found = found[order]
      new = np.ones(len(found), bool)
      new[1:] = found[1:] != found[:-1]
      places = np.flatnonzero(new)
      found[places].astype(np.int64).tofile(keys_file)
      if len(places):
        sums = np.concatenate([r.counts[s] for r, s in pieces])[order]
        np.add.reduceat(sums, places).astype(np.int64).tofile(counts_file)
  return _open(keys, np.int64), _open(counts, np.int64)


def _file(
  path: pathlib.Path, dtype: np.dtype, parts: Iterable[np.ndarray]
) -> np.ndarray:
  """Returns parts of an array as one memory-mapped file."""
  with path.open('wb') as file:
    for part in parts:
      np.asarray(part, dtype).tofile(file)
  return _open(path, dtype)


def _open(path: pathlib.Path, dtype: np.dtype) -> np.ndarray:
  if path.stat().st_size:
    return np.memmap(path, dtype, 'r')
  empty = np.memmap(path, dtype, 'w+', shape=(1,))  # a file of 0 has no map
  return empty[:0]
