"""Counted words: what a vocabulary is trained on, in bounded memory."""

import collections
from collections.abc import Iterable, Iterator, Mapping


def count_words(
  texts: Iterable[Iterable[str]], most: int
) -> collections.Counter[str]:
  """Counts words; of more than `most` different ones the rarest are forgotten.

  Args:
    texts: the words of each text.
    most: words that are kept.
  """
  words = collections.Counter()
  least = 1
  for text in texts:
    words.update(text)
    while len(words) > most:
      for word in [word for word, n in words.items() if n <= least]:
        del words[word]
      least += len(words) > most // 2
  return words


def count_letters(words: Mapping[str, int]) -> collections.Counter[str]:
  """Returns how often each letter stands in counted words."""
  letters = collections.Counter()
  for word, count in words.items():
    for letter in word:
      letters[letter] += count
  return letters


def most_frequent(counts: Mapping[str, int], number: int) -> list[str]:
  """Returns the most frequent ones, in the order of their code points."""
  by_count = sorted(counts, key=lambda item: (-counts[item], item))
  return sorted(by_count[:number])


def repeat(words: Mapping[str, int]) -> Iterator[str]:
  """Writes counted words as text, a bounded part at a time."""
  for word, count in words.items():
    for start in range(0, count, 10_000):
      yield (word + ' ') * min(10_000, count - start)
