"""Blocks: in a loop, unrolled and rematerialised they compute the same."""

import functools

import bert_cases
import gpt_cases
import jax
import pytest
from flax import linen as nn


@pytest.mark.parametrize('scan_layers', [True, False])
def test_layers_scanned_unrolled_and_rematerialised_agree(scan_layers):
  """With dropout on: the same masks, forwards and backwards."""
  batch, rng = bert_cases.make_batch(), jax.random.key(5)
  plain = bert_cases.make_model()
  params = bert_cases.init_params()
  _, _, losses, gradient = bert_cases.run(plain, params, batch, rng)
  others = [bert_cases.make_model(remat=True, scan_layers=scan_layers)]
  if not scan_layers:
    others.append(bert_cases.make_model(scan_layers=False))
  for model in others:
    _, _, losses_o, gradient_o = bert_cases.run(model, params, batch, rng)
    bert_cases.assert_close(losses_o, losses, 2e-6)
    bert_cases.assert_close(gradient_o, gradient, 5e-6)
  _, _, losses_e, _ = bert_cases.run(plain, params, batch)
  assert abs(losses_e['mlm'] - losses['mlm']) > 1e-3  # there was dropout
  _, _, losses_d, _ = bert_cases.run(plain, params, batch, jax.random.key(6))
  assert abs(losses_d['mlm'] - losses['mlm']) > 1e-3


def test_unrolling_leaves_no_loop_and_the_same_parameters():
  batch = bert_cases.make_batch()
  texts, shapes = {}, {}
  for scan_layers in (True, False):
    model = bert_cases.make_model(scan_layers=scan_layers)
    initial = functools.partial(model.init, train=False)
    args = [batch[k] for k in bert_cases.INPUTS]
    shapes[scan_layers] = jax.eval_shape(initial, jax.random.key(0), *args)
    texts[scan_layers] = bert_cases.run.lower(
      model, nn.meta.unbox(shapes[scan_layers]['params']), batch
    ).as_text()
  assert 'stablehlo.while' in texts[True]
  assert 'stablehlo.while' not in texts[False]
  assert shapes[True] == shapes[False]


@pytest.mark.parametrize(
  'pre_norm, fields',
  [
    (False, dict(remat=True)),
    (True, dict(scan_layers=False)),
  ],
)
def test_layers_of_gpt_agree_too(pre_norm, fields):
  """With dropout on: the same masks, forwards and backwards."""
  batch, rng = gpt_cases.make_batch(), jax.random.key(5)
  params = gpt_cases.init_params(pre_norm)
  plain = gpt_cases.make_model(pre_norm=pre_norm)
  _, _, loss, gradient = gpt_cases.run(plain, params, batch, rng)
  model = plain.clone(**fields)
  _, _, loss_o, gradient_o = gpt_cases.run(model, params, batch, rng)
  assert abs(loss_o - loss) < 2e-6
  bert_cases.assert_close(gradient_o, gradient, 5e-6)
  _, _, loss_e, _ = gpt_cases.run(plain, params, batch)
  assert abs(loss_e - loss) > 1e-3  # there was dropout
