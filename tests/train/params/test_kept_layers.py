"""A model begins with some of the layers of given weights."""

import pydoc_data.topics

import jax
import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from models.pretrained import strict
from train.params import kept_layers, opened
from train.run import settings


def config_of(**changes):
  config = settings.load_config('transfer:task=sst2')
  changes = {key.replace('__', '.'): value for key, value in changes.items()}
  return settings.with_overrides(config, changes)


@pytest.mark.parametrize(
  ('asked', 'num_layers', 'rows'),
  [
    ('every:2', 6, [0, 2, 4]),
    ('every:2', 5, [0, 2, 4]),
    ('every:4', 12, [0, 4, 8]),
    ('every:1', 2, [0, 1]),
    ('first:3', 6, [0, 1, 2]),
    ('0,2,4,7,9,11', 12, [0, 2, 4, 7, 9, 11]),  # DistilBERT's
    ('5', 6, [5]),
    ('all', 3, [0, 1, 2]),
  ],
)
def test_the_named_layers_are_found(asked, num_layers, rows):
  assert kept_layers.find_layers(asked, num_layers) == rows


@pytest.mark.parametrize(
  'asked',
  ['every:0', 'first:7', 'last:2', '6', '2,1', '1,1', '', '1-3', 'first:-1'],
)
def test_other_texts_are_refused(asked):
  with pytest.raises(ValueError, match='init.layers=.*layers of the weights'):
    kept_layers.find_layers(asked, 6)


@pytest.mark.parametrize('asked', ['1', 'all'])
def test_parameters_are_those_of_the_layers(small_bert, asked):
  weights = opened.open_weights(small_bert)
  config = config_of(init__layers=asked)
  kept = kept_layers.keep(weights, config)
  rows = kept_layers.find_layers(asked, weights.model.num_layers)
  assert kept.model.num_layers == len(rows)
  before, after = map(strict.flatten, (weights.load(), kept.load()))
  assert before.keys() == after.keys() == kept.shapes.keys()
  for path, leaf in after.items():
    assert kept.shapes[path].shape == leaf.shape
    expected = np.asarray(before[path])
    if path.startswith('layers/'):
      expected = expected[rows]
    np.testing.assert_array_equal(leaf, expected)


def test_its_first_layer_computes_what_it_did(small_bert):
  weights = opened.open_weights(small_bert)
  kept = kept_layers.keep(weights, config_of(init__layers='first:1'))
  ids = np.array([[2, 7, 9, 3]], np.int32)
  inputs = ids, ids > 0, 0 * ids, np.arange(4, dtype=np.int32)[None]

  def hidden(found, layer):
    model = found.model.clone(heads=())
    outputs = jax.jit(
      lambda params: model.apply(
        {'params': params}, *inputs, train=False, all_layers=True
      )
    )(found.load())
    return outputs['layers'][layer]

  np.testing.assert_allclose(hidden(kept, -1), hidden(weights, 1), atol=1e-6)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'init.layers': 'first:9'}, "init.layers='first:9': expected"),
    (
      {'init.layers': 'every:2', 'model.embed_dim': 768},
      "model.embed_dim=768: init.layers='every:2' takes layers of .*32",
    ),
    (
      {'init.layers': 'first:1', 'model.num_layers': 12},
      'model.num_layers=12: .* is then 1',
    ),
  ],
)
def test_what_does_not_fit_is_refused(small_bert, changes, message):
  config = settings.with_overrides(config_of(), changes)
  with pytest.raises(ValueError, match=message):
    kept_layers.keep(opened.open_weights(small_bert), config)


def test_an_elmo_has_no_layers_to_take(small_elmo_folder):
  weights = opened.open_weights(small_elmo_folder)
  with pytest.raises(ValueError, match='only of a BERT or a GPT'):
    kept_layers.keep(weights, config_of(init__layers='every:2'))


def test_layers_that_compute_by_their_place_stay_there(small_bert):
  weights = opened.open_weights(small_bert)
  modern = weights._replace(model=weights.model.clone(norm='pre'))
  with pytest.raises(ValueError, match="layers='1': .* computes by its place"):
    kept_layers.keep(modern, config_of(init__layers='1'))
  kept = kept_layers.keep(modern, config_of(init__layers='first:1'))
  assert kept.model.num_layers == 1
  # Rows of one layer would see a window, of another all.
  local = weights._replace(model=weights.model.clone(window=4))
  with pytest.raises(ValueError, match='some layers see a window'):
    kept_layers.keep(local, config_of(init__layers='1'))


def test_a_gpt_2_is_alike_in_all_layers(tmp_path):
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training('train:bytebpe:300'),
  )
  small_published.write_gpt(tmp_path, tokenizer, n_layer=2)
  weights = opened.open_weights(tmp_path)
  assert weights.model.norm == 'pre'
  kept = kept_layers.keep(weights, config_of(init__layers='every:2'))
  assert kept.model.num_layers == 1
