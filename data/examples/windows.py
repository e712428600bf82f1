"""The window index of a token store: where the examples of one length lie.

The next window of a document starts with the sentence of the token that lies
`length - 3` tokens (a full pair without [CLS] and two [SEP]) after the start of
this window. If this sentence began no later than this window, the next window
starts at the token itself, so no text is left out. A window is longer than the
step to the next: it ends after `window_width` tokens or with the document, so
truncation has something to cut, and windows do not end with sentences. The
index is built once, beside the store, and memory-mapped.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator

import numpy as np

from data.store import corpus, folders

_VERSION = 1
_BLOCK = 1 << 20  # sentences looked at at once: bounds the memory

WINDOW = np.dtype(
  [
    ('start', np.int64),  # first token
    ('first_sentence', np.int64),  # first marked sentence, see below
    ('num_sentences', np.int32),  # how many are marked
    ('length', np.int32),  # tokens
    ('document', np.int32),
  ],
  align=True,
)


@dataclasses.dataclass(frozen=True)
class Index:
  """The windows of one split of a store.

  Attributes:
    windows: WINDOW [n], in the order of the text. Marked sentences start inside
      the window and are not the first of their document.
    offsets: int64 [D + 1]; document d has windows offsets[d]:offsets[d + 1].
    boundary_share: of windows with a marked sentence after their first token.
  """

  windows: np.ndarray
  offsets: np.ndarray
  boundary_share: float


def window_width(length: int) -> int:
  """Returns W, the tokens that a window carries for inputs of `length`."""
  return length + length // 8


def open_index(store: corpus.Store, length: int, *, held_out: bool) -> Index:
  """Opens the index of a split, and builds it first if it is missing.

  It lies in the store's folder or, if the store is read-only, in the user's
  temporary folder (PermissionError if others can write there). Several
  processes may call at once. Raises ValueError if `length` is below 8 tokens,
  or the split has fewer than two documents of a language, which pairs need.
  """
  if length < 8:
    raise ValueError(f'length {length}: expected 8 or more tokens.')
  split = 'held-out' if held_out else 'training'
  name = f'windows-{length}-{split}-v{_VERSION}-{store.meta["digest"][:16]}'
  folder = folders.make_beside(
    store.folder,
    name,
    lambda partial: _write(store, length, _choose(store, held_out), partial),
  )
  meta = json.loads((folder / 'index.json').read_bytes())
  windows = np.memmap(folder / 'windows.bin', dtype=WINDOW, mode='r')
  return Index(
    windows=windows.view(np.ndarray),
    offsets=np.load(folder / 'offsets.npy', mmap_mode='r').view(np.ndarray),
    boundary_share=meta['boundary_share'],
  )


def _choose(store: corpus.Store, held_out: bool) -> np.ndarray:
  """Returns bool [D], the documents of a split; see `open_index`."""
  split = 'held-out' if held_out else 'training'
  chosen = store.held_out == held_out
  bounds = store.sentences[store.documents]
  chosen &= np.diff(bounds) > 0
  found = np.diff(np.append(0, np.cumsum(chosen))[store.language_bounds])
  if found.min() < 2:
    of = ''
    if len(found) > 1:
      of = f' of language {store.languages[found.argmin()]!r}'
    remedy = (
      'Set a larger data.held_out or bring more documents'
      if held_out
      else 'Choose another data.document_break, so that the text falls into '
      'several documents, or bring more text'
    )
    raise ValueError(
      f'{store.folder} has {found.min()} {split} document(s){of} with text, '
      'expected 2 or more: a pair takes its random second text from another '
      f'document. {remedy}.'
    )
  return chosen


def _write(
  store: corpus.Store, length: int, chosen: np.ndarray, folder: pathlib.Path
) -> None:
  counts = np.zeros(len(chosen) + 1, np.int64)
  with_boundary = 0
  with open(folder / 'windows.bin', 'wb') as file:
    for windows in _cut(store, length, chosen):
      windows.tofile(file)
      document = windows['document']
      first = document[0]
      per_document = np.bincount(document - first)
      counts[first + 1 : first + 1 + len(per_document)] += per_document
      at_start = store.sentences[windows['first_sentence']] == windows['start']
      with_boundary += int((windows['num_sentences'] > at_start).sum())
    file.flush()
    os.fsync(file.fileno())
  offsets = np.cumsum(counts)
  np.save(folder / 'offsets.npy', offsets)
  total = int(offsets[-1])
  meta = {'boundary_share': with_boundary / total}
  (folder / 'index.json').write_text(json.dumps(meta))


def _cut(
  store: corpus.Store, length: int, chosen: np.ndarray
) -> Iterator[np.ndarray]:
  """Yields the windows of the chosen documents, a block of text at a time."""
  sentences = store.sentences
  documents = store.documents
  stride = length - 3
  num_sentences = len(sentences) - 1
  numbers = np.flatnonzero(chosen)
  # Where each chosen document starts, then the end of the chain.
  openings = np.append(documents[numbers], num_sentences)

  sentence = int(openings[0])
  while sentence < num_sentences:
    low, high = sentence, min(sentence + _BLOCK, num_sentences)
    start = sentences[low:high]
    size = sentences[low + 1 : high + 1] - start
    document = (
      np.searchsorted(documents, np.arange(low, high), side='right') - 1
    )
    end = sentences[documents[document + 1]]
    parts = np.maximum(1, -(-size // stride))
    after = start + parts * stride
    following = np.searchsorted(sentences, after, side='right') - 1
    # Shorter rests lie in the previous window, length // 8 + 3 tokens longer.
    rest = length // 8
    leaves = (after >= end) | (end - sentences[following] < rest)
    parts -= (parts > 1) & (end - (after - stride) < rest)
    opening = openings[np.searchsorted(numbers, document, side='right')]
    following = np.where(leaves, opening, following).tolist()

    reached = []
    while sentence < high:
      reached.append(sentence - low)
      sentence = following[sentence - low]
    yield _windows(sentences, documents, length, low, reached, parts, document)


def _windows(
  sentences: np.ndarray,
  documents: np.ndarray,
  length: int,
  low: int,
  reached: list[int],
  parts: np.ndarray,
  document: np.ndarray,
) -> np.ndarray:
  """Returns the windows that begin with the sentences `low + reached`."""
  reached = np.asarray(reached)
  parts = parts[reached]
  part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
  reached = np.repeat(reached, parts)
  windows = np.zeros(len(reached), WINDOW)
  document = document[reached]
  start = sentences[low + reached] + part * (length - 3)
  end = np.minimum(
    start + window_width(length), sentences[documents[document + 1]]
  )
  opens = (part > 0) | (low + reached == documents[document])
  first = low + reached + opens
  windows['start'] = start
  windows['first_sentence'] = first
  windows['num_sentences'] = np.searchsorted(sentences, end) - first
  windows['length'] = end - start
  windows['document'] = document
  return windows
