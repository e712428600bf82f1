"""Probes trained together: as alone, as by PyTorch, and the right layer."""

import dataclasses

import fusions
import jax
import numpy as np
import optax
import probe_examples
import pytest
from probe_examples import D, K, L
from sklearn import metrics

from models.probes.edge_probe import EdgeProbe
from train.probing import fit, plan
from train.probing.batches import Packer
from train.probing.plan import Settings

SETTINGS = Settings(
  steps=60, batch_size=16, learning_rate=0.01, validate_every=20
)
MODULE = EdgeProbe(L, K, 2, hidden_dim=8)
ALL = np.ones(K, bool)


# The same in most tests, so that programs are compiled once.
MEMBERS = plan.members('both', L, 2)
DATA = probe_examples.split(64, 2, length=6)
SPLITS = dict.fromkeys(('train', 'dev', 'test'), DATA)


def make(members, settings=SETTINGS, module=MODULE, **options):
  return fit.Probes(module, D, members, settings, ALL, **options)


def packed(layers=None):
  """A packer of all sentences, and its first batch."""
  layers = probe_examples.vectors() if layers is None else layers
  packer = Packer(layers, DATA.examples, 16)
  return packer, next(iter(packer.scoring(DATA.examples)))


def trained(members, steps=5, group=None):
  """Returns the parameters after some steps, [M, ...], and the losses."""
  probes = make(members, group=group)
  rate, moves = np.full(len(members), 0.01), np.ones(len(members), bool)
  packer, _ = packed()
  for number, batch in enumerate(packer.training(DATA.examples, steps), 1):
    losses = probes.step(batch, number, rate, moves)
  return jax.tree.map(np.asarray, probes.params), np.asarray(losses)


@pytest.mark.slow
def test_together_as_alone(monkeypatch):
  """Bit for bit on a CPU; vmapped, as on accelerators, to 2e-5."""
  # The fusions of users: with those of tests, the loop over one member, which
  # falls away, does not round as the loop over ten.
  gradients = jax.jit(
    fit._gradients.__wrapped__,
    static_argnums=0,
    static_argnames='group',
    compiler_options=fusions.AS_USERS,
  )
  monkeypatch.setattr(fit, '_gradients', gradients)
  members = MEMBERS
  together, losses = trained(members)
  vmapped, _ = trained(members, group=10)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=2e-5),
    vmapped,
    together,
  )
  for number in (0, 5, 9):
    alone, loss = trained([members[number]])
    assert loss[0] == losses[number]
    jax.tree.map(
      lambda x, y, i=number: np.testing.assert_array_equal(x[0], y[i]),
      alone,
      together,
    )
  # They are different probes.
  assert len({*losses.tolist()}) == 10
  # Weights of layers outside of a mix stay as they are.
  weights = together['layer_weights']
  for row, member in zip(weights, members, strict=True):
    outside = [x for x in range(L) if not member.first <= x <= member.last]
    assert not row[outside].any()
    assert row.any() == (member.first < member.last)


def test_a_stopped_probe_does_not_move():
  probes = make(MEMBERS)
  before = jax.tree.map(np.array, probes.params)
  moves = np.array([True, False] * 5)
  probes.step(packed()[1], 1, np.full(10, 0.1), moves)
  after = jax.device_get(probes.params)
  for leaf, old in zip(*map(jax.tree.leaves, (after, before)), strict=True):
    changed = np.array([(x != y).any() for x, y in zip(leaf, old, strict=True)])
    assert not changed[1::2].any()
    # The one weight of a mix of one layer has no gradient.
    assert changed[::2].all() or leaf.shape[1:] == (L,)
    assert changed[2]


def test_steps_are_those_of_adam(torch):
  """Clipped by each probe's own norm; layers' weights at their own rate."""
  settings = dataclasses.replace(SETTINGS, mix_factor=7.0)
  probes = make(MEMBERS, settings)
  stack = jax.tree.map(np.array, probes._stack)
  norms_of = jax.jit(jax.vmap(optax.tree.norm))
  tensors = jax.tree.map(
    lambda leaf: torch.tensor(leaf[1], requires_grad=True),
    stack.params,
  )
  mix, others = tensors['layer_weights'], dict(tensors)
  del others['layer_weights']
  rest = jax.tree.leaves(others)
  adam = torch.optim.Adam(
    [{'params': [mix], 'lr': 0.07}, {'params': rest}], 0.01
  )
  random = np.random.default_rng(0)
  for scale in (1.0, 0.01, 1.0):
    gradients = jax.tree.map(
      lambda leaf, scale=scale: scale * random.normal(size=leaf.shape),
      stack.params,
    )
    gradients = jax.tree.map(lambda leaf: leaf.astype(np.float32), gradients)
    jax.tree.map(
      lambda tensor, leaf: setattr(tensor, 'grad', torch.tensor(leaf[1])),
      tensors,
      gradients,
    )
    torch.nn.utils.clip_grad_norm_([mix, *rest], 5.0)
    adam.step()
    norms = norms_of(gradients)
    stack = fit._update(
      stack,
      gradients,
      norms,
      np.full(10, 0.01, np.float32),
      np.ones(10, bool),
      clip_norm=5.0,
      mix_factor=7.0,
    )
  jax.tree.map(
    lambda tensor, leaf: np.testing.assert_allclose(
      leaf[1], tensor.detach().numpy(), rtol=0, atol=1e-5
    ),
    tensors,
    jax.device_get(stack.params),
  )


def test_the_rate_falls_as_in_pytorch(torch):
  """On a plateau, for each probe by itself, until its end."""
  settings = Settings(
    learning_rate=1.0, threshold=0.01, halve_after=3, stop_after=8
  )
  random = np.random.default_rng(3)
  f1 = np.cumsum(random.normal(0.002, 0.03, size=(40, 6)), 0).clip(0, 1)
  plateau = fit.Plateau(settings, 6)
  optimizers = [torch.optim.SGD([torch.zeros(1)], lr=1.0) for _ in range(6)]
  schedules = [
    torch.optim.lr_scheduler.ReduceLROnPlateau(
      each,
      'max',
      factor=0.5,
      patience=2,
      threshold=0.01,
      threshold_mode='abs',
    )
    for each in optimizers
  ]
  for row in f1:
    moved = plateau.moves_M.copy()
    plateau.validated(row)
    for i in np.flatnonzero(moved):
      schedules[i].step(row[i])
      assert plateau.rate_M[i] == optimizers[i].param_groups[0]['lr']
  assert not plateau.moves_M.all() and plateau.rate_M.min() < 0.3
  # It ends 8 validations after the last progress, or at the smallest rate.
  for smallest, expected in ((1e-6, 9), (0.3, 7)):
    plateau = fit.Plateau(
      dataclasses.replace(settings, smallest_rate=smallest), 1
    )
    count = 0
    while plateau.moves_M[0]:
      plateau.validated(np.array([0.5]))
      count += 1
    assert count == expected


def test_f1_is_scikit_learns():
  layers = probe_examples.vectors()
  scored = np.array([True, False, True, True])
  probes = fit.Probes(MODULE, D, MEMBERS, SETTINGS, scored)
  packer, _ = packed()
  found = probes.score(probes.params, packer, DATA)
  missed = probes.score(probes.params, packer, DATA._replace(missed=30))
  apply = jax.jit(MODULE.apply)
  of_members = jax.device_get(probes.params)
  for number, member in list(enumerate(MEMBERS))[::3]:
    params = jax.tree.map(lambda leaf, i=number: leaf[i], of_members)
    used = (np.arange(L) >= member.first) & (np.arange(L) <= member.last)
    gold, answers = [], []
    # Sentence by sentence.
    for example in DATA.examples:
      states = [
        layers[pieces].swapaxes(0, 1)[:, None] for pieces in example.pieces
      ]
      spans = [of_side[None] for of_side in example.spans]
      logits = apply({'params': params}, states, spans, used)
      gold.append(example.labels)
      answers.append(np.asarray(logits[0]) >= 0)
    gold, answers = np.concatenate(gold), np.concatenate(answers)
    labels = np.flatnonzero(scored)
    expected = metrics.f1_score(
      gold, answers, labels=labels, average='micro', zero_division=0
    )
    assert found[number] == pytest.approx(expected, abs=1e-12)
    # Labels that cannot be found are missed by all.
    gold = np.concatenate([gold, np.eye(K, dtype=int)[[0] * 30]])
    answers = np.concatenate([answers, np.zeros((30, K), bool)])
    expected = metrics.f1_score(
      gold, answers, labels=labels, average='micro', zero_division=0
    )
    assert missed[number] == pytest.approx(expected, abs=1e-12)
  assert len({*found.tolist()}) > 2


def test_the_layer_of_the_answer_is_found():
  splits = {
    name: probe_examples.split(64, 2, seed, length=6)
    for seed, name in enumerate(('train', 'dev', 'test'))
  }
  settings = dataclasses.replace(SETTINGS, learning_rate=0.03)
  probes = make(MEMBERS, settings)
  packer, _ = packed(probe_examples.vectors(layer=1))
  results, seconds = fit.train('drawn', probes, packer, splits)
  test = {(x.member.first, x.member.last): x.test for x in results}
  assert min(test[0, 1], test[1, 1], test[0, 2]) > 0.85
  assert max(test[0, 0], test[2, 2]) < 0.7
  (full,) = [x for x in results if x.member == (0, 2, 1)]
  assert np.argmax(full.shares) == 1 and sum(full.shares) == pytest.approx(1)
  assert all(x.step in (20, 40, 60) and x.steps == 60 for x in results)
  assert seconds > 0


def test_the_best_parameters_are_kept(monkeypatch):
  """Dev chooses; the test F1 is of the best validation, before the end."""
  settings = dataclasses.replace(
    SETTINGS, steps=8, validate_every=2, stop_after=2
  )
  probes = make(MEMBERS, settings)
  answers = [[0.1, 0.5], [0.3, 0.4], [0.2, 0.4], [0.25, 0.9], [0, 0]]
  splits = {name: DATA._replace(missed=i) for i, name in enumerate(SPLITS)}
  seen, scored = [], []

  def score(params, packer, split):
    seen.append(np.array(params['hidden']['kernel']))
    scored.append(next(name for name in splits if splits[name] is split))
    return np.array(answers[len(seen) - 1] * 5)

  monkeypatch.setattr(probes, 'score', score)
  one, two, *_ = fit.train('drawn', probes, packed()[0], splits)[0]
  assert scored == ['dev'] * 4 + ['test']
  assert (one.dev, one.step, one.steps) == (0.3, 4, 8)
  # The second stopped after 6 steps: its 0.9 came too late.
  assert (two.dev, two.step, two.steps) == (0.5, 2, 6)
  np.testing.assert_array_equal(seen[4][0], seen[1][0])
  np.testing.assert_array_equal(seen[4][1], seen[0][1])
  np.testing.assert_array_equal(seen[3][1], seen[2][1])


def test_a_diverged_probe_is_named():
  layers = np.full((probe_examples.PIECES, L, D), np.inf, np.float16)
  settings = dataclasses.replace(SETTINGS, validate_every=2)
  with pytest.raises(
    FloatingPointError,
    match='drawn, layer 0, seed 0: the loss is nan at step 2',
  ):
    fit.train('drawn', make(MEMBERS, settings), packed(layers)[0], SPLITS)
