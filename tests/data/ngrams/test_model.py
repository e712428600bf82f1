"""Queries of back-off models, against KenLM's scores of our ARPA files."""

import json
import pathlib

import numpy as np
import pytest
from ngram_texts import count_lines

from data.ngrams import smoothing
from data.ngrams.counts import BEGIN, END, UNKNOWN
from data.ngrams.model import Level, Model, lookup, perplexity

# Made by tests/bench/ngrams/kenlm_scores.py.
KENLM = json.loads(
  pathlib.Path(__file__).with_name('kenlm_scores.json').read_text()
)


@pytest.fixture(scope='module')
def counted(tmp_path_factory):
  return count_lines(tmp_path_factory.mktemp('kenlm'), KENLM['text'], 3)


@pytest.mark.parametrize('name', smoothing.METHODS)
def test_log_probabilities_are_kenlms(counted, name):
  model = smoothing.METHODS[name](*counted, 3)
  # All texts one after the other, as in a block of a file.
  ids = [
    [BEGIN, *(model.ids.get(word, UNKNOWN) for word in line.split()), END]
    for line in KENLM['test']
  ]
  ids = np.concatenate(ids)
  found = model.log_probs(ids, ids == BEGIN)[ids != BEGIN] / np.log(10)
  expected = np.concatenate(KENLM['scores'][name])
  impossible = expected < -90
  assert np.isneginf(found[impossible]).all()
  np.testing.assert_allclose(
    found[~impossible], expected[~impossible], atol=1e-4
  )
  assert (~impossible).sum() > 50


def test_long_texts_are_scored_in_parts(counted, monkeypatch):
  model = smoothing.modified_kneser_ney(*counted, 3)
  ids = np.random.default_rng(0).integers(2, len(model.words), 200)
  starts = np.arange(200) % 60 == 0
  whole = model.log_probs(ids, starts)
  monkeypatch.setattr('data.ngrams.model._WORDS', 7)
  np.testing.assert_array_equal(model.log_probs(ids, starts), whole)


def test_a_weight_counts_without_longer_ngrams():
  """p(c | a b) = weight(a b) weight(b) p(c), by hand."""
  half = np.full(6, -0.5, np.float32)
  weights = np.array([0, 0, 0, -0.1, -0.2, 0], np.float32)
  one = Level(np.arange(6), half, weights)
  two = Level(
    np.array([3 * 6 + 4]), np.array([-0.25]), np.array([-0.4], np.float32)
  )
  three = Level(np.array([0 * 6 + 3]), np.array([-0.01]), np.zeros(1))
  model = Model(('<unk>', '<s>', '</s>', 'a', 'b', 'c'), (one, two, three))
  ids, starts = np.array([3, 4, 5, 4]), np.array([True, False, False, False])
  found = model.log_probs(ids, starts) / np.log(10)
  np.testing.assert_allclose(found, [-0.5, -0.25, -1.1, -0.5], rtol=1e-6)


def test_lookup_and_perplexity():
  keys = np.array([2, 5, 9])
  assert lookup(keys, np.array([9, 1, 5, 10])).tolist() == [2, -1, 1, -1]
  assert lookup(keys[:0], np.array([1])).tolist() == [-1]
  assert perplexity(np.log([0.5, 0.125])) == pytest.approx(4)
  assert perplexity(np.array([-np.inf, -1.0])) == np.inf
