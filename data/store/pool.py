"""Encodes text as token ids on all cores: the pool, and a worker's program.

Workers talk through pipes, and end when these close. Workers of multiprocessing
would import the main module of the parent, and with it JAX or TensorFlow.
"""

import collections
import contextlib
import dataclasses
import functools
import gc
import hashlib
import itertools
import os
import pathlib
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures

import numpy as np

from data.store import units
from data.text import sentences
from data.text.text_pieces import Piece
from data.vocabulary import tokenization

ITEM_CHARACTERS = 1_000_000  # a work item holds pieces of about this much text
ITEM_PIECES = 10_000
CACHE_WORDS = 200_000  # about 50 MB a worker
CACHE_LETTERS = 32  # longer ones rarely come again
_POOL_FROM = 4  # with fewer items, starting processes costs more than it gives

_COMMAND = """
import sys
sys.path[:] = {path!r}
from data.store import pool
pool.serve()
"""


@dataclasses.dataclass(frozen=True)
class Encoded:
  """One encoded work item.

  Attributes:
    tokens: uint16 or uint32 [n], all sentences one after the other.
    lengths: int64 [s], tokens of each sentence; none is 0.
    pieces: of each piece: number of sentences, digest of its
      white-space-normalised text, whether it ends its document, its language.
      Of ids, each document is a piece.
    unknown: number of unknown tokens.
    words: white-space-separated words in the text.
    dropped: sentences without a token.
    starts: bool [n], tokens that begin a unit; None: pieces that are no
      continuations do.
  """

  tokens: np.ndarray
  lengths: np.ndarray
  pieces: list[tuple[int, bytes, bool, int]]
  unknown: int
  words: int
  dropped: int
  starts: np.ndarray | None = None


class Encoder:
  """Splits and tokenises work items, with a cache of encoded words."""

  def __init__(
    self, tokenizer: tokenization.Tokenizer, kind: str = 'wordpiece'
  ):
    """Makes an encoder; `kind` is of the units, see `units.KINDS`."""
    self._tokenizer = tokenizer
    self._kind = kind
    self._parts = getattr(tokenizer, 'parts', None)
    self._sentence_per_line = getattr(tokenizer, 'sentence_per_line', False)
    self._cache: dict[str, list[int]] = {}
    narrow = tokenizer.vocab_size <= 1 << 16
    self._dtype = np.uint16 if narrow else np.uint32

  def encode(self, pieces: Sequence[Piece]) -> Encoded:
    """Splits and tokenises one work item, of text or of ids."""
    if pieces[0].is_ids:
      return self._read_ids(pieces)
    texts, counts, digests, words = [], [], [], 0
    for piece in pieces:
      text = units.plain(piece.text, self._kind)
      found = self._split(piece, text)
      texts += found
      counts.append(len(found))
      normalised = text.split()
      words += len(normalised)
      digests.append(digest(' '.join(normalised).encode()))
    starts = None
    if self._kind == 'wordpiece':
      ids = self.encode_texts(texts)
    else:
      ids, starts = self._find_units(pieces, texts, counts)
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    tokens = np.fromiter(
      itertools.chain.from_iterable(ids), self._dtype, int(lengths.sum())
    )
    # How many sentences of each piece have a token.
    running = np.concatenate([[0], np.cumsum(lengths > 0)])
    kept = np.diff(running[np.cumsum([0, *counts])])
    ends = [piece.ends_document for piece in pieces]
    languages = [piece.language for piece in pieces]
    unk_id = self._tokenizer.unk_id
    return Encoded(
      tokens=tokens,
      lengths=lengths[lengths > 0],
      pieces=list(zip(kept.tolist(), digests, ends, languages, strict=True)),
      unknown=0 if unk_id is None else int(np.count_nonzero(tokens == unk_id)),
      words=words,
      dropped=int(np.count_nonzero(lengths == 0)),
      starts=starts,
    )

  def _find_units(
    self, pieces: Sequence[Piece], texts: list[str], counts: list[int]
  ) -> tuple[list[list[int]], np.ndarray]:
    """Returns ids of each sentence, and which of all tokens begin a unit."""
    encoded = self._tokenizer.encode_with_spans(texts)
    ids = [each for each, _ in encoded]
    spans = [each for _, each in encoded]
    if self._kind == 'file':
      bounds = np.cumsum([0, *counts]).tolist()
      found = []
      for piece, low, high in zip(pieces, bounds[:-1], bounds[1:], strict=True):
        found += units.find_marked(piece, texts[low:high], spans[low:high])
    else:
      continues = self._tokenizer.continuations()
      found = [
        units.find_segmented(text, span) & ~continues[one]
        for text, span, one in zip(texts, spans, ids, strict=True)
      ]
    for flags in found:
      flags[:1] = True
    return ids, np.concatenate([np.zeros(0, bool), *found])

  def _read_ids(self, pieces: Sequence[Piece]) -> Encoded:
    """Reads a work item of `ernie_lines`."""
    from data.text import ernie_lines  # text has none

    tokenizer = self._tokenizer
    symbols = ernie_lines.LineSymbols(
      tokenizer.cls_id, tokenizer.sep_id, tokenizer.vocab_size
    )
    tokens, starts, lengths, documents = [], [], [], []

    def add(language: int, *texts: tuple[list[int], list[bool]]) -> None:
      sizes = []
      for ids, flags in texts:
        sizes += map(len, sentences.cut_ids(ids, self._letters))
        tokens.extend(ids)
        starts.extend(flags)
      lengths.extend(sizes)
      content = np.array(tokens[-sum(sizes) :], np.int64).tobytes()
      documents.append((len(sizes), digest(content), True, language))

    for piece in pieces:
      for number, line in enumerate(piece.text.split('\n'), start=piece.line):
        try:
          pair = ernie_lines.parse(line, symbols)
        except ValueError as error:
          raise ValueError(f'{piece.file}, line {number:,}: {error}') from None
        first = pair.first, pair.first_starts
        second = pair.second, pair.second_starts
        if pair.follows:
          add(piece.language, first, second)
        else:
          add(piece.language, first)
          add(piece.language, second)
    begins = np.array(starts, bool)
    begins[np.cumsum([0, *lengths[:-1]])] = True
    return Encoded(
      tokens=np.array(tokens, self._dtype),
      lengths=np.array(lengths, np.int64),
      pieces=documents,
      unknown=tokens.count(tokenizer.unk_id),
      words=int(np.count_nonzero(begins)),
      dropped=0,
      starts=begins,
    )

  @functools.cached_property
  def _letters(self) -> list[str]:
    """A character for each id, the piece's own where it has a single one."""
    pieces = (piece.removeprefix('##') for piece in self._tokenizer.pieces)
    return [piece if len(piece) == 1 else 'x' for piece in pieces]

  def _split(self, piece: Piece, text: str) -> list[str]:
    """Returns the sentences, including white space that their tokens hold."""
    white_space = self._tokenizer.white_space
    text = self._tokenizer.repair(text)
    found = find_sentences(
      text, piece.sentence_per_line or self._sentence_per_line
    )
    if white_space == 'ignored':
      return found
    if white_space == 'newlines' and piece.ends_document:
      text = text.rstrip()
    return sentences.cut_text(text, found, white_space)

  def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each repaired text."""
    if self._parts is None:
      return self._tokenizer.encode_batch(texts)
    split = [self._parts(text) for text in texts]
    parts = set(itertools.chain.from_iterable(split))
    new = list(parts.difference(self._cache))
    if len(self._cache) + len(new) > CACHE_WORDS:
      self._cache.clear()
      new = list(parts)
    table = dict(zip(new, self._tokenizer.encode_parts(new), strict=True))
    self._cache.update(table)
    find = self._cache.__getitem__
    ids = [
      list(itertools.chain.from_iterable(map(find, text))) for text in split
    ]
    for part in table:
      if len(part) > CACHE_LETTERS:
        del self._cache[part]
    return ids


def find_sentences(text: str, per_line: bool) -> list[str]:
  """Returns the sentences of a text, or its lines, white space collapsed."""
  if per_line:
    return sentences.split_lines(text)
  return sentences.split_sentences(text)


def digest(data: bytes) -> bytes:
  """Returns a hash of 8 bytes."""
  return hashlib.blake2b(data, digest_size=8).digest()


def encode_all(
  pieces: Iterable[Piece],
  tokenizer: tokenization.Tokenizer,
  folder: pathlib.Path,
  workers: int,
  kind: str = 'wordpiece',
) -> Iterator[Encoded]:
  """Yields a stream of pieces, encoded in order with bounded look-ahead.

  Workers load `tokenizer` from `folder`; a short text, or one worker, stays in
  this process. `kind` is of the units. Raises ChildProcessError if a worker
  dies.
  """
  items = _group(pieces)
  head = list(itertools.islice(items, _POOL_FROM))
  if workers == 1 or len(head) < _POOL_FROM:
    encode = Encoder(tokenizer, kind).encode
    for item in itertools.chain(head, items):
      yield encode(item)
    return
  with contextlib.ExitStack() as stack:
    free = queue.SimpleQueue()
    for _ in range(workers):
      free.put(stack.enter_context(_start_worker(folder, kind)))

    def call(item):
      process = free.get()
      try:
        return _call(process, item)
      finally:
        free.put(process)

    executor = futures.ThreadPoolExecutor(workers)
    # Runs before the processes' contexts exit: they kill, which frees threads.
    stack.callback(executor.shutdown, wait=False, cancel_futures=True)
    pending = collections.deque()
    for item in itertools.chain(head, items):
      pending.append(executor.submit(call, item))
      if len(pending) > 2 * workers:
        yield pending.popleft().result()
    while pending:
      yield pending.popleft().result()


def _group(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
  item, size = [], 0
  for piece in pieces:
    if item and item[-1].is_ids != piece.is_ids:
      yield item
      item, size = [], 0
    item.append(piece)
    size += len(piece.text)
    if size >= ITEM_CHARACTERS or len(item) >= ITEM_PIECES:
      yield item
      item, size = [], 0
  if item:
    yield item


@contextlib.contextmanager
def _start_worker(
  folder: pathlib.Path, kind: str
) -> Iterator[subprocess.Popen]:
  root = os.fspath(pathlib.Path(__file__).parents[2])
  command = _COMMAND.format(path=[root, *sys.path])
  process = subprocess.Popen(
    [sys.executable, '-c', command],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    # More threads would only compete with the processes.
    env={**os.environ, 'TOKENIZERS_PARALLELISM': 'false'},
  )
  try:
    with contextlib.suppress(BrokenPipeError):  # a dead one shows when called
      pickle.dump((os.fspath(folder), kind), process.stdin)
    yield process
  finally:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
      with contextlib.suppress(OSError):
        pipe.close()


def _call(process: subprocess.Popen, item: list[Piece]) -> Encoded:
  try:
    pickle.dump(item, process.stdin, pickle.HIGHEST_PROTOCOL)
    process.stdin.flush()
    answer = pickle.load(process.stdout)
  except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
    raise ChildProcessError(
      f'a worker process of the store build died (exit code '
      f'{process.wait()}); out of memory? python -m data.prepare'
      ' takes fewer with --workers.'
    ) from error
  if isinstance(answer, Exception):
    raise answer
  return answer


def serve() -> None:
  """Encodes work items from standard input until it closes."""
  # Ctrl-C reaches the whole terminal; the parent decides what it means.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # Millions of small lists, no cycles: collecting took a quarter of the time.
  gc.disable()
  answers = os.fdopen(os.dup(1), 'wb')
  os.dup2(2, 1)  # a stray print must not end up among the answers
  requests = sys.stdin.buffer
  try:
    folder, kind = pickle.load(requests)
    encode = Encoder(tokenization.load(folder), kind).encode
    while True:
      item = pickle.load(requests)
      try:
        answer = encode(item)
      except Exception as error:  # noqa: BLE001 the parent raises it
        answer = error
      pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
      answers.flush()
  except (EOFError, BrokenPipeError):
    os._exit(0)  # the parent is gone or done: nothing left to flush
