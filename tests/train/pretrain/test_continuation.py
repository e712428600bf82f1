"""Which pre-training runs may continue, and what to type for the others."""

import functools
import json
import re
import shlex
import shutil

import pytest
import runs
from word2vec_runs import make_store
from word2vec_runs import small_config as word_config

from train.pretrain import job
from train.run import metrics

# Meshes have tests of their own.
pytestmark = pytest.mark.usefixtures('one_device')


@pytest.mark.slow
def test_a_phase_that_changes_nothing_before_may_follow(
  finished, small_config, tmp_path
):
  workdir = tmp_path / 'copy'
  shutil.copytree(finished[0], workdir)
  phases = ((12, 32, 16, 'continue'), (4, 64, 8, 'restart'))
  restarts = ((1e-3, 5),)
  results = runs.train(
    small_config(train__phases=phases, optim__restarts=restarts), workdir
  )
  assert results['steps'] == 16
  losses = [r for r in metrics.read_metrics(workdir) if r[1] == 'train/loss']
  assert [step for step, _, _ in losses] == [4, 8, 12, 16]
  rate = results['metrics']['train/learning_rate']
  assert rate == pytest.approx(1e-3 * 3 / 5)
  # Of a phase that has begun, the rates are done.
  with pytest.raises(ValueError, match=r'optim.restarts: \[\[0.001, 5\]\]'):
    runs.train(small_config(train__phases=phases), workdir)


def retyped(config, error):
  """Returns a config with the overrides that a message says to type."""
  (line,) = re.findall('  (--config.train.phases.*)', str(error.value))
  return runs.parse(config, shlex.split(line))


@pytest.mark.parametrize(
  'batch',
  [{}, {'train__global_batch': 16}],
)
def test_what_to_type_to_train_on_stands_in_the_message(
  finished, small_config, tmp_path, batch
):
  """The rate of `finished` ended at 0 after 12 steps."""
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  longer = small_config(train__steps=20, **batch)
  with pytest.raises(ValueError, match='would change the steps') as error:
    runs.train(longer, workdir, dry_run=True)
  config = retyped(longer, error)
  assert [phase[0] for phase in config.train.phases] == [12, 8]
  assert config.train.steps is None
  runs.train(config, workdir, dry_run=True)
  assert f'--config.init.weights={workdir}' in str(error.value)


@pytest.mark.parametrize(
  ('name', 'change'),
  [
    ('word2vec_novels', {}),  # its rate falls to 0
    ('glove_novels', {'optim__learning_rate': 0.01}),
  ],
)
def test_the_line_to_type_counts_no_epochs(name, change, tmp_path):
  store, workdir = make_store(tmp_path), tmp_path / 'run'
  counted = {'train__phases': ((1, 64, 8, 'continue'),)}
  small = functools.partial(word_config, store, name, **counted)
  done = runs.train(small(train__num_epochs=1.0), workdir)['steps']
  longer = small(train__num_epochs=2.0, **change)
  with pytest.raises(ValueError, match='would change the steps') as error:
    runs.train(longer, workdir, dry_run=True)
  config = retyped(longer, error)
  assert config.train.num_epochs is None
  steps = [phase[0] for phase in config.train.phases]
  assert len(steps) == 2 and steps[0] == done
  runs.train(config, workdir, dry_run=True)


@pytest.mark.parametrize(
  'rates',
  [
    {'optim__schedule': 'linear'},
    {'optim__learning_rate': 5e-4},
    {'optim__schedule': 'wsd', 'optim__decay_share': 0.5},
  ],
)
def test_the_line_to_type_leaves_done_steps_their_rates(
  finished, small_config, tmp_path, rates
):
  """What was printed is taken, though the command had other rates."""
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  file = workdir / 'config.json'
  config = json.loads(file.read_text())
  before = rates.get('optim__schedule', 'constant')
  if before != 'wsd':
    before = 'constant'
    del config['optim']['decay_share']  # as an older version wrote it
  config['optim']['schedule'] = before
  file.write_text(json.dumps(config))
  longer = small_config(train__steps=20, **rates)
  with pytest.raises(ValueError, match='would change the steps') as error:
    runs.train(longer, workdir, dry_run=True)
  assert f'the schedule {before!r} anew' in str(error.value)
  job.make(retyped(longer, error), workdir)


@pytest.mark.parametrize(
  'change',
  [
    {'optim__weight_decay': 0.1, 'optim__clip_norm': 2.0},
    {'objective__mask_rate': 0.2, 'train__objective': 'mlm'},
    {'model__dropout_rate': 0.0},
    {'data__held_out': 0.1, 'data__folder': None},
  ],
)
def test_a_new_run_from_the_weights_is_named(
  finished, small_config, tmp_path, monkeypatch, change
):
  """Of other values than those of the schedule, and of another store."""
  monkeypatch.chdir(tmp_path)  # for the other store
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  if 'data__folder' in change:
    change = change | {'data__tokenizer': str(workdir)}
  config = small_config(**change)
  with pytest.raises(ValueError) as error:
    runs.train(config, workdir, dry_run=True)
  (line,) = re.findall('  (--workdir=ANOTHER .*)', str(error.value))
  another, *words = shlex.split(line)
  assert another == '--workdir=ANOTHER'
  new = job.make(runs.parse(config, words), tmp_path / 'new')
  assert new.total_steps == 12


@pytest.mark.parametrize(
  ('change', 'cure'),
  [
    ({'model__num_layers': 3}, '--config.model.num_layers=2'),
    (
      {'data__tokenizer': 'train:wordpiece:400', 'data__folder': None},
      'prepare the text with --tokenizer',
    ),
  ],
)
def test_weights_that_do_not_fit_begin_no_run(
  finished, small_config, tmp_path, monkeypatch, change, cure
):
  monkeypatch.chdir(tmp_path)
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  with pytest.raises(ValueError, match='No new run of this config') as error:
    runs.train(small_config(**change), workdir, dry_run=True)
  assert cure in str(error.value) and 'ANOTHER' not in str(error.value)


def test_fewer_steps_than_are_done_are_told(finished, small_config, tmp_path):
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  with pytest.raises(ValueError, match='holds 12 steps, .* has only 5: expect'):
    runs.train(small_config(train__steps=5), workdir, dry_run=True)


def test_a_wsd_goes_on_before_its_fall(
  finished, small_config, tmp_path, capsys
):
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  shutil.rmtree(workdir / 'checkpoints' / '12')
  file = workdir / 'config.json'
  config = json.loads(file.read_text())
  config['optim']['schedule'] = 'wsd'  # falls in the last two or three steps
  file.write_text(json.dumps(config))
  longer = {'train__steps': 20, 'optim__schedule': 'wsd'}
  runs.train(small_config(**longer), workdir, dry_run=True)
  assert '20 steps of 16 x 32 tokens' in capsys.readouterr().out
  # The share of masks of done steps must stay, too.
  config['objective']['first_mask_rate'] = 0.3
  file.write_text(json.dumps(config))
  longer['objective__first_mask_rate'] = 0.3
  with pytest.raises(ValueError, match='would change the steps'):
    runs.train(small_config(**longer), workdir, dry_run=True)


def test_before_its_fall_a_wsd_takes_another_share(
  finished, small_config, tmp_path
):
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  shutil.rmtree(workdir / 'checkpoints' / '12')
  file = workdir / 'config.json'
  config = json.loads(file.read_text())
  config['optim']['schedule'] = 'wsd'
  file.write_text(json.dumps(config))
  wsd = {'optim__schedule': 'wsd'}
  runs.train(small_config(**wsd, optim__decay_share=0.1), workdir, dry_run=True)
  with pytest.raises(ValueError, match='change .*\n.*decay_share: 0.2 there'):
    runs.train(
      small_config(**wsd, optim__decay_share=0.9), workdir, dry_run=True
    )


def test_a_run_that_has_not_ended_is_to_end_first(
  finished, small_config, tmp_path
):
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  shutil.rmtree(workdir / 'checkpoints' / '12')
  with pytest.raises(ValueError, match='let this one end first'):
    runs.train(small_config(train__steps=20), workdir, dry_run=True)


def test_a_constant_rate_just_goes_on(finished, small_config, tmp_path, capsys):
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  file = workdir / 'config.json'
  config = json.loads(file.read_text())
  config['optim'] |= {'schedule': 'constant', 'warmup_steps': 0}
  file.write_text(json.dumps(config))
  longer = small_config(
    train__steps=20, optim__schedule='constant', optim__warmup_steps=0
  )
  runs.train(longer, workdir, dry_run=True)
  assert '20 steps of 16 x 32 tokens' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize('schedule', ['constant', 'wsd'])
def test_a_longer_run_is_a_run_that_was_planned_so(
  schedule, small_config, tmp_path
):
  """More steps, of a wsd before its fall, end with the same bits."""
  of = functools.partial(
    small_config, optim__schedule=schedule, optim__warmup_steps=2
  )
  workdir = tmp_path / 'run'
  runs.train(of(), workdir)
  if schedule == 'wsd':  # falls in the last two or three steps
    shutil.rmtree(workdir / 'checkpoints' / '12')
  found = runs.train(of(train__steps=20), workdir)
  planned = runs.train(of(train__steps=20), tmp_path / 'planned')
  assert found['steps'] == 20
  assert found['state_sha256'] == planned['state_sha256']
  rates = [r for r in metrics.read_metrics(workdir) if r[1].endswith('_rate')]
  assert [step for step, _, _ in rates] == [4, 8, 12, 16, 20]
  assert all(rate > 0 for _, _, rate in rates[:-1])
