"""Whole words as an ELMo reads them: a number each, and its characters."""

from collections.abc import Sequence

import numpy as np

from data.vocabulary import characters
from data.vocabulary.words import split_words


class WordNumbers:
  """The distinct words of a set, numbered as they come.

  In a tokenizer's place: it gives a number a word. Those of `<S>` and `</S>`,
  which stand at the ends of a row, are always there.
  """

  begin_id = 0
  end_id = 1
  unk_id = None  # every word has a number

  def __init__(self) -> None:
    """Begins with the two symbols."""
    self._numbers = {characters.SENTENCE_BEGIN: 0, characters.SENTENCE_END: 1}

  def encode_words(
    self, sentences: Sequence[Sequence[str]]
  ) -> list[list[list[int]]]:
    """Returns the number of each word of sentences, in a list of its own."""
    return [[[self._number(word)] for word in words] for words in sentences]

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns the numbers of each text's words, marks and clitics apart."""
    return [
      [self._number(word) for word in split_words(text, 'marks')]
      for text in texts
    ]

  def characters(self) -> np.ndarray:
    """Returns int16 [W, 50]: the characters of each word that has a number."""
    return characters.encode_words(list(self._numbers))[0]

  def _number(self, word: str) -> int:
    return self._numbers.setdefault(word, len(self._numbers))
