"""Whole words for ELMo: the number and the characters of each."""

from collections.abc import Sequence

import numpy as np

from data.vocabulary import characters


class WordNumbers:
  """A tokenizer that numbers the distinct words of a set by first use."""

  begin_id = 0
  end_id = 1
  unk_id = None  # every word has a number

  def __init__(self, split: str = 'marks') -> None:
    """Creates the numbers of the two symbols; `split` is of `split_words`."""
    self._split = split
    self._numbers = {characters.SENTENCE_BEGIN: 0, characters.SENTENCE_END: 1}

  def encode_words(
    self, sentences: Sequence[Sequence[str]]
  ) -> list[list[list[int]]]:
    """Returns the numbers of each sentence's words, one list a word."""
    return [[[self._number(word)] for word in words] for words in sentences]

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns the numbers of each text's words; see `words.split_words`."""
    from data.vocabulary.words import split_words

    return [
      [self._number(word) for word in split_words(text, self._split)]
      for text in texts
    ]

  def encode_with_spans(
    self, texts: Sequence[str]
  ) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Returns each text's numbers, and the words' (begin, end) in the text."""
    from data.vocabulary.words import split_with_spans

    encoded = []
    for text in texts:
      found = split_with_spans(text, self._split)
      encoded.append(
        (
          [self._number(word) for word, _, _ in found],
          [(begin, end) for _, begin, end in found],
        )
      )
    return encoded

  @property
  def words(self) -> tuple[str, ...]:
    """The words by their numbers."""
    return tuple(self._numbers)

  def characters(self) -> np.ndarray:
    """Returns the characters of the words by their numbers, int16 [W, 50]."""
    return characters.encode_words(list(self._numbers))[0]

  def _number(self, word: str) -> int:
    return self._numbers.setdefault(word, len(self._numbers))
