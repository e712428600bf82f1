"""Learning rates, against the released formulas; and which runs may go on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train import settings
from train.settings import Phase
from train.transfer import task_job, task_plan


def rates_of(arg, steps):
  config = settings.load_config(f'transfer:{arg}')
  schedule = task_job.make_schedule(config, Phase(steps, 128, 32, 'continue'))
  return np.asarray(jax.vmap(schedule)(jnp.arange(steps)))


@pytest.mark.parametrize('steps', [7, 345, 5000])
def test_gpts_warm_up_multiplies_the_decay(steps):
  # openai/finetune-transformer-lm, opt.py: x of the updates are done.
  x = np.arange(steps) / steps
  warming = np.minimum(x / 0.002, 1)
  expected = 6.25e-5 * warming * (1 - x)
  np.testing.assert_allclose(
    rates_of('task=mrpc,recipe=gpt', steps), expected, rtol=1e-5, atol=1e-12
  )


@pytest.mark.parametrize('steps', [7, 345, 5000])
def test_berts_warm_up_replaces_the_decay(steps):
  # google-research/bert, optimization.py and run_classifier.py.
  step = np.arange(steps)
  warmup = int(steps * 0.1)
  expected = 3e-5 * (1 - step / steps)
  expected[:warmup] = 3e-5 * step[:warmup] / max(warmup, 1)
  np.testing.assert_allclose(
    rates_of('task=mrpc', steps), expected, rtol=1e-5, atol=1e-12
  )


def test_when_two_configs_are_the_same(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  old = {
    'data.source': 'glue',
    'init.weights': 'gs://bucket/w',
    'eval.global_batch': 8,
    'train.platform': 'cpu',
    'train.eval_every': 4,
  }
  same = old | {'data.source': str(tmp_path / 'glue'), 'eval.global_batch': 64}
  assert not task_plan.differing_keys(old, same | {'train.platform': 'tpu'})
  # It decides which model is the best.
  assert task_plan.differing_keys(old, old | {'train.eval_every': 8}) == {
    'train.eval_every': (4, 8)
  }
  assert task_plan.differing_keys(old, old | {'data.source': '../glue'})
