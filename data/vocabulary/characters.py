"""Words as rows of character ids: ELMo's input.

As in bilm-tf's `data.py`, in training: a word's UTF-8 bytes between two
symbols, then padding. `<S>` and `</S>` are words of one symbol.
"""

from collections.abc import Sequence

import numpy as np

from data.vocabulary import bpe_files

# Beyond the bytes, 0 to 255.
SENTENCE_BEGIN_ID = 256
SENTENCE_END_ID = 257
WORD_BEGIN_ID = 258
WORD_END_ID = 259
PADDING_ID = 260

MAX_CHARACTERS = 50
MAX_BYTES = MAX_CHARACTERS - 2  # between the symbols that begin and end a word

SENTENCE_BEGIN, SENTENCE_END, _ = bpe_files.WORD_SYMBOLS
_SYMBOLS = {SENTENCE_BEGIN: SENTENCE_BEGIN_ID, SENTENCE_END: SENTENCE_END_ID}


def encode_words(words: Sequence[str]) -> tuple[np.ndarray, int]:
  """Returns the character ids of words, int16 [N, 50], and how many were cut.

  Words are cut after 48 bytes, even inside a character. Lone surrogates, which
  UTF-8 cannot write, are left out; an empty word is its two symbols.
  """
  if isinstance(words, str):
    raise TypeError(
      f'words are the string {words[:50]!r}, expected a list of strings: split'
      ' it first'
    )
  encoded = [word.encode('utf-8', 'ignore') for word in words]
  lengths = np.array([len(letters) for letters in encoded], np.int64)
  is_symbol = np.array([word in _SYMBOLS for word in words], bool)
  num_cut = int((lengths > MAX_BYTES).sum())
  lengths = np.minimum(lengths, MAX_BYTES)

  ids = np.full((len(words), MAX_CHARACTERS), PADDING_ID, np.int16)
  ids[:, 0] = WORD_BEGIN_ID
  letters = b''.join(word[:MAX_BYTES] for word in encoded)
  inside = np.arange(MAX_BYTES) < lengths[:, None]
  ids[:, 1:-1][inside] = np.frombuffer(letters, np.uint8)
  ids[np.arange(len(words)), lengths + 1] = WORD_END_ID
  for row in np.flatnonzero(is_symbol):
    ids[row, 1:] = PADDING_ID
    ids[row, 1:3] = _SYMBOLS[words[row]], WORD_END_ID
  return ids, num_cut
