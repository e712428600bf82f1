"""The configs of runs of seconds of word2vec and GloVe, and their parts."""

import json

import jax
import pytest
import runs
from elmo_store import build_words, make_job, write_topics

from data.examples import pipeline
from train.engine import sharding
from train.run import ledger, settings

LENGTH, ROWS, STEPS = 64, 8, 6


def make_store(folder):
  """Returns a store of whole words on two topics."""
  return build_words(write_topics(folder, 0, 60), folder / 'words')


def results_of(workdir):
  """Returns the results of a run."""
  return json.loads((workdir / 'results.json').read_text())


def small_config(store, name='word2vec_novels', **overrides):
  """Returns the config of a run of STEPS steps; of keys, __ is the point."""
  own = {'model.window': 3, 'objective.sample': 1e-2}
  if name == 'glove_novels':
    own = {'objective.window': 3}
  return settings.with_overrides(
    settings.load_config(name),
    {
      **own,
      'model.embed_dim': 16,
      'objective.updates': 4,
      'objective.min_count': 2,
      'data.folder': str(store),
      'data.loader': 'plain',
      'train.phases': ((STEPS, LENGTH, ROWS, 'continue'),),
      'train.num_epochs': None,
      'train.log_every': 1,
      'train.eval_every': 3,
      'train.checkpoint_every': 2,
      'train.peak_tflops': 0.1,
      'eval.global_batch': 4,
      'eval.max_windows': 8,
      **{key.replace('__', '.'): value for key, value in overrides.items()},
    },
  )


def kill_and_resume(config, workdir):
  """Trains a run that is killed before its last step, and then resumed."""
  count = ledger.Ledger.count

  class Killed(Exception):
    pass

  def count_or_die(self, done, *rest):
    if done == STEPS - 1:
      raise Killed
    count(self, done, *rest)

  with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
    patch.setattr(ledger.Ledger, 'count', count_or_die)
    runs.train(config, workdir)
  runs.train(config, workdir)


def run_steps(config, num_steps, devices=None):
  """Returns the state on the host, and the reports, after some steps."""
  store, job = make_job(config, devices)
  (phase,) = job.phases
  examples = job.objective.open_examples(
    config, store, phase.length, held_out=False
  )
  reports = []
  with sharding.scope(job.mesh, config.mesh.rules):
    state, step = job.create_state(), job.train_step(phase.length)
    for number in range(num_steps):
      batch = pipeline.train_batch(
        {phase.length: examples}, job.phases, config.train.seed, number
      )
      state, report = step(state, sharding.put_batch(batch, job.mesh))
      reports.append(jax.device_get(report))
  return jax.device_get(state), reports
