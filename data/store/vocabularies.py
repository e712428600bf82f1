"""The vocabulary of a new store, trained on its text or extended by it."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from data.store import arrays, pool, units
from data.text import languages, sources
from data.vocabulary import tokenization

if TYPE_CHECKING:
  from data.vocabulary.words import Words

# A vocabulary is trained on at most this much text, spread over the source.
VOCABULARY_BYTES = 100_000_000


def train_pieces(
  text: sources.Source,
  training: tokenization.Training,
  exponent: float,
  unit_source: str,
  progress: bool,
) -> tuple[tokenization.Tokenizer, str]:
  """Returns the tokenizer and one line on its training text.

  Each language has p^exponent of the counted words, see `languages.smooth`; of
  a large text, its part of the sample has the same share. `unit_source` is of
  the units, see `units.KINDS`.
  """
  parts = list(text.parts.values()) or [text]
  total = text.num_bytes
  sizes = [max(1, part.num_bytes) for part in parts]
  shares = languages.smooth(sizes, exponent)
  read, used = np.zeros((2, len(parts)), np.int64)  # characters

  def sample() -> Iterator[Any]:
    with arrays.show_progress('vocabulary', text, progress) as update:
      for piece in text.pieces(training.white_space):
        update()
        language = piece.language
        done = parts[language].bytes_read / sizes[language]
        most = VOCABULARY_BYTES * shares[language] * done
        read[language] += len(piece.text)
        if total <= VOCABULARY_BYTES or used[language] <= most:
          used[language] += len(piece.text)
          plain = units.plain(piece.text, unit_source)
          yield (language, plain) if text.parts else plain

  def weigh(language: int, num_words: int) -> float:
    in_text = num_words * read[language] / used[language]
    return in_text**exponent / num_words

  trained = tokenization.train(
    sample(), training, weigh if text.parts else None
  )
  if total <= VOCABULARY_BYTES:
    return trained, 'trained on all of it'
  note = f'trained on {used.sum() / 1e6:.0f} M characters, evenly spaced'
  if progress:
    print(f'vocabulary {note}', file=sys.stderr)
  return trained, note


def collect_words(
  text: sources.Source,
  training: tokenization.Training | None,
  loaded: 'Words | None',
  progress: bool,
) -> tuple['Words', str]:
  """Returns a tokenizer of all the text's words and one line on them.

  Words are counted in sentences to be encoded, as a sentence's end may cut one.
  """
  from data.vocabulary import words

  split = (loaded or training).split

  def texts() -> Iterator[str]:
    with arrays.show_progress('words', text, progress) as update:
      for piece in text.pieces(words.Words.white_space):
        update()
        per_line = piece.sentence_per_line or split == 'spaces'
        yield '\n'.join(pool.find_sentences(piece.text, per_line))

  if loaded is None:
    return tokenization.train(texts(), training), 'counted in all of it'
  extended = words.extend_words(loaded, texts())
  added = extended.vocab_size - loaded.softmax_size
  return extended, f'{added:,} types of it added to a given vocabulary'
