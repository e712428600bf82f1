"""Counted words, the training data of vocabularies, in bounded memory."""

import collections
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

# Letters of a new vocabulary, unless the text needs more: as in English text.
USUAL_LETTERS = 1000
# Letters that make up this share of a text suffice: SentencePiece's default
# (Kudo and Richardson 2018). Chinese has as many as 4,000.
COVERAGE = 0.9995
# Other letters take at most this share of the vocabulary: pieces remain.
LETTER_SHARE = 0.75


def count_words(
  texts: Iterable[Iterable[str]],
  most: int,
  forgotten: collections.Counter[str] | None = None,
) -> collections.Counter[str]:
  """Counts words; of more than `most` different ones the rarest are forgotten.

  `forgotten` gets the letters of the forgotten words.
  """
  words = collections.Counter()
  least = 1
  for text in texts:
    words.update(text)
    while len(words) > most:
      rare = {word: n for word, n in words.items() if n <= least}
      if forgotten is not None:
        forgotten.update(count_letters(rare))
      for word in rare:
        del words[word]
      least += len(words) > most // 2
  return words


Weigh = Callable[[int, int], float]


def count_texts(
  texts: Iterable[Any],
  find_words: Callable[[str], Iterable[str]],
  most: int,
  forgotten: collections.Counter[str] | None = None,
  weigh: Weigh | None = None,
) -> collections.Counter[str]:
  """Counts the words of texts; see `count_words`.

  With `weigh`, texts are pairs of a language's number and a text, one language
  after the other. `weigh`, called after a language's last text with its number
  and the number of words counted, gives the weight of each of them. Weights
  count relative to the smallest: no word becomes too rare to be learnt.
  """
  if weigh is None:
    return count_words(map(find_words, texts), most, forgotten)
  words, letters, weights = {}, {}, []
  for language, group in itertools.groupby(texts, key=lambda pair: pair[0]):
    lost = collections.Counter()
    found = count_words((find_words(text) for _, text in group), most, lost)
    if not found:
      continue
    weights.append(weigh(language, found.total()))
    for sums, counts in ((words, found), (letters, lost)):
      for item, count in counts.items():
        sums[item] = sums.get(item, 0) + weights[-1] * count
    if len(words) > most:
      kept = set(heapq.nsmallest(most, words, key=lambda w: (-words[w], w)))
      for word in words.keys() - kept:
        count = words.pop(word)
        for letter in word:
          letters[letter] = letters.get(letter, 0) + count
  least = min(weights, default=1)
  if forgotten is not None:
    forgotten.update({a: round(count / least) for a, count in letters.items()})
  return collections.Counter({w: round(n / least) for w, n in words.items()})


def count_letters(words: Mapping[str, int]) -> collections.Counter[str]:
  """Returns how often each letter stands in counted words."""
  letters = collections.Counter()
  for word, count in words.items():
    for letter in word:
      letters[letter] += count
  return letters


def by_frequency(counts: Mapping[str, int]) -> list[str]:
  """Returns the counted strings by falling frequency, ties by code point."""
  return sorted(counts, key=lambda item: (-counts[item], item))


def fill(pieces: Sequence[str], more: Iterable[str], size: int) -> list[str]:
  """Returns the pieces, then others up to `size` in all, each once."""
  filled = dict.fromkeys(pieces)
  for piece in more:
    if len(filled) >= size:
      break
    filled.setdefault(piece)
  return list(filled)


def choose_letters(
  usual: Iterable[str],
  letters: Mapping[str, int],
  pieces_of: Callable[[str], int],
  vocab_size: int,
) -> list[str]:
  """Returns the letters of a new vocabulary in the order of their code points.

  The `usual` letters are always in, and suffice if they make up `COVERAGE` of
  the text, counted in `letters`; else others follow by falling frequency. Each
  takes `pieces_of(letter)` pieces, others `LETTER_SHARE` of the pieces at most.
  """
  chosen = set(usual)
  covered = sum(letters[letter] for letter in chosen)
  enough = COVERAGE * sum(letters.values())
  room = LETTER_SHARE * vocab_size - sum(map(pieces_of, chosen))
  for letter in by_frequency(letters):
    if letter in chosen:
      continue
    room -= pieces_of(letter)
    if covered >= enough or room < 0:
      break
    chosen.add(letter)
    covered += letters[letter]
  return sorted(chosen)


def repeat(words: Mapping[str, int]) -> Iterator[str]:
  """Writes counted words as text, a bounded part at a time."""
  for word, count in words.items():
    for start in range(0, count, 10_000):
      yield (word + ' ') * min(10_000, count - start)
