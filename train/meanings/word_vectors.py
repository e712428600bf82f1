"""Vectors of chosen words of sentences, by any family that gives vectors.

Shapes: N occurrence, L layer with the embeddings, D = 2 P of an ELMo.
"""

from collections.abc import Sequence

import numpy as np

from data.tasks.senses.occurrences import Occurrence
from train.host import console
from train.vectors.trained_model import TrainedModel


def embed(found: TrainedModel, occurrences: Sequence[Occurrence]) -> np.ndarray:
  """Returns the vectors of words in their sentences, float32 [N, L, D].

  They are those of `train.embed` by word: of a word's first piece by a BERT,
  and of its last by a model that reads from left to right. Each sentence is
  read once. Raises ValueError for a word without pieces.
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
  return vectors_NLD
