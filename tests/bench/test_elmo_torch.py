"""That PyTorch's ELMo computes the same as ours."""

import math
import os

import elmo_torch
import jax
import numpy as np
import pytest
from flax import linen as nn

from configs import variants
from models import elmo, layers

torch = pytest.importorskip('torch')

pytestmark = pytest.mark.filterwarnings(
  # PyTorch has no faster one, and says so.
  'ignore:LSTM with projections is not supported with oneDNN:UserWarning'
)

TINY = variants.ELMO['elmo-tiny']
SENTENCES = (
  'A word , another : naïveté .'.split(),
  ['Fun'],
  [],
  'antidisestablishmentarianism and floccinaucinihilipilification !'.split(),
)


@pytest.fixture(scope='module', autouse=True)
def one_thread():
  # Two that wait for each other on a busy machine take 5 x as long.
  before = torch.get_num_threads()
  torch.set_num_threads(1)
  yield
  torch.set_num_threads(before)


def our_params(theirs):
  """Their weights as our tree."""

  def array(parameter):
    return parameter.detach().numpy()

  def gates(parameter):
    # [4 F, ...], input, forget, candidate, output -> ours.
    return array(parameter).reshape(4, -1, *parameter.shape[1:])[[0, 2, 1, 3]]

  def lstm(layers):
    biases = np.stack(
      [gates(x.bias_ih_l0) + gates(x.bias_hh_l0) for x in layers]
    )
    biases[:, 2] -= 1  # added at run time
    kernels = {
      name: np.stack([gates(getattr(x, f'weight_{kind}_l0')) for x in layers])
      for name, kind in (('input_kernel', 'ih'), ('recurrent_kernel', 'hh'))
    }
    projections = [array(layer.weight_hr_l0).T for layer in layers]
    return {
      **{name: x.transpose(0, 3, 1, 2) for name, x in kernels.items()},
      'bias': biases,
      'projection_kernel': np.stack(projections),
    }

  E = TINY['char_embed_dim']
  encoder = {'characters': array(theirs['characters'].weight)}
  for i, filters in enumerate(theirs['filters']):
    kernel = array(filters.weight).T
    encoder[f'filters_{i}'] = {
      'kernel': kernel.reshape(-1, E, kernel.shape[1]),
      'bias': array(filters.bias),
    }
  for i, highway in enumerate(theirs['highways']):
    kernel = array(highway.weight).T
    encoder[f'highway_{i}'] = {
      'kernel': kernel.reshape(len(kernel), 2, -1),
      'bias': array(highway.bias).reshape(2, -1),
    }
  encoder['projection'] = {
    'kernel': array(theirs['projection'].weight).T,
    'bias': array(theirs['projection'].bias),
  }
  layers = {
    f'layers_{i}': lstm(pair)
    for i, pair in enumerate(zip(*theirs['towers'], strict=True))
  }
  return {'encoder': encoder, **layers}


def test_embeds_as_ours_does_without_clips():
  from data.vocabulary import characters

  torch.manual_seed(1)
  theirs = elmo_torch.make_elmo(TINY)
  with torch.no_grad():
    for parameter in theirs['towers'].parameters():
      parameter *= 2  # the layers' vectors are small otherwise
  found = elmo_torch.embed_sentences(theirs, SENTENCES)

  model = elmo.Elmo(vocab_size=0, cell_clip=None, projection_clip=None, **TINY)
  framed = [('<S>', *words, '</S>') for words in SENTENCES]
  lengths = np.array([len(words) for words in framed], np.int32)
  ids = np.zeros((len(framed), lengths.max(), 50), np.int16)
  for row, words in zip(ids, framed, strict=True):
    row[: len(words)], _ = characters.encode_words(words)
  expected, _ = jax.jit(model.apply)(
    {'params': our_params(theirs)}, ids, lengths
  )
  assert np.abs(expected).max((1, 2, 3)).min() > 0.1
  assert len(found) == len(SENTENCES)
  for i, vectors in enumerate(found):
    assert vectors.shape == (3, len(SENTENCES[i]), 2 * model.projection_dim)
    np.testing.assert_allclose(
      vectors, expected[:, i, 1 : lengths[i] - 1], rtol=0, atol=1e-5
    )


def test_reads_streams_as_ours_does(monkeypatch):
  """From where the text before left it, as in training but for dropout."""
  monkeypatch.setattr(elmo_torch, 'DROPOUT_RATE', 0.0)
  torch.manual_seed(1)
  theirs = elmo_torch.make_elmo(TINY)
  x = np.random.default_rng(0).normal(size=(2, 3, 8, 64)).astype(np.float32)
  model = elmo.Elmo(vocab_size=0, cell_clip=None, projection_clip=None, **TINY)
  expected, _ = jax.jit(
    lambda params, x: model.apply(
      {'params': params}, x, train=False, method='run_streams'
    )
  )(our_params(theirs), x)
  for i, tower in enumerate(theirs['towers']):
    x_TBP = torch.from_numpy(x[i]).transpose(0, 1)
    first, states = elmo_torch.read_stream(tower, x_TBP[:5], None)
    second, states = elmo_torch.read_stream(tower, x_TBP[5:], states)
    assert not any(part.requires_grad for state in states for part in state)
    found = torch.cat([first, second]).transpose(0, 1).detach()
    np.testing.assert_allclose(found, expected[i], rtol=0, atol=1e-5)


def test_embedding_does_not_depend_on_the_batch(monkeypatch):
  monkeypatch.setattr(os, 'cpu_count', lambda: 1)
  options = dict(sentences=SENTENCES, size='elmo-tiny')
  whole, _ = elmo_torch.embedding(**options)
  parts, _ = elmo_torch.embedding(sentences_at_once=3, **options)
  for ours, theirs in zip(whole(), parts(), strict=True):
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize('size', ['elmo-tiny', 'elmo'])
def test_has_the_parameters_of_ours_and_a_second_bias(size):
  sizes = variants.ELMO[size]
  with torch.device('meta'):
    theirs = elmo_torch.make_elmo(sizes)
  second = 2 * sizes['num_layers'] * 4 * sizes['lstm_dim']
  found = sum(parameter.numel() for parameter in theirs.parameters())
  ours = jax.eval_shape(
    elmo.Elmo(vocab_size=0, **sizes).init,
    jax.random.key(0),
    jax.ShapeDtypeStruct((1, 1, 50), np.int32),
    jax.ShapeDtypeStruct((1,), np.int32),
  )['params']
  assert found - second == layers.num_parameters(nn.meta.unbox(ours), 0)


def test_loss_of_a_word_is_its_sampled_softmax():
  V, P = 50, 6
  rng = np.random.default_rng(0)
  hidden = rng.normal(size=(7, P))
  targets = rng.integers(0, V, 7)
  # Two hits in one row, one word drawn twice, none of another row's.
  samples = np.array([3, targets[0], 8, 8, targets[0], targets[2]])
  softmax = elmo_torch.make_softmax(V, P).double()
  with torch.no_grad():
    softmax['bias'].weight.normal_()
  losses = elmo_torch.sampled_losses(
    softmax, *map(torch.from_numpy, (hidden, targets, samples))
  )

  kernel, bias = (softmax[name].weight.detach().numpy() for name in softmax)
  share = np.log((np.arange(V) + 2) / (np.arange(V) + 1)) / np.log(V + 1)
  assert abs(share.sum() - 1) < 1e-12
  among = 1 - (1 - share) ** len(samples)
  scores = hidden @ kernel.T + bias[:, 0] - np.log(among)
  for row, target in enumerate(targets):
    others = [scores[row, word] for word in {*samples} - {target}]
    total = sum(math.exp(score) for score in [scores[row, target], *others])
    expected = math.log(total) - scores[row, target]
    np.testing.assert_allclose(losses[row].item(), expected, rtol=1e-6)


def test_words_are_drawn_log_uniformly():
  torch.manual_seed(0)
  V, count = 20, 200_000
  words = elmo_torch.draw_words(V, count)
  found = np.bincount(words.numpy(), minlength=V) / count
  share = np.log((np.arange(V) + 2) / (np.arange(V) + 1)) / np.log(V + 1)
  assert found.shape == (V,)
  np.testing.assert_allclose(found, share, atol=5 * np.sqrt(0.25 / count))


def test_sparse_gradients_are_clipped_and_applied_as_dense_ones():
  torch.sparse.check_sparse_tensor_invariants.disable()
  words = torch.tensor([4, 1, 4])  # one twice: its gradients add up first
  tables = []
  for sparse in (True, False):
    torch.manual_seed(2)
    table = torch.nn.Embedding(6, 3, sparse=sparse)
    before = table.weight.detach().clone()
    other = torch.nn.Parameter(torch.ones(2))
    optimizers = [
      torch.optim.Adagrad([x], lr=0.2, initial_accumulator_value=1.0)
      for x in (table.weight, other)
    ]
    loss = 10 * table(words).sum() + 3 * other.sum()
    loss.backward()
    norm = math.sqrt(100 * (3 * 1 + 3 * 4) + 2 * 9)
    if sparse:
      elmo_torch.clip_and_step(optimizers, limit=2.0)
      moved = 3 * 2 / norm
      step = 0.2 * moved / math.sqrt(1 + moved**2)
      np.testing.assert_allclose(other.detach(), 1 - step, atol=1e-6)
    else:
      found = torch.nn.utils.clip_grad_norm_([table.weight, other], 2.0)
      assert abs(found.item() - norm) < 1e-3
      for optimizer in optimizers:
        optimizer.step()
    tables.append(table.weight.detach())
    assert ((tables[-1] != before).any(1).nonzero()[:, 0] == words[1:]).all()
  np.testing.assert_allclose(*tables, atol=1e-6)


def test_a_step_learns(monkeypatch):
  monkeypatch.setattr(os, 'cpu_count', lambda: 1)
  run, _ = elmo_torch.step(
    batch=2, length=5, num_words=200, num_samples=50, size='elmo-tiny'
  )
  losses = [run() for _ in range(10)]
  assert math.isfinite(sum(losses))
  # It begins as guessing does: by the correction, among the whole vocabulary.
  assert abs(losses[0] - math.log(200)) < 2
  assert losses[-1] < losses[0] - 1
