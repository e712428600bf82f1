"""A fine-tuning learns, is reproducible, goes on, and says what is wrong."""

import json
import os
import pathlib
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
import runs
import watch
from pyarrow import parquet
from students import student_of

from data import storage
from data.inputs import batches
from data.text import tfds_text
from data.text.tables import data_sets
from train.engine import optim, sharding
from train.exports import folders
from train.host import processes
from train.params import opened
from train.run import (
  checkpoint,
  command,
  ledger,
  metrics,
  settings,
  workdirs,
)
from train.run.job import Keep
from train.transfer import finetune, task_plan

pytestmark = pytest.mark.usefixtures('one_device')
ACCURACY = 'eval/own/accuracy'


@pytest.fixture(scope='module')
def finished(make_config, tmp_path_factory):
  """A finished run: its config, workdir and results."""
  config = make_config()
  workdir = tmp_path_factory.mktemp('runs') / 'finished'
  return config, workdir, runs.train(config, workdir, draws=True)


@pytest.fixture(scope='module')
def job(make_config):
  """The plan of that run: runs that are to be ended share its compiled steps.

  Those that continue them plan anew, as a command does.
  """
  config = make_config()
  return finetune.plan(config, sharding.make_mesh(config.mesh))


def test_it_learns_and_leaves_everything(finished):
  config, workdir, results = finished
  assert results['metrics'][ACCURACY] > 0.9
  low, high = results['intervals'][ACCURACY]
  assert low <= results['metrics'][ACCURACY] <= high
  assert results['steps'] == 30  # 96 examples, 5 epochs, 16 at a time
  assert results['train_size'] == 96
  assert results == workdirs.read_results(workdir)
  facts = json.loads((workdir / 'task.json').read_text())
  assert facts['labels'] == ['bad', 'good']
  lines = (workdir / 'predictions' / 'dev.jsonl').read_text().splitlines()
  source = pathlib.Path(config.data.source, 'dev.jsonl')
  dev = [json.loads(line) for line in source.read_text().splitlines()]
  right = [
    json.loads(line)['answer'] == example['label']
    for line, example in zip(lines, dev, strict=True)
  ]
  assert np.mean(right) == pytest.approx(results['metrics'][ACCURACY])
  train = pathlib.Path(config.data.source, 'train.jsonl').read_text()
  labels = [json.loads(line)['label'] for line in train.splitlines()]
  answer = 'bad' if labels.count('bad') >= labels.count('good') else 'good'
  share = np.mean([example['label'] == answer for example in dev])
  assert results['constant'][ACCURACY] == pytest.approx(share)
  for name in ('curves.png', 'metrics.csv', 'ledger.csv', 'vocab.txt'):
    assert (workdir / name).exists()


def test_the_same_again_and_a_finished_run_is_kept(
  finished, tmp_path, monkeypatch
):
  config, workdir, results = finished
  again = runs.train(config, tmp_path / 'again')
  for key in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert again[key] == results[key]
  monkeypatch.setattr(finetune, 'plan', None)  # nothing is read or computed
  assert runs.train(config, workdir) == results


def asked_to_end(patch, at):
  """Has SIGTERM come in a step."""
  count = ledger.Ledger.count

  def count_and_ask(self, step, *rest):
    if step == at:
      os.kill(os.getpid(), signal.SIGTERM)
    count(self, step, *rest)

  patch.setattr(ledger.Ledger, 'count', count_and_ask)


def rows_of(workdir):
  """Returns all but times, in the order in which they were written."""
  rows = metrics.read_metrics(workdir)
  return [row for row in rows if not row[1].startswith('time/')]


@pytest.mark.parametrize('stop_at', [12, 19])
def test_stopped_and_continued_is_uninterrupted(
  finished, job, tmp_path, monkeypatch, stop_at
):
  config, workdir, results = finished
  with monkeypatch.context() as patch:
    asked_to_end(patch, stop_at)
    with pytest.raises(processes.Preempted):
      runs.train(config, tmp_path, shared=job)
  assert checkpoint.latest_step(tmp_path) == stop_at
  assert not metrics.is_scored(tmp_path, stop_at)  # 12 is to be
  continued = runs.train(config, tmp_path)
  for key in ('state_sha256', 'optimizer_sha256', 'metrics', 'best_step'):
    assert continued[key] == results[key]
  assert rows_of(tmp_path) == rows_of(workdir)


@pytest.mark.slow
def test_ended_in_evaluations_it_goes_on_with_them(
  finished, job, make_config, tmp_path, monkeypatch
):
  """By SIGTERM in the first, killed in the last, by SIGTERM in the results."""
  _, workdir, results = finished
  assert results['best_step'] < results['steps']  # so these score dev anew
  config = make_config(train__checkpoint_every=4, train__hang_minutes=1.0)
  eval_batches = batches.Batches.eval_batches
  for number, is_kill, step in ((1, False, 6), (5, True, 30), (2, False, 30)):
    begun = []

    def ended(self, *rest, number=number, is_kill=is_kill, begun=begun):
      begun.append(None)
      for batch in eval_batches(self, *rest):
        yield batch
        if len(begun) == number:
          if is_kill:
            raise KeyboardInterrupt
          os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
      patch.setattr(batches.Batches, 'eval_batches', ended)
      # A batch of 25 s, one read ahead: the limit is not of an evaluation.
      watch.install(patch, seconds_a_batch=25)
      with pytest.raises((processes.Preempted, KeyboardInterrupt)) as error:
        runs.train(config, tmp_path, shared=job)
    assert is_kill or f'step {step} is saved' in str(error.value)
    assert len(begun) == number
    assert checkpoint.latest_step(tmp_path) == step
  assert (
    runs.train(config, tmp_path)['state_sha256'] == (results['state_sha256'])
  )
  continued = workdirs.read_results(tmp_path)
  for key in ('optimizer_sha256', 'metrics', 'intervals', 'best_step'):
    assert continued[key] == results[key]
  assert rows_of(tmp_path) == rows_of(workdir)


@pytest.mark.slow
@pytest.mark.parametrize(('saved', 'every'), [(True, 4), (True, 6), (False, 4)])
def test_killed_while_a_best_model_was_kept(
  finished, job, tmp_path, monkeypatch, saved, every
):
  config, workdir, results = finished
  config = config.copy_and_resolve_references().unlock()
  config.train.checkpoint_every = every  # dev is scored every 6
  config.lock()
  save = checkpoint.Checkpoints.save

  def killed(self, step, state, notes=None):
    is_model = self.folder.parent.name == workdirs.MODEL_FOLDER
    if saved or not is_model:
      save(self, step, state, notes)
      self.finish()
    else:  # orbax was at work
      (self.folder / f'{step}.orbax-checkpoint-tmp' / 'default').mkdir(
        parents=True, exist_ok=True
      )
    if is_model:
      raise KeyboardInterrupt

  for _ in range(2):  # at a best one, and again
    with monkeypatch.context() as patch:
      patch.setattr(checkpoint.Checkpoints, 'save', killed)
      with pytest.raises(KeyboardInterrupt):
        runs.train(config, tmp_path / 'killed', shared=job)
  continued = runs.train(config, tmp_path / 'killed')
  assert continued['state_sha256'] == results['state_sha256']
  assert continued['best_step'] == results['best_step']
  assert rows_of(tmp_path / 'killed') == rows_of(workdir)


@pytest.mark.slow
def test_batches_ahead_of_time_are_the_same(finished, make_config, tmp_path):
  _, _, results = finished
  again = runs.train(make_config(data__loader='tf'), tmp_path)
  assert again['state_sha256'] == results['state_sha256']


@pytest.mark.slow
def test_it_stops_where_numbers_end_and_tells_of_the_global_batch(
  make_config, tmp_path, monkeypatch
):
  """The second of two hosts feeds the second half of a batch."""
  local_rows = sharding.local_rows

  def second_half(mesh, size):
    rows = local_rows(mesh, size)
    return rows[size // 2 :] if size == 16 else rows

  monkeypatch.setattr(sharding, 'local_rows', second_half)
  config = make_config(
    optim__learning_rate=1e30,
    optim__schedule='constant',
    optim__clip_norm=1e30,
    eval__global_batch=8,
  )
  with pytest.raises(FloatingPointError, match='not finite in step') as error:
    runs.train(config, tmp_path)
  assert 'classifier/kernel' in str(error.value)
  (path,) = tmp_path.glob('nonfinite-step-*.npz')
  assert np.load(path)['tokens'].shape[0] == 16
  assert not (tmp_path / 'results.json').exists()


@pytest.mark.parametrize('select', task_plan.SELECT)
def test_parameters_that_overflow_are_not_kept(
  make_config, tmp_path, monkeypatch, select
):
  make_schedule = optim.make_schedule

  def exploding(optim_config, phases):
    schedule = make_schedule(optim_config, phases)
    return lambda step: jnp.where(step == 11, jnp.inf, schedule(step))

  monkeypatch.setattr(optim, 'make_schedule', exploding)
  config = make_config(train__num_epochs=2.0, train__select=select)
  with pytest.raises(
    FloatingPointError, match='after step 12.* checkpoint of step 6 is kept'
  ) as error:
    runs.train(config, tmp_path, fresh=True)
  kept = checkpoint.latest_step(tmp_path / workdirs.MODEL_FOLDER)
  assert kept == (6 if select == 'best' else None)
  assert ('best model so far, of step 6' in str(error.value)) == bool(kept)
  assert checkpoint.latest_step(tmp_path) == 6
  assert not (tmp_path / 'results.json').exists()


def test_processes_compare_what_they_read(
  make_config, own_set, tmp_path, monkeypatch
):
  told = []

  def gather(text):
    """The other process has another dev set, of the same size."""
    if 'the examples of own, dev' not in text:
      return [text, text]
    told.append(json.loads(text))
    return [text, json.dumps(told[0] | {'the examples of own, dev': 'another'})]

  monkeypatch.setattr(processes, 'gather', gather)
  monkeypatch.setattr(processes, 'is_alone', lambda: False)
  with pytest.raises(
    ValueError, match=r'differ:\n  the examples of own, dev: '
  ):
    runs.train(make_config(), tmp_path / 'run')
  other = shutil.copytree(own_set, tmp_path / 'set')
  text = (other / 'dev.jsonl').read_text()
  (other / 'dev.jsonl').write_text(text.replace('good', 'bad', 1))
  with pytest.raises(ValueError, match='the examples of own, dev'):
    runs.train(make_config(data__source=str(other)), tmp_path / 'other')
  here, there = told
  differing = {name for name in here if here[name] != there[name]}
  assert differing == {'the examples of own, dev'}


@pytest.mark.slow
def test_seeds_share_what_is_compiled(make_config, tmp_path):
  config = make_config(train__num_epochs=1.0)
  mesh = sharding.make_mesh(config.mesh)
  job = finetune.plan(config, mesh)
  first = runs.train(config, tmp_path / '0', shared=job)
  programs = job.steps['train']._cache_size()
  assert programs >= 1
  other = make_config(train__num_epochs=1.0, train__seed=1)
  shared = runs.train(other, tmp_path / '1', shared=job)
  # Lengths that the first seed's batches did not have may come.
  assert job.steps['train']._cache_size() <= programs + 1
  assert job.draw._cache_size() == 1
  alone = runs.train(other, tmp_path / 'alone')
  assert shared['state_sha256'] == alone['state_sha256']
  assert shared['state_sha256'] != first['state_sha256']


@pytest.mark.slow
def test_the_best_model_is_kept_or_the_last(make_config, tmp_path):
  # A rate so large that late steps spoil what was learnt.
  changes = dict(
    optim__learning_rate=0.5, optim__schedule='constant', train__num_epochs=3.0
  )
  scores = {}
  for select in task_plan.SELECT:
    config = make_config(train__select=select, **changes)
    results = runs.train(config, tmp_path / select)
    scores[select] = results['metrics'][ACCURACY]
    if select == 'last':
      assert results['best_step'] == results['steps']
    found = opened.open_weights(tmp_path / select)
    assert 'classifier/kernel' in found.shapes
  assert scores['best'] >= scores['last']


@pytest.mark.slow
def test_it_stops_early(make_config, tmp_path):
  config = make_config(
    train__patience=2, train__num_epochs=20.0, optim__learning_rate=1e-9
  )
  results = runs.train(config, tmp_path)
  # Nothing is learnt: the first score stays the best of three.
  assert results['steps'] == 18
  assert results['best_step'] == 6
  assert runs.train(config, tmp_path) == results


@pytest.mark.slow
def test_a_halved_rate_is_continued(make_config, tmp_path, monkeypatch):
  config = make_config(
    train__plateau=0,
    train__steps=8,
    train__eval_every=2,
    train__log_every=1,
    optim__learning_rate=1e-5,
    optim__schedule='constant',
    optim__warmup_fraction=0.0,
  )
  mesh = sharding.make_mesh(config.mesh)
  job = finetune.plan(config, mesh)
  results = runs.train(config, tmp_path / 'whole', shared=job)
  rows = rows_of(tmp_path / 'whole')
  scores = [score for _, name, score in rows if name == ACCURACY]
  rule = Keep(ACCURACY, best=True, patience=None, plateau=0)
  factors = [rule.rate(scores[: step // 2]) for step in range(8)]
  assert factors[5] < 1
  np.testing.assert_array_equal(
    [rate for _, name, rate in rows if name == 'train/learning_rate'],
    np.float32(1e-5) * np.float32(factors),
  )
  with monkeypatch.context() as patch:
    asked_to_end(patch, 5 + (factors[4] == 1))
    with pytest.raises(processes.Preempted):
      runs.train(config, tmp_path / 'ended', shared=job)
  continued = runs.train(config, tmp_path / 'ended', shared=job)
  for key in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert continued[key] == results[key]
  assert rows_of(tmp_path / 'ended') == rows
  # The factor is that of the updates.
  with sharding.scope(mesh, config.mesh.rules):
    begun = job.begin(0)
    before = jax.device_get(begun.params)
    batches = job.tasks[0].splits['train'].batches
    batch = batches.train_batch(0, slice(0, 16), 16, 0, 8)
    state, _ = job.steps['train'](
      begun, sharding.put_batch(batch, mesh), jnp.int32(0), jnp.float32(0.0)
    )
  jax.tree.map(np.testing.assert_array_equal, before, state.params)


def test_a_frozen_encoder_stays_as_it_was(make_config, tmp_path):
  config = make_config(
    task__frozen=True,
    task__features='mix',
    task__bilstm_layers=1,
    task__bilstm_dim=8,
    train__num_epochs=1.0,
  )
  mesh = sharding.make_mesh(config.mesh)
  job = finetune.plan(config, mesh)
  with sharding.scope(mesh, config.mesh.rules):
    before = jax.device_get(job.begin(0).params)
  runs.train(config, tmp_path / 'run', shared=job)
  with pytest.raises(ValueError, match=r'no class of Hugging Face has.*bilstm'):
    folders.export(tmp_path / 'run', tmp_path / 'exported')
  assert not (tmp_path / 'exported').exists()
  found = opened.open_weights(tmp_path / 'run')
  found.check_complete()
  after = jax.device_get(found.load(found.on_one_device()))
  for name in ('embeddings', 'layers'):
    jax.tree.map(np.testing.assert_array_equal, before[name], after[name])
  for name in ('classifier', 'bilstm'):
    assert any(
      (a != b).any()
      for a, b in zip(
        jax.tree.leaves(before[name]), jax.tree.leaves(after[name]), strict=True
      )
    )


def test_weights_and_layers_that_are_taken_over(
  finished, make_config, tmp_path
):
  _, workdir, _ = finished
  taken = opened.open_weights(workdir)
  theirs = jax.device_get(taken.load(taken.on_one_device()))
  config = make_config(init__weights=str(workdir), init__num_layers=1)
  mesh = sharding.make_mesh(config.mesh)
  job = finetune.plan(config, mesh)
  with sharding.scope(mesh, config.mesh.rules):
    ours = jax.device_get(job.begin(3).params)
  a, b = (
    tree['layers']['attention']['qkv']['kernel'] for tree in (theirs, ours)
  )
  np.testing.assert_array_equal(a[0], b[0])
  assert (a[1] != b[1]).any()
  # The same labels: the head is theirs too.
  np.testing.assert_array_equal(
    theirs['classifier']['kernel'], ours['classifier']['kernel']
  )


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'init__weights': None}, 'init.weights is empty'),
    ({'data__source': None}, 'data.source is empty'),
    ({'task__name': 'mrcp'}, "found no task 'mrcp'"),
    ({'task__max_length': 4}, 'task.max_length=4: expected 8 to 64'),
    (
      {'train__global_batch': 15, 'train__micro_batches': 2},
      'micro_batches=2 x 1',
    ),
    ({'train__select': 'first'}, 'train.select'),
    ({'init__num_layers': 3}, 'expected 0 to 2'),
    ({'optim__warmup_fraction': 1.5}, 'warmup_fraction'),
    ({'own__kind': 'poetry'}, 'poetry'),
    ({'train__platform': 'tpu'}, 'tpu'),
  ],
)
def test_what_makes_no_sense_is_refused(
  make_config, tmp_path, changes, message
):
  with pytest.raises((ValueError, OSError), match=message):
    runs.train(make_config(**changes), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_another_config_is_refused(finished, make_config):
  _, workdir, _ = finished
  with pytest.raises(ValueError, match=r'optim\.learning_rate: 0\.005 there'):
    runs.train(make_config(optim__learning_rate=1e-4), workdir)


def test_a_dry_run_downloads_no_set(
  make_config, own_set, tmp_path, monkeypatch
):
  here = {'glue/mrpc', 'hf:near:train', 'hf:near:dev', 'hf:near'}
  monkeypatch.setattr(
    tfds_text, 'is_prepared', lambda name, _=None: name in here
  )
  monkeypatch.setitem(
    data_sets._HUB, 'is_prepared', lambda spec, *_: spec in here
  )
  splits = {'own.train': 'train', 'own.dev': 'dev', 'own.test': None}

  def of_own(source, **changes):
    changes = splits | {'data.source': source} | changes
    return make_config(**changes)

  def of_task(name, source='tfds'):
    config = settings.load_config(f'transfer:task={name}')
    return settings.with_overrides(config, {'data.source': source})

  near, far = of_own('hf:near'), of_own('hf:far')
  student = student_of(near, 'teacher', distill__text='hf:more')
  for config, message in (
    (far, 'own.train: hf:far:train is not downloaded, and a dry run does not'),
    (of_own('hf:near', own__test='test'), 'own.test: hf:near:test is not down'),
    (of_task('rte'), 'data.source=tfds: train of RTE is not downloaded, and'),
    # Its diagnostic set is of another data set.
    (of_task('mnli', 'tfds:sets'), 'data.source=tfds:sets: train of MNLI is'),
    (student, 'distill.text: hf:more is not downloaded, and a dry run'),
  ):
    with pytest.raises(ValueError, match=message):
      finetune.check_config(config, dry_run=True)
    finetune.check_config(config)  # a run downloads it
  here.add('glue/mnli')
  with pytest.raises(ValueError, match='tfds: diagnostic of MNLI is not downl'):
    finetune.check_config(of_task('mnli'), dry_run=True)
  student.distill.text = 'hf:near'
  for config in (
    near,
    student,
    of_task('mrpc'),
    make_config(),
    of_task('rte', str(tmp_path)),
    of_own(f'hf:{own_set}'),
    of_task('rte', None),
  ):
    finetune.check_config(config, dry_run=True)


def test_a_data_set_on_cloud_storage(
  make_config, own_set, gs, loopback, tmp_path
):
  for split in ('train', 'dev'):
    lines = (own_set / f'{split}.jsonl').read_text().splitlines()
    file = tmp_path / f'{split}.parquet'
    parquet.write_table(
      pa.Table.from_pylist([json.loads(line) for line in lines]), file
    )
    loopback.storage.put(gs[5:], f'set/{file.name}', file.read_bytes())
  splits = {'own.train': 'train', 'own.dev': 'validation', 'own.test': None}
  config = make_config(**splits, **{'data.source': f'hf:{gs}/set'})
  storage.check_buckets(command.paths_of(config))
  finetune.check_config(config, dry_run=True)
  there = finetune.make(config, tmp_path / 'run')
  here = finetune.make(make_config(**{'own.test': None}), tmp_path / 'run')
  for split in ('train', 'dev'):
    assert (
      there.tasks[0].splits[split].examples
      == here.tasks[0].splits[split].examples
    )
  with pytest.raises(ValueError, match='gs:/set: expected gs://BUCKET/NAME'):
    config.data.source = 'hf:gs:/set'
    storage.check_buckets(command.paths_of(config))


@pytest.mark.slow
def test_long_texts_of_a_data_set_are_read_in_windows(make_config, tmp_path):
  """Each window is learnt from; a text has the mean of its windows' chances."""
  source = pathlib.Path(make_config().data.source)
  (tmp_path / 'set').mkdir()
  for split in ('train', 'dev'):
    lines = (source / f'{split}.jsonl').read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
      row['text'] = ' '.join([row['text']] * (1 + len(row['text']) % 3))
    path = tmp_path / 'set' / f'{split}.parquet'
    parquet.write_table(pa.Table.from_pylist(rows), path)
  config = make_config(
    **{
      'data.source': f'hf:{tmp_path / "set"}',
      'own.train': 'train',
      'own.dev': 'validation',
      'own.test': None,
      'task.long_text': 'windows',
      'task.max_length': 10,
      'task.doc_stride': 4,
    }
  )
  results = runs.train(config, tmp_path / 'run')
  assert results['metrics'][ACCURACY] > 0.8
  lines = (tmp_path / 'run/predictions/dev.jsonl').read_text().splitlines()
  assert len(lines) == len(rows)
