"""Whole runs on small text: what they leave, and how they end."""

import json
import os
import signal
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import runs
import watch
from launch import environment

from train.architectures import bert, families
from train.engine import evaluate, optim
from train.host import processes
from train.run import (
  checkpoint,
  curves,
  ledger,
  metrics,
  settings,
  workdirs,
)

# Meshes have tests of their own.
pytestmark = pytest.mark.usefixtures('one_device')


def test_a_run_leaves_everything(finished):
  workdir, results = finished
  assert json.loads((workdir / 'results.json').read_text()) == results
  for key in ('seed', 'device', 'revision', 'config', 'seconds'):
    assert key in results
  assert len(results['state_sha256']) == len(results['optimizer_sha256']) == 64
  figures = results['metrics']
  for name in (
    'mlm_loss mlm_perplexity mlm_accuracy nsp_accuracy unigram_perplexity'
  ).split():
    assert np.isfinite(figures[f'eval/{name}'])
  assert figures['eval/mlm_perplexity'] == pytest.approx(
    np.exp(figures['eval/mlm_loss'])
  )
  rows = metrics.read_metrics(workdir)
  assert sorted({s for s, name, _ in rows if name == 'train/loss'}) == [
    4,
    8,
    12,
  ]
  assert {s for s, name, _ in rows if name == 'eval/mlm_loss'} == {6, 12}
  assert (workdir / 'curves.png').read_bytes().startswith(b'\x89PNG')
  assert list((workdir / 'tensorboard').glob('events*'))
  assert (workdir / 'vocab.txt').exists()
  assert workdirs.read_config(workdir).model.embed_dim == 32
  assert checkpoint.latest_step(workdir) == 12


def test_the_unigram_predictor_is_scored_on_the_same_targets(finished):
  # 500 pieces, their frequencies known: between certainty and uniform.
  perplexity = finished[1]['metrics']['eval/unigram_perplexity']
  assert 50 < perplexity < 500
  log_probs = evaluate.unigram_log_probs(np.array([0, 1, 8]))
  np.testing.assert_allclose(np.exp(log_probs), [1 / 12, 2 / 12, 9 / 12])


def rows_of(workdir):
  """Returns all but times, in the order in which they were written."""
  rows = metrics.read_metrics(workdir)
  return [row for row in rows if not row[1].startswith('time/')]


@pytest.mark.slow
@pytest.mark.parametrize('step', [6, 12])
def test_ended_in_an_evaluation_it_goes_on_with_that(
  finished, small_config, tmp_path, monkeypatch, step
):
  """SIGTERM after 6 steps, which are not to be saved; a kill after 12."""
  evaluations, batches = [], []

  def batches_until_the_end(host_batches):
    evaluations.append(None)
    for batch in host_batches:
      batches.append(batch)
      yield batch
      if len(evaluations) == step // 6:
        if step == 12:
          raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGTERM)

  inner = evaluate.evaluate
  with monkeypatch.context() as patch:
    patch.setattr(
      evaluate,
      'evaluate',
      lambda run, params, languages, *rest: inner(
        run,
        params,
        {
          name: batches_until_the_end(batches)
          for name, batches in languages.items()
        },
        *rest,
      ),
    )
    ends = (processes.Preempted, KeyboardInterrupt)
    with pytest.raises(ends, match='step 6 is saved' if step == 6 else None):
      runs.train(small_config(), tmp_path)
  # Of two batches an evaluation, the second is not read.
  assert len(batches) == (2 if step == 6 else 3)
  assert checkpoint.latest_step(tmp_path) == step
  assert not metrics.is_scored(tmp_path, step)

  # Where a batch takes 40 s, the whole evaluation exceeds a limit of a minute.
  watch.install(monkeypatch, seconds_a_batch=40)
  results = runs.train(small_config(train__hang_minutes=1.0), tmp_path)
  assert rows_of(tmp_path) == rows_of(finished[0])
  for key in ('state_sha256', 'optimizer_sha256'):
    assert results[key] == finished[1][key]


def test_ctrl_c_saves_the_step_and_goes_on_from_there(
  finished, small_config, tmp_path, monkeypatch, capsys
):
  count = ledger.Ledger.count

  def count_and_interrupt(self, step, *rest):
    if step == 5:
      os.kill(os.getpid(), signal.SIGINT)
    count(self, step, *rest)

  with monkeypatch.context() as patch:
    patch.setattr(ledger.Ledger, 'count', count_and_interrupt)
    with pytest.raises(processes.Preempted, match='step 5 is saved'):
      runs.train(small_config(), tmp_path)
  assert 'Ctrl-C: the run saves this step' in capsys.readouterr().err
  assert checkpoint.latest_step(tmp_path) == 5
  results = runs.train(small_config(), tmp_path)
  assert results['state_sha256'] == finished[1]['state_sha256']
  assert rows_of(tmp_path) == rows_of(finished[0])


@pytest.mark.parametrize('name', ['exp [v2]', 'a*', 'what?'])
def test_a_workdir_that_orbax_takes_for_a_pattern_is_refused(
  name, small_config, tmp_path
):
  with pytest.raises(ValueError, match='no checkpoint can lie .* rename it'):
    runs.train(small_config(), tmp_path / name)
  assert not list(tmp_path.iterdir())


def test_a_finished_run_only_prints(finished, small_config, capsys):
  workdir, results = finished
  before = {p: p.stat().st_mtime_ns for p in workdir.rglob('*') if p.is_file()}
  assert runs.train(small_config(), workdir) == results
  after = {p: p.stat().st_mtime_ns for p in workdir.rglob('*') if p.is_file()}
  assert before == after
  assert 'finished run' in capsys.readouterr().err


def test_a_workdir_in_use_is_refused(small_config, tmp_path):
  with (
    workdirs.sole_writer(tmp_path),
    pytest.raises(ValueError, match='another process trains in'),
  ):
    runs.train(small_config(), tmp_path)
  assert not (tmp_path / 'config.json').exists()
  with workdirs.sole_writer(tmp_path):  # free again
    pass


def test_other_values_are_refused_by_name(finished, small_config):
  with pytest.raises(ValueError, match=r'train.seed: 0 there, 1 here') as error:
    runs.train(small_config(train__seed=1, train__steps=20), finished[0])
  # A linear decay to another end changes the rates of the steps done.
  assert 'train.steps: None there, 20 here' in str(error.value)


def test_accumulated_equals_the_big_batch(small_config):
  losses = [
    runs.losses_on(
      small_config(
        train__micro_batches=parts,
        train__log_every=1,
        model__dropout_rate=0.0,
        model__attention_dropout_rate=0.0,
      ),
      runs.one_device(),
    )
    for parts in (1, 4)
  ]
  assert len(losses[0]) == 12
  np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)


def test_evaluation_does_not_depend_on_its_batch_size(
  finished, small_config, tmp_path
):
  results = runs.train(small_config(eval__global_batch=8), tmp_path)
  for name, value in finished[1]['metrics'].items():
    if name.startswith('eval/'):
      assert results['metrics'][name] == pytest.approx(value, rel=1e-6)


def test_a_loss_that_is_not_finite_stops_the_run(
  small_config, tmp_path, monkeypatch
):
  """The last good checkpoint is kept."""
  make_schedule = optim.make_schedule

  def exploding(optim_config, phases):
    schedule = make_schedule(optim_config, phases)
    return lambda step: jnp.where(step == 6, jnp.inf, schedule(step))

  monkeypatch.setattr(optim, 'make_schedule', exploding)
  with pytest.raises(
    FloatingPointError, match='(?s)not finite in step 8.*step 4 is kept'
  ) as error:
    runs.train(small_config(), tmp_path, fresh=True)
  text = str(error.value)
  assert 'embeddings/tokens/embedding' in text or 'kernel' in text
  assert 'Documents of the batch' in text
  (path,) = tmp_path.glob('nonfinite-step-*.npz')
  assert np.load(path)['window'].shape[0] == 16
  assert not (tmp_path / 'results.json').exists()
  assert checkpoint.latest_step(tmp_path) == 4


@pytest.mark.slow
def test_an_objective_of_its_own_has_its_curve_and_its_end(
  small_config, tmp_path, monkeypatch, capsys
):
  """One without any loss of tokens, and whose metric nobody has heard of."""

  class Order(bert.MaskedTokens):
    loss_names = ('order',)
    metric_names = ('margin',)
    perplexities = {}

    def losses(self, outputs, batch):
      losses, found = super().losses(outputs, batch)
      return {'order': losses['nsp']}, {'margin': found['nsp_accuracy']}

    def weights(self, batch):
      return {'order': super().weights(batch)['nsp']}

  ours = families.ARCHITECTURES['bert']._replace(objectives={'bert': Order})
  monkeypatch.setitem(families.ARCHITECTURES, 'bert', ours)
  config = small_config(train__steps=2, model__num_layers=1)
  results = runs.train(config, tmp_path, draws=True, fresh=True)
  assert {name for name in results['metrics'] if name.startswith('eval/')} == {
    'eval/order_loss',
    'eval/margin',
  }
  drawn = curves.panels(name for _, name, _ in metrics.read_metrics(tmp_path))
  assert {'train/order_loss', 'eval/order_loss'} <= set(drawn['Loss'])
  assert {'train/margin', 'eval/margin'} == set(drawn['Other figures'])
  assert (tmp_path / 'curves.png').exists()
  said = capsys.readouterr().err
  assert (
    f'held-out margin {results["metrics"]["eval/margin"]:.3f}, order loss'
    in said
  )
  assert 'perplexity' not in said


@pytest.mark.slow
def test_disk_full_while_saving(small_config, tmp_path):
  """A limit on file size stands in for a disk that fills up at a save."""
  config = small_config()
  program = f"""
import resource
import runs
from train.run import checkpoint, command, settings
config = settings.with_overrides(
  settings.load_config('bert_tiny'), {settings.flatten(config)!r}
)
save = checkpoint.Checkpoints.save
def save_on_full(*args):
  resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
  save(*args)
checkpoint.Checkpoints.save = save_on_full
command.run(lambda: runs.train(config, {str(tmp_path / 'run')!r}))
"""
  done = subprocess.run(
    [sys.executable, '-c', program],
    env=environment(),
    capture_output=True,
    text=True,
    timeout=400,
  )
  assert done.returncode == 1
  last = done.stderr.strip().splitlines()[-1]
  assert last.startswith('error: a checkpoint in'), done.stderr[-2000:]
  assert (
    'could not be written; no complete checkpoint is there. Make room' in last
  )
  assert 'loop is closed' not in done.stderr  # of the other writes
  assert checkpoint.latest_step(tmp_path / 'run') is None
  # With room again, the same run goes on.
  assert runs.train(config, tmp_path / 'run')['steps'] == 12
