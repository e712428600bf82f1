"""Stores of random token ids, to cut windows from."""

import pathlib
import types

import numpy as np


def make_store(
  folder, sizes, held_out=None, digest='0' * 64, language_bounds=None
):
  """A store whose documents have sentences of these sizes.

  A token's id is its place, so that any text tells where it comes from. Its
  languages, between bounds in documents, are 'l0', 'l1' ...
  """
  language_bounds = np.array(language_bounds or [0, len(sizes)])
  sentences = np.cumsum([0, *(size for document in sizes for size in document)])
  documents = np.cumsum([0, *(len(document) for document in sizes)])
  return types.SimpleNamespace(
    folder=pathlib.Path(folder),
    meta={'digest': digest},
    tokens=np.arange(sentences[-1]).astype(np.uint32),
    sentences=sentences.astype(np.int64),
    documents=documents.astype(np.int64),
    held_out=np.array(held_out or [False] * len(sizes)),
    languages=tuple(f'l{i}' for i in range(len(language_bounds) - 1)),
    language_bounds=language_bounds,
  )


def draw_sizes(seed, num_documents, mean_sentences=8, mean_size=9):
  rng = np.random.default_rng(seed)
  return [
    rng.geometric(1 / mean_size, rng.geometric(1 / mean_sentences)).tolist()
    for _ in range(num_documents)
  ]
