"""The plan of a pre-training run."""

import json
import types

import jax
import pytest
import runs
from text_stores import build_quietly

from data.text import tfds_text
from train.engine import sharding
from train.pretrain import job, plan
from train.run import settings, training_phases

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
