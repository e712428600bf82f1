"""Vectors of words by models: without contexts, and their means over them."""

import numpy as np
import pytest
from small_elmo import NEAR, embed_alone, small_elmo

from models import features
from train.meanings.words import model_vectors
from train.params import opened
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

TEXT = 'The value of a value.\nnothing else\n\nit returns a VALUE\n'
WORDS = ['value', 'unspeakable', 'returns', '\u200b', 'it']


@pytest.fixture
def text(tmp_path):
  path = tmp_path / 'text.txt'
  path.write_text(TEXT)
  return path


@pytest.fixture(scope='module', params=['small_bert', 'small_gpt2'])
def weights(request):
  """Open weights of a BERT, and of a GPT-2 with byte-level pieces."""
  if request.param == 'small_bert':
    folder = request.getfixturevalue('small_bert')
    return TrainedModel(folder)
  from small_gpt import small_trained

  return small_trained(max_length=32)


def test_pieces_without_context(weights):
  found = model_vectors.without_context(weights, WORDS, 4)
  table_VD = np.asarray(features.token_vectors(weights.model, weights.params))
  words = [word for word in WORDS if word in found.words]
  assert found.words == tuple(words) and 'unspeakable' in words
  assert found.num_first == len(words) - 1
  for row, word in enumerate(found.words):
    (ids,) = weights.tokenizer.encode_words([['a', word]])
    mean = table_VD[ids[1]].mean(axis=0)
    np.testing.assert_allclose(found.layers[0, row], mean, **NEAR)


def test_a_word_without_pieces_is_unknown(small_bert):
  (weights,) = model_vectors.open_models([str(small_bert)], None)
  found = model_vectors.without_context(weights, [*WORDS, '\u4e2d'], 6)
  assert found.words == ('value', 'unspeakable', 'returns', 'it')
  assert found.num_first == 4


def test_means_over_contexts(weights, text):
  found = model_vectors.in_contexts(weights, WORDS, 3, text)
  assert found.words == ('value', 'returns', 'it') and found.num_first == 2
  sentences = [
    ['The', 'value', 'of', 'a', 'value', '.'],
    ['it', 'returns', 'a', 'VALUE'],
  ]
  request = Request('word', 'mean', choice=Choice('all'), split=list)
  one, other = (each.array for each in weights.vectors(sentences, request))
  mean = (one[:, 1] + one[:, 4] + other[:, 3]) / 3
  np.testing.assert_allclose(found.layers[1:, 0], mean[1:], atol=1e-5)
  np.testing.assert_allclose(found.layers[1:, 1], other[1:, 1], atol=1e-5)
  alone = model_vectors.without_context(weights, ['value'], 1)
  np.testing.assert_array_equal(found.layers[0, 0], alone.layers[0, 0])
  assert found.names == ('0 (embeddings)', '1', '2')[: len(found.layers)]


def test_elmo(small_elmo_folder, text):
  (weights,) = model_vectors.open_models([str(small_elmo_folder)], None)
  found = model_vectors.without_context(weights, WORDS, 5)
  assert found.words == tuple(WORDS)
  layers, _ = embed_alone(*small_elmo(), ['it', 'unspeakable'])
  half = layers.shape[-1] // 2
  np.testing.assert_allclose(found.layers[0, 1], layers[0, 1, :half], **NEAR)
  found = model_vectors.in_contexts(weights, WORDS, 5, text)
  layers, _ = embed_alone(*small_elmo(), 'it returns a VALUE'.split())
  assert found.words == ('value', 'returns', 'it')
  np.testing.assert_allclose(found.layers[:, 1], layers[:, 1], **NEAR)


def test_a_text_without_the_words(small_elmo_folder, text):
  weights = opened.open_weights(str(small_elmo_folder))
  (weights,) = model_vectors.open_models([weights], None)
  with pytest.raises(ValueError, match='text.txt: found none of the 2 words'):
    model_vectors.in_contexts(weights, ['other', 'words'], 2, text)
