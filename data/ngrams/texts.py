"""Texts as word ids of n-grams: a token store's documents, a file's lines."""

import collections
import itertools
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from data.ngrams.counts import BEGIN, END, SYMBOLS, UNKNOWN
from data.store import corpus
from data.text import text_files

_LINES = 100_000  # of a file, read at a time
_TOKENS = 1 << 22  # of a store, read at a time at most


class NgramWords(NamedTuple):
  """The words of n-grams, `SYMBOLS` first, and the ids of a store's tokens.

  `of_token` is int32 [tokens of the vocabulary], or None for files.
  """

  words: tuple[str, ...]
  of_token: np.ndarray | None = None


def words_of_store(store: corpus.Store) -> NgramWords:
  """Returns a store's vocabulary as words.

  Those that no model predicts are unknown, and so is the unknown one. White
  space in a piece is spelt as in Python's strings, so that no word has any.
  """
  tokenizer = store.tokenizer
  size = getattr(tokenizer, 'softmax_size', tokenizer.vocab_size)
  of_token = np.full(tokenizer.vocab_size, UNKNOWN, np.int32)
  of_token[:size] = np.arange(size) + len(SYMBOLS)
  words = [*SYMBOLS, *map(_spelt, tokenizer.pieces[:size])]
  for i, word in enumerate(words[len(SYMBOLS) :]):
    if i == tokenizer.unk_id:
      of_token[i] = UNKNOWN
    if word in SYMBOLS or word == '<UNK>':
      words[i + len(SYMBOLS)] = f'{word}#{i}'  # a piece, no symbol
  return NgramWords(tuple(words), of_token)


def _spelt(piece: str) -> str:
  return ''.join(
    letter
    if letter.split()
    else letter.encode('unicode_escape').decode().replace(' ', r'\x20')
    for letter in piece
  )


def documents(store: corpus.Store, *, held_out: bool) -> Iterator[np.ndarray]:
  """Yields the tokens of each document of a split that has two or more."""
  bounds = np.asarray(store.sentences)[np.asarray(store.documents)]
  for document in np.flatnonzero(np.asarray(store.held_out) == held_out):
    tokens = np.asarray(store.tokens[bounds[document] : bounds[document + 1]])
    if len(tokens) > 1:
      yield tokens


def store_blocks(
  store: corpus.Store, words: NgramWords, share: float = 1.0
) -> Iterator[np.ndarray]:
  """Yields ids of the training documents, each between its symbols.

  With a `share`, of each document only as much of its beginning.
  """
  part, size = [], 0
  for document in documents(store, held_out=False):
    tokens = document[: math.ceil(share * len(document))]
    for first in range(0, len(tokens), _TOKENS):
      some = words.of_token[tokens[first : first + _TOKENS]]
      part += [[BEGIN], some] if first == 0 else [some]
      size += len(some)
      if size >= _TOKENS:
        yield np.concatenate(part)
        part, size = [], 0
    part.append([END])
  if part:
    yield np.concatenate(part).astype(np.int32)


def read_words(
  paths: Sequence[str | pathlib.Path], min_count: int = 1
) -> NgramWords:
  """Returns the words of files that occur `min_count` times or more.

  They stand between white space, and come by falling count.
  """
  counts: collections.Counter[str] = collections.Counter()
  for path in paths:
    for number, line in enumerate(_lines(path), start=1):
      counts.update(line.split())
      if '<s>' in counts or '</s>' in counts:
        raise _has_symbols(path, number)
  del counts['<unk>'], counts['<UNK>']
  if not counts:
    raise ValueError(f'{", ".join(map(str, paths))}: no words to count')
  kept = [word for word, times in counts.items() if times >= min_count]
  kept.sort(key=lambda word: (-counts[word], word))
  return NgramWords((*SYMBOLS, *kept))


def file_blocks(
  paths: Sequence[str | pathlib.Path], ids: dict[str, int]
) -> Iterator[np.ndarray]:
  """Yields ids of files, each line with words between its symbols.

  Words that `ids` lacks are unknown. Raises ValueError for a symbol in a line.
  """
  lines = (
    (path, *line) for path in paths for line in enumerate(_lines(path), start=1)
  )
  while some := list(itertools.islice(lines, _LINES)):
    found: list[int] = []
    for path, number, line in some:
      if row := [ids.get(word, UNKNOWN) for word in line.split()]:
        if BEGIN in row or END in row:
          raise _has_symbols(path, number)
        found += [BEGIN, *row, END]
    if found:
      yield np.array(found, np.int32)


def _has_symbols(path: Any, number: int) -> ValueError:
  return ValueError(
    f'{path}, line {number:,}: found <s> or </s>, expected text without them:'
    ' each line begins and ends a text'
  )


def _lines(path: Any) -> Iterator[str]:
  yield from text_files.lines_of(epath.Path(path))
