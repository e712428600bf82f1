"""Vectors of words in sentences are those of train.embed."""

import numpy as np
import pytest
from small_elmo import NEAR, embed_alone, small_elmo

from data.tasks.senses.occurrences import Occurrence
from train.meanings import word_vectors
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

SENTENCES = ['the value of a value', 'it returns a value', 'unspeakable value']
OCCURRENCES = [
  Occurrence(f'line {number}', tuple(text.split()), place)
  for number, text in enumerate(SENTENCES, start=1)
  for place, word in enumerate(text.split())
  if word in ('value', 'unspeakable')
]
PLACES = [(0, 1), (0, 4), (1, 3), (2, 0), (2, 1)]


def test_bert(small_bert):
  weights = TrainedModel(small_bert)
  (pieces,) = weights.tokenizer.encode_words([['unspeakable']])
  assert len(pieces[0]) > 1
  request = Request('word', 'first', choice=Choice('all'))
  expected = list(weights.vectors(SENTENCES, request))
  found = word_vectors.embed(weights, OCCURRENCES)
  assert found.shape == (5, 3, 32)
  for row, (sentence, place) in zip(found, PLACES, strict=True):
    layers = expected[sentence].array[:, place]
    np.testing.assert_allclose(row, layers, atol=1e-5)


def test_elmo(small_elmo_folder):
  found = word_vectors.embed(TrainedModel(small_elmo_folder), OCCURRENCES)
  for row, (sentence, place) in zip(found, PLACES, strict=True):
    layers, _ = embed_alone(*small_elmo(), SENTENCES[sentence].split())
    np.testing.assert_allclose(row, layers[:, place], **NEAR)


def test_a_word_without_pieces_is_named(small_bert):
  nothing = Occurrence('text, line 7', ('a', '\u200b'), 1)
  with pytest.raises(ValueError, match='text, line 7: the tokenizer of .*pie'):
    word_vectors.embed(TrainedModel(small_bert), [*OCCURRENCES, nothing])
