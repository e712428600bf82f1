"""The edge probe beside the published module, written again in PyTorch."""

import jax
import numpy as np
import pytest

from models import scalar_mix
from models.probes import edge_probe
from models.probes.edge_probe import EdgeProbe

L, D, H, K = 4, 12, 16, 5
# Of two sentences of 7 and 5 pieces: spans of each side.
SPANS = (
  ([(0, 1), (2, 6), (0, 7)], [(1, 3), (4, 5)]),
  ([(3, 4), (0, 2), (5, 7)], [(0, 5), (0, 1)]),
)
LENGTHS = (7, 5)


def data(num_spans):
  random = np.random.default_rng(num_spans)
  sentences = [random.normal(size=(L, n, D)).astype('f') for n in LENGTHS]
  labels = (random.random((5, K)) < 0.3).astype(np.float32)
  return sentences, [SPANS[side] for side in range(num_spans)], labels


def in_one_row(sentences, spans, labels, T=16, P=8):
  """Both sentences in the second of two rows, padding before and behind."""
  layers = np.full((L, 2, T, D), 7, np.float32)
  ours = [np.zeros((2, P, 2), np.int32) for _ in spans]
  targets, mask = np.ones((2, P, K), np.uint8), np.zeros((2, P), bool)
  begin, first = 1, 0
  for number, x in enumerate(sentences):
    layers[:, 1, begin : begin + x.shape[1]] = x
    count = len(spans[0][number])
    for side, of_side in enumerate(spans):
      ours[side][1, first : first + count] = np.array(of_side[number]) + begin
    begin, first = begin + x.shape[1], first + count
  targets[1, :first], mask[1, :first] = labels, True
  return [layers] * len(spans), ours, targets, mask


def drawn(module, inputs, used):
  """Parameters with none left at 0 or 1."""
  init = jax.jit(module.init)
  params = jax.device_get(init(jax.random.key(0), *inputs, used)['params'])
  random = np.random.default_rng(0)
  return jax.tree.map(
    lambda leaf: leaf + 0.3 * random.normal(size=leaf.shape).astype('f'), params
  )


def published(torch, params, sentences, spans, labels, last):
  """Returns the published module's loss, its gradients and logits.

  A mix of layers 0 to `last`; a convolution of width 1 for each side; the
  attention-weighted average of a span; a multi-layer perceptron; binary
  cross-entropy of probabilities, the mean over targets and classes.
  """
  nn = torch.nn
  tensors = jax.tree.map(
    lambda leaf: torch.tensor(np.array(leaf), requires_grad=True), params
  )
  weights = tensors['layer_weights'][: last + 1]
  logits = []
  for number, layers in enumerate(sentences):
    shares = torch.softmax(weights, 0)
    mixed = tensors['layer_scale'] * sum(
      share * torch.tensor(layer)
      for share, layer in zip(shares, layers[: last + 1], strict=True)
    )
    pooled = []
    for side, of_side in enumerate(spans):
      project = tensors[f'project_{side}']
      states = nn.functional.conv1d(
        mixed.T[None], project['kernel'].T[:, :, None], project['bias']
      )[0].T
      scores = states @ tensors[f'scorer_{side}'] + 0.7  # a bias, as published
      pooled.append(
        torch.stack(
          [
            torch.softmax(scores[a:b], 0) @ states[a:b]
            for a, b in of_side[number]
          ]
        )
      )
    hidden, norm = tensors['hidden'], tensors['norm']
    x = torch.cat(pooled, 1) @ hidden['kernel'] + hidden['bias']
    x = nn.functional.layer_norm(
      torch.tanh(x), (H,), norm['scale'], norm['bias']
    )
    logits.append(x @ tensors['classes']['kernel'] + tensors['classes']['bias'])
  logits = torch.cat(logits)
  loss = nn.functional.binary_cross_entropy(
    torch.sigmoid(logits), torch.tensor(labels)
  )
  loss.backward()
  gradients = jax.tree.map(lambda tensor: tensor.grad.numpy(), tensors)
  return loss.item(), gradients, logits.detach().numpy()


@pytest.mark.parametrize(('num_spans', 'last'), [(1, 3), (2, 2), (2, 0)])
def test_loss_and_gradients_as_published(torch, num_spans, last):
  sentences, spans, labels = data(num_spans)
  layers, ours, targets, mask = in_one_row(sentences, spans, labels)
  module = EdgeProbe(L, K, num_spans, hidden_dim=H)
  used = np.arange(L) <= last
  params = drawn(module, (layers, ours), used)
  loss, gradients, logits = published(
    torch, params, sentences, spans, labels, last
  )

  def ours_of(params):
    found = module.apply({'params': params}, layers, ours, used)
    total, weight = edge_probe.loss(found, targets, mask)
    return total / weight, found

  (found, logits_BPK), ours_gradients = jax.device_get(
    jax.jit(jax.value_and_grad(ours_of, has_aux=True))(params)
  )
  assert abs(found - loss) < 1e-5
  np.testing.assert_allclose(logits_BPK[1, :5], logits, rtol=0, atol=1e-5)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-5),
    ours_gradients,
    gradients,
  )
  right, count = jax.jit(edge_probe.count)(logits_BPK, targets, mask)
  np.testing.assert_array_equal(count, (logits >= 0).sum(0))
  np.testing.assert_array_equal(right, ((logits >= 0) & (labels > 0)).sum(0))


def test_the_mix_is_that_of_elmo():
  (layers, *_), (spans, *_), labels = data(1)
  layers = layers[:, None]
  spans = [np.array([spans[0]])]
  used = np.array([True, True, True, False])
  module = EdgeProbe(L, K, hidden_dim=H)
  params = drawn(module, ([layers], spans), used)
  logits = jax.jit(module.apply)({'params': params}, [layers], spans, used)
  mix = {
    scalar_mix.WEIGHTS: params['layer_weights'][:3],
    scalar_mix.SCALE: params['layer_scale'],
  }
  # One layer of weight 1 and scale 1.
  alone = params | {
    'layer_weights': np.zeros(1, 'f'),
    'layer_scale': np.ones((), 'f'),
  }

  @jax.jit
  def expect(mix, alone):
    mixed = scalar_mix.ScalarMix(3).apply(
      {'params': mix}, layers[:3], np.ones(layers.shape[1:3], bool)
    )
    return EdgeProbe(1, K, hidden_dim=H).apply(
      {'params': alone}, [mixed[None]], spans, np.ones(1, bool)
    )

  expected = expect(mix, alone)
  np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def test_dropout_takes_hidden_values_away():
  (layers, *_), (spans, *_), _ = data(1)
  layers, spans = [layers[:, None]], [np.array([spans[0]])]
  used = np.ones(L, bool)
  module = EdgeProbe(L, K, hidden_dim=H)
  params = drawn(module, (layers, spans), used)

  def apply(keep):
    return np.asarray(run(params, layers, spans, used, keep))

  run = jax.jit(
    lambda params, *inputs: module.apply({'params': params}, *inputs)
  )

  bias = params['classes']['bias']
  none = apply(np.zeros((1, 3, H), bool))
  np.testing.assert_allclose(none, np.broadcast_to(bias, (1, 3, K)), atol=1e-6)
  full = apply(np.ones((1, 3, H), bool))
  np.testing.assert_allclose(
    (full - bias) * (1 - edge_probe.DROPOUT_RATE), apply(None) - bias, atol=1e-5
  )


def test_first_parameters_are_those_of_pytorch():
  layers, spans = [np.zeros((L, 1, 1, 400), 'f')], [np.zeros((1, 1, 2), int)]
  used = np.ones(L, bool)
  init = jax.jit(EdgeProbe(L, K).init)
  params = jax.device_get(
    init(jax.random.key(0), layers, spans, used)['params']
  )
  assert not params['layer_weights'].any() and params['layer_scale'] == 1
  for name, fan_in in (('project_0', 400), ('hidden', 256), ('classes', 256)):
    for leaf in params[name].values():
      assert 0.9 < np.abs(leaf).max() * np.sqrt(fan_in) <= 1 or leaf.size < 20
