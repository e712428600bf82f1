"""Rows packed with whole texts, which do not see each other.

A text is a document or, where a caller asks for it, a sentence. It is cut into
parts that fill a row, and a rest; rests share rows. The rests are packed by
best fit, the longest first (Johnson 1973, "Near-optimal bin packing
algorithms"), 2^20 parts of a language at a time. So a plan takes 8 bytes for
each text and some 100 MB, however much text there is. The plan depends only on
the store, is kept beside it, and is memory-mapped. `pipeline.Permuted` decides
the order of the rows in an epoch, as for all examples.
"""

import bisect
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.examples import pipeline, transforms
from data.examples.pipeline import Batch
from data.store import corpus, folders

_VERSION = 1
_BLOCK = 1 << 20  # parts packed at once: bounds the memory

PART = np.dtype(
  [
    ('start', np.int64),  # first token, of the store
    ('length', np.int32),  # units of the text, see `Cut`
    ('of', np.int32),  # the number of the text in the store
  ],
  align=True,
)


class Cut(NamedTuple):
  """How texts are cut.

  Attributes:
    name: of the cut, a part of the name of its folder.
    extra: units that a text has beyond its tokens.
    frame: places that a part takes beyond its units.
  """

  name: str
  extra: int
  frame: int


# BERT's [CLS] and [SEP]; GPT's predictions, from all tokens but the last; the
# same with an end-of-text token before and after each text.
FRAMED = Cut('framed', 0, 2)
CONTINUED = Cut('continued', -1, 0)
ENDED = Cut('ended', 1, 0)


class _PackedRows(pipeline.Permuted):
  """One split of a token store as packed rows.

  Attributes:
    real_share: the share of the places that hold a part.
    num_parts: of texts, in all rows.
  """

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    cut: Cut,
    *,
    held_out: bool,
    language_exponent: float,
    texts: str,
  ) -> None:
    """Opens the plan of the rows, and makes it first if it is missing.

    Raises ValueError if a language has no text to make a row of.
    """
    split = 'held-out' if held_out else 'training'
    kind = cut.name if texts == 'documents' else f'{cut.name}-{texts}'
    folder = folders.make_beside(
      store.folder,
      f'rows-{length}-{kind}-{split}-v{_VERSION}-{store.meta["digest"][:16]}',
      lambda partial: _write(store, length, cut, held_out, texts, partial),
    )
    meta = json.loads((folder / 'rows.json').read_bytes())
    for name, rows in zip(store.languages, meta['rows'], strict=True):
      if not rows:
        of = f' of language {name!r}' if len(store.languages) > 1 else ''
        raise ValueError(
          f'{store.folder} has no {split} {texts[:-1]}{of} of'
          f' {max(1, 1 - cut.extra)} or more tokens: bring more text, or set'
          ' another data.held_out'
        )
    languages = dict(zip(store.languages, meta['rows'], strict=True))
    super().__init__(length, languages, language_exponent)
    self.num_parts = meta['parts']
    self.real_share = meta['places'] / (self.num_windows * length)
    self._parts = np.memmap(folder / 'parts.bin', PART, 'r').view(np.ndarray)
    self._ends = np.memmap(folder / 'ends.bin', np.int64, 'r').view(np.ndarray)
    self._cut, self._tokens, self._texts = cut, store.tokens, texts

  def describe_rows(self) -> str:
    """Returns how well the rows are filled, as text."""
    return (
      f'{self.num_windows:,}, packed with {self.num_parts:,} {self._texts} or'
      f' parts of long ones; {self.real_share:.2%} of the places are in use'
    )

  def _spread(self, numbers: np.ndarray) -> '_Places':
    """Returns the places of rows that hold parts, in the order of the text."""
    ends = self._ends[numbers]
    counts = ends - np.where(numbers > 0, self._ends[numbers - 1], 0)
    row = np.repeat(np.arange(len(numbers)), counts)
    text = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    parts = self._parts[(ends - counts)[row] + text]
    sizes = parts['length'].astype(np.int64) + self._cut.frame
    first = np.cumsum(sizes) - sizes
    of_row = np.cumsum(counts) - counts  # its first part
    column = first - first[of_row][row]
    part = np.repeat(np.arange(len(parts)), sizes)
    within = np.arange(len(part)) - first[part]
    return _Places(
      row[part],
      column[part] + within,
      text[part].astype(np.int32) + 1,
      parts['start'][part],
      within,
      sizes[part],
      parts['of'][part],
    )

  def _read(self, places: np.ndarray) -> np.ndarray:
    """Returns tokens, any where a place is beyond the text."""
    places = np.clip(places, 0, len(self._tokens) - 1)
    return self._tokens[places].astype(np.int32)

  def _fill(
    self, rows: int, at: '_Places', values: np.ndarray | int, rest: int = 0
  ) -> np.ndarray:
    """Returns int32 [rows, T] with values at places, and `rest` elsewhere."""
    filled = np.full((rows, self.length), rest, np.int32)
    filled[at.row, at.column] = values
    return filled


class _Places(NamedTuple):
  """Places of rows, all of one length.

  Attributes:
    row: of the batch.
    column: of the row.
    text: the number of the part in its row, from 1 on.
    start: the first token of the part.
    within: the place within the part.
    size: of the part, in places.
    of: the number of the part's text in the store.
  """

  row: np.ndarray
  column: np.ndarray
  text: np.ndarray
  start: np.ndarray
  within: np.ndarray
  size: np.ndarray
  of: np.ndarray


class FramedRows(_PackedRows):
  """Rows of [CLS] text [SEP] [CLS] text [SEP] ..."""

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    *,
    held_out: bool,
    language_exponent: float = 0.7,
    texts: str = 'documents',
    units: bool = False,
  ) -> None:
    """Opens the rows; with `units`, tokens that begin a unit are marked."""
    self._units = corpus.open_units(store) if units else None
    self._tokenizer = store.tokenizer
    super().__init__(
      store,
      length,
      FRAMED,
      held_out=held_out,
      language_exponent=language_exponent,
      texts=texts,
    )

  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Returns `tokens` and `texts` int32 [B, T]: the number of a place's text.

    Padding has the text 0. Units begin with `transforms.UNIT_START` added.
    """
    del draws
    at, known = self._spread(numbers), self._tokenizer
    places = at.start + at.within - 1
    tokens = self._read(places)
    if self._units is not None:
      places = np.clip(places, 0, len(self._tokens) - 1)
      starts = corpus.starts_units(self._units, places)
      tokens += starts * np.int32(transforms.UNIT_START)
    tokens[at.within == 0] = known.cls_id
    tokens[at.within == at.size - 1] = known.sep_id
    return {
      'tokens': self._fill(len(numbers), at, tokens, known.pad_id),
      'texts': self._fill(len(numbers), at, at.text),
    }


class NextTokenRows(_PackedRows):
  """Rows of texts, and the token that follows at each place."""

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    *,
    held_out: bool,
    end_of_text: int | None = None,
    language_exponent: float = 0.7,
    texts: str = 'documents',
  ) -> None:
    """Opens the rows; an `end_of_text` stands before and after each text."""
    self._end_of_text, self._store = end_of_text, store
    super().__init__(
      store,
      length,
      CONTINUED if end_of_text is None else ENDED,
      held_out=held_out,
      language_exponent=language_exponent,
      texts=texts,
    )

  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Returns `tokens, targets, texts` int32 [B, T]; `texts` is 0 in padding.

    Each place with a text has a target, the last token of a text no place.
    """
    del draws
    at = self._spread(numbers)
    places = at.start + at.within
    tokens, targets = self._read(places), self._read(places + 1)
    if self._end_of_text is not None:
      begins, ends = (
        _bounds(self._store, self._texts, at.of + after) for after in (0, 1)
      )
      tokens[places < begins] = self._end_of_text
      targets[places + 1 >= ends] = self._end_of_text
    rows = len(numbers)
    return {
      'tokens': self._fill(rows, at, tokens),
      'targets': self._fill(rows, at, targets),
      'texts': self._fill(rows, at, at.text),
    }


def _write(
  store: corpus.Store,
  length: int,
  cut: Cut,
  held_out: bool,
  texts: str,
  folder: pathlib.Path,
) -> None:
  """Writes the parts in the order of the rows, and where each row ends."""
  total, places, rows = 0, 0, [0] * len(store.languages)
  with (
    open(folder / 'parts.bin', 'wb') as parts_file,
    open(folder / 'ends.bin', 'wb') as ends_file,
  ):
    for language, parts in _cut(store, length, cut, held_out, texts):
      row = pack(parts['length'] + cut.frame, length)
      order = np.argsort(row, kind='stable')
      parts[order].tofile(parts_file)
      counts = np.bincount(row)
      (total + np.cumsum(counts)).astype(np.int64).tofile(ends_file)
      rows[language] += len(counts)
      total += len(parts)
      places += int((parts['length'] + cut.frame).sum())
    for file in (parts_file, ends_file):
      file.flush()
      os.fsync(file.fileno())
  if not total:  # a file without a byte cannot be mapped
    for name in ('parts.bin', 'ends.bin'):
      (folder / name).write_bytes(bytes(PART.itemsize))
  meta = {'rows': rows, 'parts': total, 'places': places}
  (folder / 'rows.json').write_text(json.dumps(meta))


def _bounds(store: corpus.Store, texts: str, numbers: np.ndarray) -> np.ndarray:
  """Returns the first token of each numbered text, int64 [n]."""
  if texts == 'documents':
    numbers = store.documents[numbers]
  return store.sentences[numbers]


def _is_held_out(
  store: corpus.Store, texts: str, numbers: np.ndarray
) -> np.ndarray:
  """Returns whether each numbered text is one to evaluate on, bool [n]."""
  if texts == 'sentences':
    numbers = np.searchsorted(store.documents, numbers, side='right') - 1
  return store.held_out[numbers]


def _cut(
  store: corpus.Store, length: int, cut: Cut, held_out: bool, texts: str
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (language, PART [n]), some texts' parts at a time."""
  room = length - cut.frame
  for language in range(len(store.languages)):
    ends = store.language_bounds[language : language + 2]
    if texts == 'sentences':
      ends = store.documents[ends]
    first, last = ends.tolist()
    while first < last:
      numbers = np.arange(first, min(first + _BLOCK, last))
      bounds = _bounds(store, texts, np.append(numbers, numbers[-1] + 1))
      sizes = np.diff(bounds) + cut.extra
      chosen = _is_held_out(store, texts, numbers) == held_out
      chosen &= np.diff(bounds) > 0
      counts = np.where(chosen, -(-sizes // room), 0)
      # One text at least, whatever it has.
      some = np.searchsorted(np.cumsum(counts), _BLOCK, side='right')
      some = max(1, int(some))
      first += some
      text = np.repeat(np.arange(some), counts[:some])
      if not len(text):
        continue
      before = np.cumsum(counts[:some]) - counts[:some]
      offset = (np.arange(len(text)) - before[text]) * room
      parts = np.zeros(len(text), PART)
      # An end-of-text before a text would stand before its first token.
      parts['start'] = bounds[text] + offset - max(0, cut.extra)
      parts['length'] = np.minimum(sizes[text] - offset, room)
      parts['of'] = numbers[text]
      yield language, parts


def pack(sizes: np.ndarray, length: int) -> np.ndarray:
  """Returns the row of each of some sizes, int64 [n], rows numbered from 0 on.

  No row's sizes exceed `length` in sum. Best fit, the largest first: each takes
  the fullest row that has room for it, else a new one. Those that fill a row
  come first, in their order.
  """
  sizes = np.asarray(sizes)
  whole = sizes == length
  row = np.zeros(len(sizes), np.int64)
  row[whole] = np.arange(whole.sum())
  rests = np.flatnonzero(~whole)
  rests = rests[np.argsort(-sizes[rests].astype(np.int64), kind='stable')]
  found = np.zeros(len(rests), np.int64)
  open_rows: dict[int, np.ndarray] = {}  # free places -> rows
  free: list[int] = []  # the keys, ascending
  num_rows, done = int(whole.sum()), 0

  def leave(places: int, rows: np.ndarray) -> None:
    if not places or not len(rows):
      return
    if places in open_rows:
      rows = np.concatenate([open_rows[places], rows])
    else:
      bisect.insort(free, places)
    open_rows[places] = rows

  # All of one size are placed together, as one by one.
  for size, count in zip(
    *(each[::-1] for each in np.unique(sizes[rests], return_counts=True)),
    strict=True,
  ):
    size, end = int(size), done + int(count)
    while done < end:
      at = bisect.bisect_left(free, size)
      if at < len(free):
        places = free[at]
        rows = open_rows[places]
      else:
        places = length
        rows = num_rows + np.arange(-(-(end - done) // (length // size)))
        num_rows += len(rows)
      each = places // size
      used = rows[: -(-(end - done) // each)]
      if places < length:
        open_rows[places] = rows[len(used) :]
        if len(used) == len(rows):
          del open_rows[places], free[at]
      taken = min(end - done, len(used) * each)
      found[done : done + taken] = np.repeat(used, each)[:taken]
      last = taken - (len(used) - 1) * each  # in the last of these rows
      leave(places - each * size, used[:-1])
      leave(places - last * size, used[-1:])
      done += taken
  row[rests] = found
  return row


def framed_shapes(length: int, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes of `FramedRows`' batches, made without text."""
  return _shapes(('tokens', 'texts'), length, rows)


def next_token_shapes(
  length: int, rows: int
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes of `NextTokenRows`' batches, made without text."""
  return _shapes(('tokens', 'targets', 'texts'), length, rows)


def _shapes(names: tuple[str, ...], length: int, rows: int) -> dict[str, Any]:
  kinds = dict.fromkeys(names, ((rows, length), np.int32))
  kinds |= {
    'example_ids': ((rows,), np.int32),
    'example_mask': ((rows,), np.bool_),
  }
  return {name: jax.ShapeDtypeStruct(*kind) for name, kind in kinds.items()}


def read_framed(
  batch: Mapping[str, jax.Array],
  *,
  known: Callable[[jax.Array], jax.Array],
  units: bool = False,
) -> dict[str, jax.Array]:
  """Turns batches of `FramedRows` into inputs, all of token type 0.

  `known` maps ids to those that the model has. With `units`, tokens have marks
  `transforms.UNIT_START`, which become `unit_starts`.

  Returns:
    `tokens, token_types, positions, texts` int32 [B, T], `token_mask` bool [B,
    T], `example_mask` bool [B]; with `units`, `unit_starts` bool [B, T].
  """
  tokens_BT, texts_BT = batch['tokens'], batch['texts']
  result = {
    'token_types': jnp.zeros_like(tokens_BT),
    'positions': positions(texts_BT),
    'texts': texts_BT,
    'token_mask': texts_BT > 0,
    'example_mask': batch['example_mask'],
  }
  if units:
    result['unit_starts'] = tokens_BT >= transforms.UNIT_START
    tokens_BT = tokens_BT & (transforms.UNIT_START - 1)
  return result | {'tokens': known(tokens_BT)}


def positions(texts_BT: jax.Array) -> jax.Array:
  """Returns the place of each token in its text, int32 [B, T]."""
  place_T = jnp.arange(texts_BT.shape[1], dtype=jnp.int32)
  begins_BT = jnp.diff(texts_BT, axis=1, prepend=-1) != 0
  first_BT = jax.lax.cummax(jnp.where(begins_BT, place_T, 0), axis=1)
  return place_T - first_BT
