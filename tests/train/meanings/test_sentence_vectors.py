"""Pooled vectors of sentences against transformers, and the other command."""

import numpy as np
import pytest
import transformers
from small_gpt import small_trained

from train.meanings import sentence_vectors
from train.vectors import neighbours
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

PAIRS = [
  ('the value of a class', 'a class has a value'),
  ('it', 'the function returns a list of the names of all classes'),
  ('the same', 'the same'),
]


def cosine(one, other):
  return (
    (one * other).sum(-1)
    / np.linalg.norm(one, axis=-1)
    / np.linalg.norm(other, axis=-1)
  )


def pools_of(layers_LTD):
  return np.stack(
    [
      layers_LTD[:, 0],
      layers_LTD.mean(1),
      layers_LTD.max(1),
      layers_LTD[:, -1],
    ]
  )


def test_bert(small_bert, torch, monkeypatch):
  monkeypatch.setattr(sentence_vectors, 'PAIRS_AT_ONCE', 2)
  found = TrainedModel(small_bert)
  model = transformers.BertModel.from_pretrained(small_bert).eval()

  def pooled(text):
    (ids,) = found.encode([text])
    ids = [found.tokenizer.cls_id, *ids, found.tokenizer.sep_id]
    with torch.no_grad():
      outputs = model(torch.tensor([ids]), output_hidden_states=True)
    return pools_of(np.concatenate([x.numpy() for x in outputs.hidden_states]))

  result = sentence_vectors.compare(found, PAIRS)
  assert (result.pools, result.num_cut) == (('cls', 'mean', 'max', 'last'), 0)
  for values, pair in zip(result.values, PAIRS, strict=True):
    expected = cosine(*map(pooled, pair))
    assert values.shape == (4, 3)
    np.testing.assert_allclose(values, expected, atol=1e-5)
  for place, pool in enumerate(('cls', 'mean')):
    request = Request(pool=pool, normalize=True)
    top = list(neighbours.compare(found, PAIRS, request))
    np.testing.assert_allclose(result.values[:, place, -1], top, atol=1e-5)


@pytest.fixture(scope='module')
def small_gpt2():
  return small_trained(max_length=32)


def test_gpt2(small_gpt2):
  result = sentence_vectors.compare(small_gpt2, [*PAIRS, ('', 'a text')])
  assert (result.pools, result.num_cut) == (('mean', 'max', 'last'), 0)
  for place, pool in ((0, 'mean'), (2, 'last')):
    request = Request(pool=pool, normalize=True)
    top = list(neighbours.compare(small_gpt2, PAIRS, request))
    np.testing.assert_allclose(result.values[:3, place, -1], top, atol=1e-5)
  assert not result.values[3].any()  # no token, no vector
  np.testing.assert_allclose(result.values[2], 1, atol=1e-6)


def test_texts_beyond_the_positions_lose_their_end(small_gpt2):
  text = PAIRS[1][1] * 2
  (ids,) = small_gpt2.encode([text])
  assert len(ids) > 32
  start = small_gpt2.tokenizer.decode(ids[:32])
  assert small_gpt2.encode([start]) == [ids[:32]]
  long, short = (
    sentence_vectors.compare(small_gpt2, [(each, 'a')])
    for each in (text, start)
  )
  assert (long.num_cut, short.num_cut) == (1, 0)
  np.testing.assert_allclose(long.values, short.values, atol=1e-6)
