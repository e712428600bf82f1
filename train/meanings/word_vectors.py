"""Vectors of chosen words of sentences, by any family that gives vectors.

Shapes: N occurrence, L layer with the embeddings, D = 2 P of an ELMo.
"""

from collections.abc import Sequence

import numpy as np

from data.tasks.senses.occurrences import Occurrence
from models import features
from train.host import console
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel


def embed(
  found: TrainedModel,
  occurrences: Sequence[Occurrence],
  *,
  positions: bool = True,
) -> np.ndarray:
  """Returns the vectors of words in their sentences, float32 [N, L, D].

  They are those of `train.embed` by word: of a word's first piece by a BERT,
  and of its last by a model that reads from left to right. Each sentence is
  read once. Without `positions` layer 0 is the piece's own vector, which knows
  neither its place nor its type, as an ELMo's layer 0. Raises ValueError for a
  word without pieces.
  """
  rows_of: dict[tuple[str, ...], list[int]] = {}
  for row, occurrence in enumerate(occurrences):
    rows_of.setdefault(occurrence.words, []).append(row)
  sentences = list(rows_of)
  shape = len(occurrences), found.num_layers, found.dim
  vectors_NLD = np.zeros(shape, np.float32)
  numbered = found.words(sentences)
  for number, each in console.counted(numbered, len(sentences), 'sentences'):
    for row in rows_of[sentences[number]]:
      vectors_NLD[row] = each.array[:, occurrences[row].place]
  empty = np.flatnonzero(~vectors_NLD.any(axis=(1, 2)))
  if len(empty):
    where, words, place = occurrences[empty[0]]
    raise ValueError(
      f'{where}: the tokenizer of {found.folder} has no pieces for the word'
      f' {words[place]!r}'
    )
  if not (positions or found.reads_words):
    vectors_NLD[:, 0] = _own_vectors(found, occurrences)
  return vectors_NLD


def _own_vectors(
  found: TrainedModel, occurrences: Sequence[Occurrence]
) -> np.ndarray:
  """Returns the rows of the words' pieces, float32 [N, D]."""
  own_VD = np.asarray(features.token_vectors(found.model, found.params))
  both_ways = found.family.reads_both_ways(found.model)
  place = -1 if Request('word').pool_of(found.name, both_ways) == 'last' else 0
  encoded = found.tokenizer.encode_words([words for _, words, _ in occurrences])
  return np.stack(
    [
      own_VD[pieces[each.place][place]]
      for pieces, each in zip(encoded, occurrences, strict=True)
    ]
  )
