"""The LSTM with coupled gates against a plain loop."""

import functools

import jax
import numpy as np
from flax import linen as nn

from models import dropout
from models.elmo_tasks.coref import coupled_lstm

D, F, RATE = 3, 2, 0.25
# The sentences of the words of rows; -1 at padding.
SENTENCES = np.array(
  [[5, 5, 5, 6, -1], [-1, -1, -1, -1, -1], [0, 0, 1, 1, 1]], 'i4'
)
MASK = SENTENCES >= 0
X = np.random.default_rng(0).normal(size=(*MASK.shape, D)).astype('f4')
MODEL = coupled_lstm.CoupledBiLstm(2, F, RATE)


def make_params():
  shapes = nn.unbox(
    jax.eval_shape(
      functools.partial(MODEL.init, train=False),
      jax.random.key(0),
      X,
      SENTENCES,
    )['params']
  )
  rng = np.random.default_rng(1)
  return jax.tree.map(lambda p: rng.normal(0, 1, p.shape).astype('f4'), shapes)


def kept(shape):
  """Stands for random masks of dropout of outputs."""
  return (np.arange(np.prod(shape)).reshape(shape) % 4 > 0) / (1 - RATE)


def keep(seeds, rows, columns, rate):
  """Stands for masks of hidden states, by sentence and feature."""
  return (rows + columns) % 4 > 0


def run(params, x):
  """The layers word by word, [rows, T, 2 F], 0 at padding."""

  def sigmoid(x):
    return 1 / (1 + np.exp(-x))

  def read(layer, direction, words, sentence):
    p = {name: value[direction] for name, value in layer.items()}
    cell, hidden = p['initial_cell'], p['initial_hidden']
    drop = keep(None, sentence, np.arange(F), RATE) / (1 - RATE)
    outputs = []
    for word in words:
      gates = [
        word @ p['input_kernel'][:, g]
        + (drop * hidden) @ p['recurrent_kernel'][:, g]
        + p['bias'][g]
        for g in range(3)
      ]
      write = sigmoid(gates[0])
      cell = (1 - write) * cell + write * np.tanh(gates[1])
      hidden = np.tanh(cell) * sigmoid(gates[2])
      outputs.append(hidden)
    return outputs

  found = np.zeros((*MASK.shape, 2 * F))
  for sentence in range(7):
    here = SENTENCES == sentence
    words = [*x[here]]
    for i in range(2):
      layer = params[f'layer_{i}']
      forward = read(layer, 0, words, sentence)
      backward = read(layer, 1, words[::-1], sentence)[::-1]
      drops = kept(found.shape)[here]
      outputs = [
        drop * np.concatenate(both)
        for drop, *both in zip(drops, forward, backward, strict=True)
      ]
      if i:
        p = params['highway_1']
        gates = [sigmoid(y @ p['kernel'] + p['bias']) for y in outputs]
        outputs = [
          g * y + (1 - g) * w
          for g, y, w in zip(gates, outputs, words, strict=True)
        ]
      words = outputs
    if words:
      found[here] = words
  return found


def test_equals_a_plain_loop_with_its_gradient(monkeypatch):
  monkeypatch.setattr(dropout, 'apply', lambda rng, x, rate: x * kept(x.shape))
  monkeypatch.setattr(dropout, 'is_kept', keep)
  params = make_params()
  weights = np.random.default_rng(2).normal(size=(*MASK.shape, 2 * F))

  def ours(params, x):
    outputs = MODEL.apply(
      {'params': params},
      x,
      SENTENCES,
      train=True,
      rngs={'dropout': jax.random.key(0)},
    )
    return (outputs * weights).sum(), outputs

  # Padding holds NaN.
  x = np.where(MASK[..., None], X, np.nan)
  step = jax.jit(jax.value_and_grad(ours, argnums=(0, 1), has_aux=True))
  (_, outputs), gradients = step(params, x)
  # Differences of the plain loop in float64, along a direction of each array.
  wide = jax.tree.map(lambda p: p.astype('f8'), (params, X))
  np.testing.assert_allclose(outputs, run(*wide), rtol=0, atol=1e-6)
  leaves, tree = jax.tree.flatten(wide)
  rng = np.random.default_rng(3)
  for i, gradient in enumerate(jax.tree.leaves(gradients)):
    along = rng.normal(size=gradient.shape)

    def moved(by, i=i, along=along):
      then = [*leaves]
      then[i] = then[i] + by * along
      return (run(*jax.tree.unflatten(tree, then)) * weights).sum()

    expected = (moved(1e-6) - moved(-1e-6)) / 2e-6
    assert np.abs(gradient).max() > 1e-2
    assert abs((gradient * along).sum() - expected) < 1e-4
  assert not gradients[1][~MASK].any()


def test_hidden_kernels_are_orthonormal_for_each_gate():
  kernel_KFGF = coupled_lstm.block_orthonormal(jax.random.key(0), (2, 5, 3, 5))
  for k in range(2):
    for g in range(3):
      one = kernel_KFGF[k, :, g]
      np.testing.assert_allclose(one.T @ one, np.eye(5), atol=1e-5)
