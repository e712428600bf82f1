"""The plan of a pre-training run, and which runs may continue."""

import ast
import json
import re
import shutil
import types

import jax
import pytest
import runs
from text_stores import build_quietly

from data.text import tfds_text
from train.engine import sharding
from train.pretrain import job, plan
from train.run import metrics, settings, training_phases

# Meshes have tests of their own.
pytestmark = pytest.mark.usefixtures('one_device')


def test_a_batch_may_have_all_windows_of_the_text(small_config):
  (phase,) = training_phases.resolve_phases(small_config(), {})
  for windows in (phase.global_batch, phase.global_batch - 1):
    text = types.SimpleNamespace(num_windows=windows)
    text.check_text = lambda size: None
    if windows == phase.global_batch:
      plan.check_data({phase.kind: text}, [phase])
      continue
    with pytest.raises(ValueError, match='makes 15 windows of 32 tokens'):
      plan.check_data({phase.kind: text}, [phase])


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


def test_records_of_one_sentence_have_masks_but_no_next_sentence(
  small_config, tmp_path
):
  records = [
    f'Record {i} has one sentence, without another one in it.'
    for i in range(500)
  ]
  path = tmp_path / 'a.jsonl'
  path.write_text(
    ''.join(json.dumps({'text': each}) + '\n' for each in records)
  )
  build_quietly(str(path), 'train:wordpiece:200', tmp_path / 'store')
  changes = {'data__folder': str(tmp_path / 'store')}
  with pytest.raises(ValueError, match='masked tokens alone .*objective=mlm'):
    runs.train(small_config(**changes), tmp_path / 'run', dry_run=True)
  changes['train__objective'] = 'mlm'
  runs.train(small_config(**changes), tmp_path / 'run', dry_run=True)


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
  with pytest.raises(
    ValueError, match='would change .*\n.*decay_share: 0.2 th'
  ):
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


def test_a_dry_run_downloads_no_text(small_config, tmp_path, monkeypatch):
  monkeypatch.setattr(
    tfds_text, 'is_prepared', lambda spec, _=None: spec == 'here'
  )
  store = str(tmp_path / 'store')
  here, far = (
    small_config(data__source=f'tfds:{name}', data__folder=store)
    for name in ('here', 'far')
  )
  task = small_config(data__source='task:mrpc:tfds', data__folder=store)
  job.check_config(here, dry_run=True)
  job.check_config(far)  # a run downloads it
  with pytest.raises(ValueError, match='tfds:far is not downloaded, and a dry'):
    job.check_config(far, dry_run=True)
  with pytest.raises(ValueError, match='task:mrpc:tfds is not downloaded, and'):
    job.check_config(task, dry_run=True)
  (tmp_path / 'store').mkdir()
  (tmp_path / 'store' / 'store.json').touch()
  job.check_config(far, dry_run=True)


def test_dry_run_prints_the_plan_and_writes_nothing(
  small_config, tmp_path, capsys
):
  config = small_config(model__remat=True)
  assert runs.train(config, tmp_path / 'new', dry_run=True) is None
  text = capsys.readouterr().out
  for words in (
    'parameters',
    'embeddings/tokens/embedding',
    '16 rows a device',
    'GFLOP a step',
    'parameters, optimiser',
    'training step of 16 x 32',
    'evaluation of 16 x 32',
    'the program and its data',
  ):
    assert words in text, words
  assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize(
  ('name', 'devices'),
  [
    ('word2vec_novels', 1),
    ('word2vec_novels', 8),
    ('word2vec_large', 16),
    ('glove_novels', 8),
  ],
)
def test_updates_of_shipped_configs_divide(name, devices):
  check_updates(settings.load_config(name), devices)


def check_updates(config, devices):
  mesh = jax.sharding.AbstractMesh((devices, 1, 1), sharding.AXES)
  plan.check_batches(config, training_phases.check_phases(config), mesh)


def test_rows_of_an_update_that_do_not_divide_are_named():
  config = settings.with_overrides(
    settings.load_config('word2vec_novels'), {'objective.updates': 32}
  )
  check_updates(config, 4)
  message = 'batch 128: objective.updates=32 makes .* 4 rows, .* multiple of 8'
  with pytest.raises(ValueError, match=message):
    check_updates(config, 8)
