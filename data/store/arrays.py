"""The arrays of a token store, written as a stream."""

import collections
import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from data.store import audit as audits
from data.store import corpus, pool, units
from data.store import held_out as held_out_text
from data.text import sources, text_pieces
from data.vocabulary import tokenization

_BLOCK = 1 << 22  # tokens or documents looked at together at the end


class _ArrayWriter:
  """Appends to a .npy file of one axis without knowing its final length."""

  def __init__(self, path: pathlib.Path, dtype: Any):
    self._file = open(path, 'wb', buffering=1 << 20)
    self._dtype = np.dtype(dtype)
    self.length = 0
    self._write_header()
    self._start = self._file.tell()

  def append(self, values: Any) -> None:
    values = np.ascontiguousarray(values, self._dtype)
    self._file.write(values.data)
    self.length += len(values)

  @property
  def num_bytes(self) -> int:
    return self.length * self._dtype.itemsize

  def finish(self) -> None:
    """Writes the length and syncs the file to the disk."""
    self._file.seek(0)
    self._write_header()
    assert self._file.tell() == self._start
    self._file.flush()
    os.fsync(self._file.fileno())

  def close(self) -> None:
    # A full disk fails again on the rest of the buffer: it was reported.
    with contextlib.suppress(OSError):
      self._file.close()

  def _write_header(self) -> None:
    header = {
      'descr': np.lib.format.dtype_to_descr(self._dtype),
      'fortran_order': False,
      'shape': (self.length,),
    }
    np.lib.format.write_array_header_1_0(self._file, header)


class _UnitWriter:
  """Appends to units.npy, and counts the units."""

  def __init__(self, writer: _ArrayWriter, continues: np.ndarray):
    """`continues`, bool [V], are the tokens that continue a unit otherwise."""
    self._writer = writer
    self._continues = continues
    self._held = np.zeros(0, bool)  # fewer than 8
    self._since = 0  # tokens since the last unit began
    self.count = self.longest = 0

  def append(self, result: pool.Encoded) -> None:
    starts = result.starts
    if starts is None:
      starts = ~self._continues[result.tokens]
      starts[np.cumsum([0, *result.lengths[:-1]])[: len(starts)]] = True
    places = np.flatnonzero(starts)
    self.count += len(places)
    if len(places):
      sizes = np.diff(places, prepend=-self._since)
      self.longest = max(self.longest, int(sizes.max()))
      self._since = len(starts) - int(places[-1])
    bits = np.concatenate([self._held, starts])
    whole = len(bits) // 8 * 8
    self._writer.append(np.packbits(bits[:whole], bitorder='little'))
    self._held = bits[whole:]

  def finish(self) -> None:
    self.longest = max(self.longest, self._since)
    self._writer.append(np.packbits(self._held, bitorder='little'))
    self._writer.finish()


def write_arrays(
  text: sources.Source,
  tokenizer: tokenization.Tokenizer,
  folder: pathlib.Path,
  share: float,
  workers: int,
  progress: bool,
  kind: str = 'wordpiece',
) -> dict[str, Any]:
  """Writes all arrays; returns the audit, with the largest id as `max_id`.

  `kind` is of the units; lines of ids have their own.
  """
  from data.store import outlook  # a run seldom builds a store

  tally = collections.Counter()
  dropped = collections.Counter()
  sentence_lengths = collections.Counter()
  document_lengths = collections.Counter()
  dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
  max_id = 0
  with contextlib.ExitStack() as stack:

    def create(name, dtype):
      writer = _ArrayWriter(folder / f'{name}.npy', dtype)
      stack.callback(writer.close)
      return writer

    tokens = create('tokens', dtype)
    sentences = create('sentences', np.int64)
    documents = create('documents', np.int64)
    hashes = create('hashes', np.uint64)
    marked = None
    if kinds := units.kinds(text, kind):
      marked = _UnitWriter(create('units', np.uint8), tokenizer.continuations())
    sentences.append([0])
    documents.append([0])
    update = stack.enter_context(show_progress('tokens', text, progress))
    tell = outlook.teller(text, folder, workers, progress)
    pieces = text.pieces(tokenizer.white_space)
    results = stack.enter_context(
      contextlib.closing(
        pool.encode_all(pieces, tokenizer, folder, workers, kind)
      )
    )
    of_language = np.zeros(len(text.languages), np.int64)  # documents
    digests = []  # of the pieces of the document that is being read
    num_sentences = num_tokens = 0  # of it so far
    for result in results:
      update()
      offsets = tokens.length + np.cumsum(result.lengths)
      first, ends, new_hashes, new_lengths = 0, [], [], []
      for count, digest, ends_document, language in result.pieces:
        num_sentences += count
        num_tokens += int(result.lengths[first : first + count].sum())
        first += count
        digests.append(digest)
        if not ends_document:
          continue
        if num_sentences:
          if len(digests) > 1:
            digest = pool.digest(b''.join(digests))
          new_hashes.append(int.from_bytes(digest, 'little'))
          new_lengths.append(num_tokens)
          ends.append(sentences.length - 1 + first)
          tally['one_sentence_documents'] += num_sentences == 1
          of_language[language] += 1
        else:
          dropped['document without tokens'] += 1
        digests, num_sentences, num_tokens = [], 0, 0
      if marked:
        marked.append(result)
      tokens.append(result.tokens)
      sentences.append(offsets)
      documents.append(ends)
      hashes.append(np.array(new_hashes, np.uint64))
      document_lengths.update(new_lengths)
      lengths, counts = np.unique(result.lengths, return_counts=True)
      sentence_lengths.update(
        dict(zip(lengths.tolist(), counts.tolist(), strict=True))
      )
      max_id = max(max_id, int(result.tokens.max(initial=0)))
      tally['unknown'] += result.unknown
      tally['words'] += result.words
      dropped['sentence without tokens'] += result.dropped
      tell(sum(w.num_bytes for w in (tokens, sentences, documents, hashes)))
    update()
    if not hashes.length:
      what = text_pieces.describe_dropped(
        dropped + text.dropped, text.dropped_files
      )
      raise ValueError(
        f'source {text.spec!r} holds no text that gives a token (dropped: '
        f'{what})'
      )
    if kind == 'file' and marked.count == sentences.length - 1:
      raise ValueError(
        f"units 'file': source {text.spec!r} has no tab inside a sentence,"
        ' expected one before each unit'
      )
    for writer in (tokens, sentences, documents, hashes, marked):
      if writer:
        writer.finish()
  audit = {
    'source': text.description,
    'document_break': text.document_break,
    'documents': hashes.length,
    'sentences': sentences.length - 1,
    'words': tally['words'],
    'tokens': tokens.length,
    'max_id': max_id,
    'tokenizer': tokenizer.description,
    'vocab_size': tokenizer.vocab_size,
    'unknown_rate': tally['unknown'] / tokens.length,
    'one_sentence_documents': tally['one_sentence_documents'],
    'dropped': dict(+(dropped + text.dropped)),
    'dropped_files': {**text.dropped_files},
    'sentence_lengths': audits.summarise(sentence_lengths),
    'document_lengths': audits.summarise(document_lengths),
  }
  if marked:
    audit['units'] = {
      'of': kinds,
      'count': marked.count,
      'mean_tokens': round(tokens.length / marked.count, 3),
      'longest': marked.longest,
    }
  languages = dict(zip(text.languages, of_language.tolist(), strict=True))
  return audit | _finish(folder, share, tokenizer.vocab_size, languages)


def _finish(
  folder: pathlib.Path,
  share: float,
  vocab_size: int,
  languages: dict[str, int],
) -> dict[str, Any]:
  """Holds documents out, counts training tokens and duplicates.

  `languages` are the documents of each, which lie one after the other.
  """
  hashes = np.load(folder / 'hashes.npy', mmap_mode='r+')
  documents = np.load(folder / 'documents.npy', mmap_mode='r')
  tokens = np.load(folder / 'tokens.npy', mmap_mode='r')
  sentences = np.load(folder / 'sentences.npy', mmap_mode='r')
  cut, held_out, rule, bounds = held_out_text.hold_out_each(
    hashes, documents, sentences, share, languages
  )
  if cut is not documents:
    np.save(folder / 'documents.npy', cut)
  if len(languages) > 1:
    np.save(folder / corpus.LANGUAGES, bounds)
  np.save(folder / 'held_out.npy', held_out)
  hashes.sort()  # in its file
  distinct = 1 + np.count_nonzero(hashes[1:] != hashes[:-1])
  duplicates = len(hashes) - int(distinct)
  del hashes
  (folder / 'hashes.npy').unlink()

  counts = np.zeros(vocab_size, np.int64)
  held_tokens = 0
  for first in range(0, len(held_out), _BLOCK):
    starts = sentences[cut[first : first + _BLOCK + 1]]
    trained = ~held_out[first : first + _BLOCK]
    for at in range(int(starts[0]), int(starts[-1]), _BLOCK):
      stop = min(at + _BLOCK, int(starts[-1]))
      kept = np.repeat(trained, np.diff(np.clip(starts, at, stop)))
      counts += np.bincount(tokens[at:stop][kept], minlength=vocab_size)
      held_tokens += int(np.count_nonzero(~kept))
  np.save(folder / 'counts.npy', counts)
  facts = {
    'duplicate_documents': duplicates,
    'held_out': {
      'rule': rule,
      'documents': int(np.count_nonzero(held_out)),
      'tokens': held_tokens,
      'share_asked': share,
    },
  }
  if len(languages) > 1:
    facts['languages'] = _count_languages(
      languages, bounds, sentences[cut], held_out
    )
  return facts


def _count_languages(
  languages: Iterable[str],
  bounds: np.ndarray,
  starts: np.ndarray,
  held_out: np.ndarray,
) -> dict[str, dict[str, int]]:
  """Returns the audit's counts by language.

  `bounds` are languages.npy, `starts` int64 [D + 1] of documents in tokens.
  """
  found = {}
  for name, first, end in zip(languages, bounds[:-1], bounds[1:], strict=True):
    sizes = np.diff(starts[first : end + 1])
    found[name] = {
      'documents': int(end - first),
      'tokens': int(sizes.sum()),
      'held_out_tokens': int(sizes[held_out[first:end]].sum()),
    }
  return found


@contextlib.contextmanager
def show_progress(
  title: str, source: sources.Source, enabled: bool
) -> Iterator[Callable[[], None]]:
  """Yields a function that shows the progress of reading a source."""
  if not enabled:
    yield lambda: None
  elif sys.stderr.isatty():
    from rich import console
    from rich import progress as bars

    columns = (
      bars.TextColumn(title),
      bars.BarColumn(),
      bars.DownloadColumn(),
      bars.TransferSpeedColumn(),
      bars.TimeElapsedColumn(),
      bars.TextColumn('left'),
      bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console.Console(stderr=True)) as bar:
      task = bar.add_task(title, total=source.num_bytes)
      yield lambda: bar.update(task, completed=source.bytes_read)
  else:
    start = shown = time.monotonic()

    def update() -> None:
      nonlocal shown
      now = time.monotonic()
      if now - shown < 10:
        return
      shown = now
      line = f'{title}: {source.bytes_read / 1e6:,.0f} MB'
      if source.num_bytes and source.bytes_read:
        done = source.bytes_read / source.num_bytes
        left = (now - start) * (1 - done) / done
        line += f' of {source.num_bytes / 1e6:,.0f} MB, {left:,.0f} s left'
      print(line, file=sys.stderr, flush=True)

    yield update
