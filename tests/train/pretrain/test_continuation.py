"""Which pre-training runs may continue, and what to type for the others."""

import ast
import json
import re
import shutil

import pytest
import runs

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


def test_what_to_type_to_train_on_stands_in_the_message(
  finished, small_config, tmp_path
):
  """The rate of `finished` ended at 0 after 12 steps."""
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  longer = small_config(train__steps=20)
  with pytest.raises(ValueError, match='would change the steps') as error:
    runs.train(longer, workdir, dry_run=True)
  (line,) = re.findall('  --config.train.phases.*', str(error.value))
  said = dict(re.findall(r'--config\.(\S+)="(.*?)"', line))
  phases = ast.literal_eval(said['train.phases'])
  assert [phase[0] for phase in phases] == [12, 8]
  config = small_config(
    train__phases=phases,
    optim__restarts=ast.literal_eval(said['optim.restarts']),
  )
  runs.train(config, workdir, dry_run=True)
  assert f'--config.init.weights={workdir}' in str(error.value)


@pytest.mark.parametrize(
  'rates',
  [{'optim__schedule': 'linear'}, {'optim__learning_rate': 5e-4}],
)
def test_the_line_to_type_leaves_done_steps_their_rates(
  finished, small_config, tmp_path, rates
):
  """What was printed is taken, though the command had other rates."""
  workdir = shutil.copytree(finished[0], tmp_path / 'copy')
  file = workdir / 'config.json'
  config = json.loads(file.read_text())
  config['optim']['schedule'] = 'constant'
  file.write_text(json.dumps(config))
  with pytest.raises(ValueError, match='would change the steps') as error:
    runs.train(small_config(train__steps=20, **rates), workdir, dry_run=True)
  (line,) = re.findall('  --config.train.phases.*', str(error.value))
  said = dict(re.findall(r'--config\.(\S+)="(.*?)"', line))
  said = {key: ast.literal_eval(value) for key, value in said.items()}
  said |= dict(re.findall(r'--config\.(optim.schedule)=(\w+)', line))
  assert "the schedule 'constant' anew" in str(error.value)
  if 'optim__learning_rate' in rates:
    said['optim.learning_rate'] = float(
      re.findall(r'learning_rate=(\S+)', line)[0]
    )
  typed = {key.replace('.', '__'): value for key, value in said.items()}
  runs.train(small_config(**rates | typed), workdir, dry_run=True)


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
