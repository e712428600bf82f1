"""Students learn from teachers, of every kind, and go on where they ended."""

import dataclasses
import json
import os
import signal

import numpy as np
import pyarrow as pa
import pytest
import runs
from pyarrow import parquet
from students import student_of

from train.engine import sharding
from train.host import processes
from train.run import checkpoint, ledger, metrics, settings
from train.transfer import (
  distillation,
  finetune,
  predictors,
  task_data,
  teachers,
)

pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module', autouse=True)
def cache(tmp_path_factory):
  """The user's cache, empty, for outputs that students share."""
  folder = tmp_path_factory.mktemp('cache')
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('XDG_CACHE_HOME', str(folder))
    yield folder


def log_softmax(x):
  x = np.asarray(x, np.float64)
  x = x - x.max(axis=-1, keepdims=True)
  return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def kl(ours, theirs, temperature):
  """KL(teacher || student) of one pair of logits, times T^2, in float64."""
  log_theirs = log_softmax(np.asarray(theirs) / temperature)
  log_ours = log_softmax(np.asarray(ours) / temperature)
  return temperature**2 * sum(
    np.exp(t) * (t - s) for t, s in zip(log_theirs, log_ours, strict=True)
  )


def settings_of(loss='probabilities', temperature=2.0):
  config = settings.load_config('distill:task=sst2')
  changes = {'distill.loss': loss, 'distill.temperature': temperature}
  return settings.with_overrides(config, changes).distill


@pytest.mark.parametrize('loss', ['probabilities', 'logits'])
@pytest.mark.parametrize('kind', ['classes', 'scores', 'spans'])
def test_losses_are_those_of_plain_loops(kind, loss):
  rng = np.random.default_rng(2)
  shape = {'classes': (4, 3), 'scores': (4, 1), 'spans': (4, 6, 2)}[kind]
  ours, theirs = rng.normal(size=(2, *shape)).astype(np.float32)
  lengths = [6, 3, 5, 1]
  mask = np.arange(6) < np.array(lengths)[:, None]
  batch = {'teacher_logits': theirs, 'token_mask': mask}
  found = distillation.soft_losses(
    settings_of(loss), kind, {'logits': ours}, batch
  )
  expected = []
  for i, length in enumerate(lengths):
    s, t = ours[i].astype(np.float64), theirs[i].astype(np.float64)
    if kind == 'spans':
      ends = [(s[:length, k], t[:length, k]) for k in (0, 1)]
    else:
      ends = [(s, t)]
    if loss == 'logits' or kind == 'scores':
      values = [((a - b) ** 2).sum() for a, b in ends]
    else:
      values = [kl(a, b, 2.0) for a, b in ends]
    expected.append(np.mean(values))
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_spans_at_a_low_temperature_are_finite():
  logits = np.zeros((1, 4, 2), np.float32)
  batch = {
    'teacher_logits': logits + np.arange(4)[None, :, None],
    'token_mask': np.array([[True, True, False, False]]),
  }
  found = distillation.soft_losses(
    settings_of(temperature=0.1), 'spans', {'logits': logits}, batch
  )
  assert np.isfinite(found).all() and found > 0


# ---- Runs -------------------------------------------------------------------

KINDS = ['own pairs', 'own scores', 'own tags', 'own choices', 'own questions']


def planned(config):
  """Returns the plan of a student whose teacher has answered."""
  finetune.check_config(config)
  job = finetune.plan(config, sharding.make_mesh(config.mesh))
  job.tasks[0]._ask_teacher()
  return job


@pytest.mark.parametrize('kind', KINDS)
def test_a_batch_has_the_outputs_of_its_rows(run_of, kind):
  config, workdir, _ = run_of(kind)
  config = student_of(config, workdir)
  job = planned(config)
  program = job.tasks[0]
  split = program.splits['train']
  batch = split.batches.train_batch(0, slice(2, 6), 8, 0, 4)
  assert np.isfinite(batch['teacher_logits']).all()
  # The teacher reads the same rows: it has the same vocabulary.
  teacher = program.teacher
  params = teacher.load()
  mesh = teacher.program.mesh
  with sharding.scope(mesh, config.mesh.rules):
    step = teacher.program.predict_step
    outputs = step(params, sharding.put_batch(batch, mesh))
  logits = np.asarray(outputs['logits'])
  if program.kind.unit == 'text':
    mask = np.ones(len(logits), bool)
  elif program.kind.unit == 'word':
    mask = batch['tag_mask']
  else:
    mask = batch['token_mask']
  np.testing.assert_allclose(
    batch['teacher_logits'][mask], logits[mask], atol=1e-4
  )
  assert not batch['teacher_logits'][~mask].any()


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['own tags', 'own questions'])
def test_a_student_of_each_kind_learns(run_of, kind, tmp_path):
  config, workdir, _ = run_of(kind)
  results = runs.train(student_of(config, workdir), tmp_path / 'student')
  assert np.isfinite(results['metrics'][results['main_metric']])
  found = {name for _, name, _ in metrics.read_metrics(tmp_path / 'student')}
  assert {'train/soft_loss', 'train/task_loss'} <= found


@pytest.fixture(scope='module')
def learner(make_config, small_bert, tmp_path_factory):
  """A finished teacher of sentences, and the config of its student."""
  config = make_config(train__select='last', train__num_epochs=10.0)
  workdir = tmp_path_factory.mktemp('teachers') / 'teacher'
  results = runs.train(config, workdir)
  assert results['metrics']['eval/own/accuracy'] > 0.9
  changes = {'init__weights': str(small_bert), 'train__num_epochs': 5.0}
  return config, workdir, student_of(config, workdir, **changes)


@pytest.fixture(scope='module')
def taught(learner, tmp_path_factory):
  """A finished student: its config, workdir and results."""
  workdir = tmp_path_factory.mktemp('students') / 'student'
  return learner[2], workdir, runs.train(learner[2], workdir)


def test_it_learns_and_is_smaller(taught, learner):
  config, workdir, results = taught
  assert results['metrics']['eval/own/accuracy'] > 0.9
  assert results['config']['model.num_layers'] == 1
  soft = [
    value
    for _, name, value in metrics.read_metrics(workdir)
    if name == 'train/soft_loss'
  ]
  assert soft[-1] < 0.7 * soft[0]
  # It is used as any fine-tuned model, without its teacher.
  _, _, predictions = predictors.predict(
    [workdir],
    lambda task: task_data.read_split(
      config, task_data.open_task(config), 'dev'
    ),
  )
  assert len(predictions) == 32


@pytest.mark.slow
def test_labels_alone_are_the_plain_fine_tuning(learner, small_bert, tmp_path):
  config, teacher, _ = learner
  plain = runs.train(config, tmp_path / 'plain')
  alone = student_of(
    config,
    teacher,
    distill__label_weight=1.0,
    init__weights=str(small_bert),
    init__layers=None,
  )
  results = runs.train(alone, tmp_path / 'alone')
  for key in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert results[key] == plain[key]


def test_ended_it_goes_on_to_the_same_bits_without_its_teacher(
  taught, tmp_path, monkeypatch
):
  config, _, expected = taught
  count = ledger.Ledger.count

  def count_and_ask(self, step, *rest):
    if step == 7:
      os.kill(os.getpid(), signal.SIGTERM)
    count(self, step, *rest)

  with monkeypatch.context() as patch:
    patch.setattr(ledger.Ledger, 'count', count_and_ask)
    with pytest.raises(processes.Preempted):
      runs.train(config, tmp_path)
  assert checkpoint.latest_step(tmp_path) == 7

  def no_teacher(*_):
    raise AssertionError('the outputs are kept')

  monkeypatch.setattr(teachers, 'open_teacher', no_teacher)
  results = runs.train(config, tmp_path)
  for key in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert results[key] == expected[key]


def test_kept_outputs_are_of_this_teacher_and_data(learner, tmp_path):
  config, teacher, student = learner
  file = tmp_path / teachers.OUTPUTS_FILE
  teachers.KeptOutputs(np.ones((96, 2), np.float32), 'x', 'y').write(tmp_path)
  program = planned(student).tasks[0]
  program.kept = None
  program.write(tmp_path)  # a run that begins: those of another are replaced
  found = teachers.KeptOutputs.read(tmp_path)
  assert found.outputs.std() > 0 and found.source == program.kept.source
  before = file.read_bytes()
  program.kept = None
  computed = []
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(teachers, 'compute', lambda *_: computed.append(None))
    program.write(tmp_path)  # its own are read
  assert not computed and file.read_bytes() == before
  assert program.files()["the teacher's outputs"] == found.digest
  # A run that goes on: of other examples they are refused.
  program.workdir = tmp_path
  fewer = settings.with_overrides(student, {'data.train_limit': 48})
  program.config = fewer
  with pytest.raises(ValueError, match='teacher.npz has the outputs of other'):
    program.open_splits(['train'])


def test_other_students_read_the_outputs_that_one_left(
  learner, tmp_path, monkeypatch, capsys
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  _, _, student = learner
  programs = [planned(student).tasks[0] for _ in range(3)]
  for name, program in zip('abc', programs, strict=True):
    (tmp_path / name).mkdir()
    program.kept = None
  programs[0].write(tmp_path / 'a')
  kept = programs[0].kept
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(teachers, 'compute', None)
    programs[1].write(tmp_path / 'b')
  assert programs[1].kept.source == kept.source
  np.testing.assert_array_equal(programs[1].kept.outputs, kept.outputs)
  assert (tmp_path / 'b' / teachers.OUTPUTS_FILE).exists()
  said = capsys.readouterr().err
  assert 'outputs of 96 examples are those that another student left.' in said
  # A damaged copy is made again.
  (copy,) = (tmp_path / 'cache').rglob(teachers.OUTPUTS_FILE)
  copy.write_bytes(b'damaged')
  programs[2].write(tmp_path / 'c')
  assert 'outputs of 96 examples took' in capsys.readouterr().err
  np.testing.assert_array_equal(programs[2].kept.outputs, kept.outputs)
  assert teachers.KeptOutputs.read(copy.parent).source == kept.source


def test_rows_without_labels_learn_from_the_teacher_alone(learner, tmp_path):
  config, workdir, student = learner
  lines = ['the function returns a value', '', 'the list raises a name now']
  (tmp_path / 'more.txt').write_text('\n'.join(lines) + '\n')
  more = settings.with_overrides(
    student,
    {
      'distill.text': str(tmp_path / 'more.txt'),
      'data.train_limit': 6,
      'train.global_batch': 8,
      'train.steps': 1,
    },
  )
  job = planned(more)
  program = job.tasks[0]
  split = program.splits['train']
  assert len(split.examples) == 8
  batch = split.batches.train_batch(0, slice(None), 8, 0, 1)
  assert batch['label_mask'].sum() == 6
  assert np.isfinite(batch['teacher_logits']).all()
  teacher = program.teacher
  expected = teachers.compute(teacher, teacher.load(), split.examples)
  outputs = {'logits': np.zeros((8, 2), np.float32)}
  sums, _ = program.losses(outputs, batch)
  divisors = program.weights(batch)
  soft = np.mean([kl([0, 0], row, 2.0) for row in expected])
  np.testing.assert_allclose(
    sums['soft'][0] / divisors['soft'], 0.5 * soft, rtol=1e-5
  )
  # The labels' loss is a mean over rows with a label.
  np.testing.assert_allclose(
    sums['task'][0] / divisors['task'], 0.5 * np.log(2), rtol=1e-6
  )


def test_files_of_the_task_s_own_form_lose_their_labels(learner, tmp_path):
  config, _, student = learner
  task = task_data.open_task(student)
  file = tmp_path / 'more.jsonl'
  row = {'text': 'the value gives a list', 'label': 'good'}
  file.write_text(json.dumps(row) + '\n')
  (found,) = distillation.read_unlabelled(task, str(file))
  assert found.label is None and found.texts == (row['text'],)
  parquet.write_table(pa.Table.from_pylist([row]), tmp_path / 'train.parquet')
  assert distillation.read_unlabelled(task, f'hf:{tmp_path}') == [
    dataclasses.replace(found, id='0')
  ]
  with pytest.raises(ValueError, match='distill.text .*: found a folder'):
    distillation.read_unlabelled(task, str(tmp_path))
  (tmp_path / 'wide.txt').write_text('one\ttwo\n')
  with pytest.raises(ValueError, match='wide.txt, line 1: found 2 texts'):
    distillation.read_unlabelled(task, str(tmp_path / 'wide.txt'))
  (tmp_path / 'empty.txt').write_text('\n')
  with pytest.raises(ValueError, match='found no line of text'):
    distillation.read_unlabelled(task, str(tmp_path / 'empty.txt'))


WORDS = {
  'model__lstm_dim': 16,
  'model__hidden_dim': 16,
  'model__dropout_rate': 0.0,
  'optim__learning_rate': 0.01,
  'task__word_dim': 16,
  'train__steps': 60,
  'train__patience': None,
}


@pytest.mark.slow
def test_bilstms_on_words_learn_from_a_bert(learner, tmp_path):
  config, workdir, _ = learner
  student = student_of(config, workdir, model='bcn', **WORDS)
  assert student.distill.loss == 'logits'  # as Tang et al. 2019
  assert student.distill.label_weight == 0
  results = runs.train(student, tmp_path / 'student')
  assert results['metrics']['eval/own/accuracy'] > 0.9


@pytest.mark.slow
def test_a_narrower_bert_begins_with_the_vocabulary_of_its_teacher(
  learner, tmp_path
):
  config, workdir, _ = learner
  student = student_of(
    config,
    workdir,
    init__layers=None,
    model__num_layers=1,
    model__embed_dim=16,
    model__num_heads=2,
    model__mlp_dim=32,
    model__max_length=32,
    train__steps=2,
  )
  results = runs.train(student, tmp_path / 'student')
  assert results['config']['model.embed_dim'] == 16
  assert results['config']['data.tokenizer'] is None
  vocabulary = (workdir / 'vocab.txt').read_bytes()
  assert (tmp_path / 'student' / 'vocab.txt').read_bytes() == vocabulary
