"""Contextual vectors of all pieces of words, computed once and kept on disk.

As `word_cache`, of a BERT, GPT or GPT-2 with a vector for each piece of a word;
to an ELMo words are the pieces. Layer 0 knows nothing of a piece's place, as an
ELMo's.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from etils import epath

from models import features
from train.vectors import text_vectors, vector_files, word_cache
from train.vectors.request import Choice, Request
from train.vectors.word_cache import Source

REQUEST = Request('token', choice=Choice('all'))
LAYERS = 'pieces, layer 0 without positions'  # in the names of the files


class _PiecesOfWords:
  """A tokenizer whose texts are lists of words."""

  def __init__(self, tokenizer: Any):
    self._tokenizer = tokenizer

  def __getattr__(self, name: str) -> Any:
    return getattr(self._tokenizer, name)

  def encode_batch(
    self, sentences: Sequence[Sequence[str]], **options: Any
  ) -> list[list[int]]:
    """Returns the ids of each sentence's words; symbols are words to it."""
    del options
    encoded = self._tokenizer.encode_words(sentences)
    return [sum(ids, []) for ids in encoded]


@dataclasses.dataclass(frozen=True)
class PieceSource(Source):
  """Weights that give vectors of the pieces of words."""

  unit: ClassVar[str] = 'piece'

  def count_rows(self, sentences: Sequence[Sequence[str]]) -> list[int]:
    """Returns how many vectors each sentence has: one a piece."""
    return [sum(counts) for counts in count_pieces(self, sentences)]

  def compute(
    self, sentences: Sequence[Sequence[str]]
  ) -> Iterator[tuple[int, vector_files.VectorFile]]:
    """Yields (number of a sentence, its vectors [L, pieces, D]), in any order.

    Layer 0 is each piece's own vector, see `features.token_vectors`.
    """
    tokenizer = _PiecesOfWords(self.weights.tokenizer)
    weights = self.weights._replace(tokenizer=tokenizer)
    own_VD = np.asarray(features.token_vectors(weights.model, weights.params))
    ids = tokenizer.encode_batch(sentences)
    for number, found in text_vectors.embed_numbered(
      weights, sentences, REQUEST
    ):
      found.array[0] = own_VD[ids[number]]
      yield number, found


def open_source(
  weights: epath.PathLike, tokenizer: epath.PathLike | None = None
) -> Source:
  """Opens weights as `word_cache.open_source` does, for vectors of pieces."""
  source = word_cache.open_source(weights, tokenizer)
  if source.reads_words:
    return source
  digest = hashlib.sha256(f'{LAYERS} of {source.digest}'.encode()).hexdigest()
  return PieceSource(source.weights, digest)


def count_pieces(
  source: Source, sentences: Sequence[Sequence[str]]
) -> list[list[int]]:
  """Returns how many pieces each word of sentences has."""
  if source.reads_words:
    return [[1] * len(words) for words in sentences]
  encoded = source.weights.tokenizer.encode_words(sentences)
  return [[len(ids) for ids in words] for words in encoded]
