"""That Hugging Face's classes learn what ours do from the same batches."""

import gpt_store
import numpy as np
import optax
import pretraining
import pytest

from configs import base
from train.engine import optim


@pytest.mark.parametrize('name', ['bert_adam', 'gpt_adam'])
def test_the_optimiser_is_ours(name, torch):
  config = base.get_config().optim
  config.name, config.clip_norm = name, 1.5
  rng = np.random.default_rng(0)
  shapes = {'kernel': (3, 4), 'bias': (4,)}
  draw = lambda: {  # noqa: E731
    key: rng.normal(size=shape).astype('f4') for key, shape in shapes.items()
  }
  ours = draw()
  module = torch.nn.Module()
  for key, array in ours.items():
    module.register_parameter(key, torch.nn.Parameter(torch.tensor(array)))
  theirs = pretraining.TorchAdam(module, config)
  tx = optim.make_optimizer(config, lambda step: 0.1 / (1 + step))
  state = tx.init(ours)
  for step in range(4):
    gradients = draw()
    updates, state = tx.update(gradients, state, ours)
    ours = optax.apply_updates(ours, updates)
    for key, array in gradients.items():
      getattr(module, key).grad = torch.tensor(array)
    theirs.step(0.1 / (1 + step))
    for key, array in ours.items():
      found = getattr(module, key).detach().numpy()
      np.testing.assert_allclose(found, array, rtol=1e-5, atol=1e-6)


@pytest.fixture
def config_of(small_config, tmp_path):
  def make(name):
    if name == 'bert':
      return small_config()
    return gpt_store.small_gpt_config('gpt', gpt_store.small_stores(tmp_path))

  return make


@pytest.mark.parametrize(
  'name', ['bert', pytest.param('gpt', marks=pytest.mark.slow)]
)
def test_both_learn_alike_without_dropout(name, config_of, torch, tmp_path):
  pytest.importorskip('transformers')
  run = tmp_path / 'run'
  job = pretraining.make_job(
    config_of(name), 4, 1, str(run), rate=1e-3, dropout=False
  )
  steps = [*pretraining.train_both(job)]
  assert len(steps) == 4
  for step in steps:
    assert step.ours == pytest.approx(step.theirs, abs=1e-4)
  assert steps[-1].ours != pytest.approx(steps[0].ours, abs=1e-3)


def test_a_model_that_hugging_face_lacks_is_refused(small_config):
  config = small_config()
  with config.unlocked():
    config.model.name = 'elmo'
  with pytest.raises(ValueError, match=r'of a elmo, expected one of bert, gpt'):
    pretraining.make_job(config, 1, 0, 'run', rate=1e-3, dropout=False)


def test_the_summary_and_the_picture(tmp_path):
  losses = [float(x) for x in np.linspace(9, 4, 300)]
  run = {
    'ours': losses,
    'theirs': [loss + 0.5 for loss in losses],
    'our_seconds': 300 * [0.1],
    'their_seconds': 300 * [0.2],
  }
  found = pretraining.summary({'0': run})
  assert found['largest_difference_of_200_steps'] == pytest.approx(0.5)
  assert found['speed_ratio'] == pytest.approx(2)
  ends = found['mean_loss_of_last_100_steps']
  assert ends['theirs'][0] - ends['ours'][0] == pytest.approx(0.5)
  record = {'runs': {'0': run}, 'steps': 300, 'title': 'a'}
  pretraining.draw(record, tmp_path / 'a.png')
  assert (tmp_path / 'a.png').stat().st_size > 10_000
