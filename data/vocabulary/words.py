"""Whole words: the tokenizer of ELMo's pre-training.

Every word type of a text has an id, for the character encoder; the softmax
predicts the first, most frequent ones. Ids 0, 1 and 2 are `<S>`, `</S>` and
`<UNK>`: a word of the text that reads like one is unknown.
"""

import collections
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tokenizers
from etils import epath
from tokenizers import models, pre_tokenizers

from data.vocabulary import (
  bpe_files,
  characters,
  tokenizer_json,
  word_counts,
)
from data.vocabulary.encoder_tokenizer import MaskingTokenizer

SPECIALS = bpe_files.WORD_SYMBOLS
UNKNOWN = SPECIALS[-1]
SPLITS = ('marks', 'spaces')
# The 1 Billion Word Benchmark has 2.4 million. A type takes about 100 bytes of
# memory while text is counted, and as many in the table of characters.
MAX_TYPES = 8_000_000
_CACHE_PARTS = 200_000  # about 50 MB
_CACHE_LETTERS = 32  # longer ones rarely come again
_BLOCK = 1 << 16  # types spelt at once

# Python counts four separators as white space that a regular expression's \s
# leaves out; sentences were found by Python's rule.
_SPACE = r'\s\x1c-\x1f'
_PATTERNS = {
  'marks': (
    # English clitics, as the 1 Billion Word text has them: don 't, it 's.
    r"(?i:(?<=\w)['’](?:s|m|d|ll|re|ve|t)(?!\w))"
    # Letters, their accents and digits of any script, with hyphens inside a
    # word and points and commas inside a number.
    r'|\w+(?:(?:[-‐‑]|(?<=\d)[.,](?=\d))\w+)*'
    # One mark, or a run of it: ... and --.
    rf'|([^\w{_SPACE}])\1*'
  ),
  'spaces': f'[^{_SPACE}]+',
}


@functools.cache
def _pre_tokenizer(split: str) -> pre_tokenizers.PreTokenizer:
  if split not in SPLITS:
    raise ValueError(
      f'split {split!r}: words are found by {" or ".join(map(repr, SPLITS))}'
    )
  # Inverted: matches are kept.
  return pre_tokenizers.Split(
    tokenizers.Regex(_PATTERNS[split]), 'removed', invert=True
  )


def split_words(text: str, split: str) -> list[str]:
  """Splits a text into words, as `Words.encode_batch` does.

  `split` is 'spaces': at white space only, for text with words and marks apart;
  or 'marks': each mark is a word too, and so are English clitics ('s, 't), but
  "well-known", "1,000.5" and "..." are one. `<S>`, `</S>` and `<UNK>` stay.
  """
  find = _pre_tokenizer(split)
  if split == 'spaces':
    return text.split()  # the same several times as fast
  return [word for word, _ in find.pre_tokenize_str(text)]


def split_with_spans(text: str, split: str) -> list[tuple[str, int, int]]:
  """Returns (word, begin, end) of the words of `split_words`.

  The word is the text's characters [begin, end), unchanged.
  """
  found = _pre_tokenizer(split).pre_tokenize_str(text)
  return [(word, begin, end) for word, (begin, end) in found]


@dataclasses.dataclass(frozen=True)
class Words(MaskingTokenizer):
  """The word types of a text, and the tokenizer that finds them.

  `pieces` are all types, `SPECIALS`, then by falling frequency; a model
  predicts the first V, `softmax_size`; `split` is as in `split_words`. BERT's
  symbols are the ends of a sentence, and the unknown word for a mask.
  """

  pieces: tuple[str, ...] = dataclasses.field(repr=False)
  softmax_size: int
  split: str

  white_space: ClassVar[str] = 'ignored'
  whole_words: ClassVar[bool] = True
  begin_id: ClassVar[int] = 0
  end_id: ClassVar[int] = 1
  unk_id: ClassVar[int] = 2
  cls_id: ClassVar[int] = begin_id
  sep_id: ClassVar[int] = end_id
  pad_id: ClassVar[int] = end_id
  mask_id: ClassVar[int] = unk_id

  @property
  def symbols(self) -> dict[str, int]:
    """The ids of BERT's symbols, by the names that a BERT has for them."""
    names = tokenizer_json.SYMBOLS['wordpiece']
    ids = self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id
    return dict(zip(names, ids, strict=True))

  @property
  def sentence_per_line(self) -> bool:
    """Whether a line is a sentence, as in text split at spaces."""
    return self.split == 'spaces'

  @functools.cached_property
  def fingerprint(self) -> str:
    """Hex digest of settings and softmax words; further types do not count."""
    predicted = self.pieces[: self.softmax_size]
    return bpe_files.fingerprint(
      'words', predicted, self.softmax_size, self.split
    )

  @property
  def description(self) -> str:
    """A few words for people."""
    how = {
      'marks': 'marks and clitics apart',
      'spaces': 'between white space, a sentence a line',
    }[self.split]
    return f'whole words, {how}; {self.softmax_size:,} are predicted'

  @functools.cached_property
  def characters(self) -> np.ndarray:
    """int16 [types, 50], the character ids of each type."""
    table = np.empty((len(self.pieces), characters.MAX_CHARACTERS), np.int16)
    for first in range(0, len(self.pieces), _BLOCK):
      block = self.pieces[first : first + _BLOCK]
      table[first : first + _BLOCK], _ = characters.encode_words(block)
    return table

  @functools.cached_property
  def num_cut(self) -> int:
    """The number of types that are too long for their row of characters."""
    return sum(
      len(piece.encode()) > characters.MAX_BYTES for piece in self.pieces
    )

  def predicted(self) -> 'Words':
    """Returns the words of the softmax alone: all other words are unknown."""
    return dataclasses.replace(self, pieces=self.pieces[: self.softmax_size])

  def continuations(self) -> np.ndarray:
    """Returns bool [V]: no word continues another."""
    return np.zeros(self.softmax_size, bool)

  def parts(self, text: str) -> list[str]:
    """Returns the parts whose ids, one after the other, are the text's."""
    return text.split()

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the words with spaces between them."""
    return ' '.join(self.pieces[int(i)] for i in ids)

  def save(self, folder: str | pathlib.Path | epath.Path) -> None:
    """Writes words.txt, a type a line, and the settings into a folder."""
    settings = {
      'type': 'words',
      'softmax_size': self.softmax_size,
      'split': self.split,
    }
    folder = bpe_files.save_settings(folder, settings)
    bpe_files.write_pieces(folder / bpe_files.WORDS_FILE, self.pieces)

  @functools.cached_property
  def tokenizer(self) -> tokenizers.Tokenizer:
    """Made on use: a host that trains on a store encodes nothing."""
    ids = {piece: i for i, piece in enumerate(self.pieces)}
    del ids[characters.SENTENCE_BEGIN], ids[characters.SENTENCE_END]
    tokenizer = tokenizers.Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = _pre_tokenizer(self.split)
    return tokenizer


def load_words(file: epath.Path, settings: Mapping[str, Any]) -> Words:
  """Loads word types, one a line, as `Words.save` or bilm-tf writes them.

  Empty `settings` mean a file from elsewhere: all its words are the softmax's,
  and are found between white space.
  """
  pieces = _read(file)
  size = settings.get('softmax_size') if settings else len(pieces)
  split = settings.get('split') if settings else 'spaces'
  place = file.parent / bpe_files.SETTINGS_FILE if settings else file
  least = bpe_files.FEWEST_WORDS
  if type(size) is not int or not least <= size <= len(pieces):
    raise ValueError(
      f'{place}: softmax_size is {size!r}, expected {least} to'
      f' {len(pieces):,}, the lines of {file}'
    )
  if split not in SPLITS:
    raise ValueError(
      f'{place}: split is {split!r}, expected {" or ".join(map(repr, SPLITS))}'
    )
  return Words(tuple(pieces), size, split)


def _read(file: epath.Path) -> list[str]:
  """Reads and checks word types, line 1 is id 0."""
  pieces = bpe_files.read_pieces(file)
  for number, (found, special) in enumerate(
    itertools.zip_longest(pieces[: len(SPECIALS)], SPECIALS), start=1
  ):
    if found != special:
      what = 'the end' if found is None else repr(found[:60])
      raise ValueError(
        f'{file}, line {number}: found {what}, expected {special!r}: the first'
        f' lines of a vocabulary of words are {" ".join(SPECIALS)}'
      )
  if '' in pieces:
    number = pieces.index('') + 1
    raise ValueError(f'{file}, line {number:,}: empty, expected a word')
  return pieces


def train_words(texts: Iterable[str], softmax_size: int, split: str) -> Words:
  """Collects the word types of a text; equal texts give equal ones.

  `texts` are streamed parts of the text, cut at white space; of more than
  `MAX_TYPES` types the rarest are left out. `softmax_size`, V, includes the
  three symbols; a text of fewer types gives a smaller one.
  """
  counts = _count(texts, split)
  if not counts:
    raise ValueError('there is no text to collect words from')
  pieces = _append(SPECIALS, counts)
  return Words(pieces, min(softmax_size, len(pieces)), split)


def extend_words(words: Words, texts: Iterable[str]) -> Words:
  """Appends a text's word types to the first V types, the softmax's words."""
  predicted = words.pieces[: words.softmax_size]
  counts = _count(texts, words.split)
  return dataclasses.replace(words, pieces=_append(predicted, counts))


def _count(texts: Iterable[str], split: str) -> collections.Counter[str]:
  # A part between white space has mostly been split before.
  find = functools.partial(split_words, split=split)
  find_again = functools.lru_cache(_CACHE_PARTS)(find)

  def words_of(text: str) -> Iterable[str]:
    parts = text.split()
    if split == 'spaces':
      return parts
    return itertools.chain.from_iterable(
      find_again(part) if len(part) <= _CACHE_LETTERS else find(part)
      for part in parts
    )

  counts = word_counts.count_words(map(words_of, texts), MAX_TYPES)
  for special in SPECIALS:
    del counts[special]
  return counts


def _append(first: Sequence[str], counts: Mapping[str, int]) -> tuple[str, ...]:
  """Appends the other types by falling count, ties by code point."""
  new = sorted(counts.keys() - set(first))
  new.sort(key=counts.__getitem__, reverse=True)  # leaves ties as they are
  room = max(0, MAX_TYPES - len(first))
  return (*first, *new[:room])
