"""Stages of units: masks and stores that change within a run."""

import json
import pydoc_data.topics
import re
import shutil

import numpy as np
import pytest
import runs
from text_stores import build_quietly

from data.examples import transforms
from data.store import corpus
from train.architectures import families
from train.pretrain import job
from train.run import settings, workdirs

# Meshes have tests of their own.
pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """Stores of one text with units of 2 and of 4 words, and one without."""
  folder = tmp_path_factory.mktemp('stages')
  topics = list(pydoc_data.topics.topics.values())[:40]
  tokenizer = 'train:wordpiece:500'
  for size in (2, 4, 0):

    def mark(text, size=size):
      count = iter(range(1 << 30))
      return re.sub(
        r'(?<= )(?=\w)',
        lambda _: '\t' if size and next(count) % size == 0 else '',
        text.replace('\t', ' '),
      )

    path = folder / f'{size}.txt'
    path.write_text(''.join(f'== topic\n{mark(text)}\n' for text in topics))
    build_quietly(
      path,
      tokenizer,
      folder / f'store{size}',
      document_break='== .*',
      held_out=0.1,
      unit_source='file' if size else 'wordpiece',
    )
    tokenizer = str(folder / 'store2')
  return folder


def config_of(small_config, folders, phases, **overrides):
  return small_config(
    **{
      'data__source': str(folders / '2.txt'),
      'data__folder': str(folders / 'store2'),
      'data__units': 'file',
      'data__held_out': 0.1,
      'optim__schedule': 'constant',
      'model__num_layers': 1,
      'model__scan_layers': False,
      'model__dropout_rate': 0.0,
      'model__attention_dropout_rate': 0.0,
      'train__phases': phases,
      'train__checkpoint_every': 1,
      'eval__max_windows': 16,
      **overrides,
    }
  )


@pytest.mark.slow
def test_stages_are_one_run_and_resume_to_the_bit(
  small_config, folders, tmp_path, capsys
):
  assert np.array_equal(
    *(corpus.open_store(folders / f'store{size}').tokens for size in (2, 4))
  )
  other = f'stored:{folders}/store4'
  phases = ((2, 32, 16, 'continue'), (3, 32, 16, 'continue', other))
  config = config_of(small_config, folders, phases)
  whole = runs.train(config, tmp_path)
  assert 'unit stored:' in ''.join(capsys.readouterr().err.split('\n'))
  digest = corpus.open_store(folders / 'store4').meta['digest']
  assert whole['store']['stages'] == {other: digest}

  # Back to the middle of the second stage, and on from there.
  for step in (4, 5):
    shutil.rmtree(tmp_path / 'checkpoints' / str(step))
  (tmp_path / 'results.json').unlink()
  changed = ((3, 32, 16, 'continue'), phases[1])
  with pytest.raises(ValueError, match='train.phases: '):
    job.make(config_of(small_config, folders, changed), tmp_path)
  # The folder of the stage may hold another store by then.
  file = tmp_path / workdirs.STORE_FILE
  described = file.read_text()
  file.write_text(described.replace(digest, 'gone'))
  with pytest.raises(
    ValueError, match=rf'{tmp_path}.* {digest}, expected gone'
  ):
    job.make(config, tmp_path)
  file.write_text(described)
  resumed = runs.train(config, tmp_path)
  for key in ('state_sha256', 'optimizer_sha256'):
    assert resumed[key] == whole[key]


def test_stages_read_their_marks(small_config, folders, tmp_path):
  other = f'stored:{folders}/store4'
  units = ((), ('stored',), (other,), ('word',))
  phases = tuple((1, 32, 64, 'continue', *unit) for unit in units)
  made = job.make(config_of(small_config, folders, phases), tmp_path)
  shares = []
  for step in range(4):
    window = made.batch(step, True)['window']
    shares.append((window >= transforms.UNIT_START).sum() / (window > 0).sum())
  assert shares[0] == shares[3] == 0
  assert shares[1] > 1.5 * shares[2] > 0.1
  assert list(made.steps)[:4] == [
    'train 32',
    'train 32 stored',
    f'train 32 {other}',
    'train 32 word',
  ]


@pytest.mark.parametrize(
  ('phases', 'overrides', 'message'),
  [
    ('stored', {'data__folder': '{}/store0'}, 'store0 has no units, which'),
    ('stored:{}/store0', {}, 'store0 has no units, which objective.unit='),
    ('stored:{}/none', {}, 'none is not a token store'),
    (
      'stored',
      {'data__folder': None, 'data__units': 'wordpiece'},
      "data.units='wordpiece': expected 'file' or 'jieba' for objective.unit=",
    ),
    ('words', {}, "has the unit 'words', expected one of"),
    ('stored:', {}, "has the unit 'stored:', expected one of"),
    (
      'word',
      {'train__objective': 'lm', 'model__left_to_right': True},
      "train.objective='lm' of model.name='bert' masks nothing",
    ),
    ('word', {'model__name': 'elmo'}, "model.name='elmo' masks nothing"),
    ('word', {'model__name': 'gpt'}, "'lm' of model.name='gpt' masks nothing"),
  ],
)
def test_wrong_stages_are_named(
  small_config, folders, tmp_path, phases, overrides, message
):
  overrides = {
    key: value.format(folders) if isinstance(value, str) else value
    for key, value in overrides.items()
  }
  phases = ((2, 32, 16, 'continue', phases.format(folders)),)
  if name := overrides.get('model__name'):
    config = settings.with_overrides(
      settings.load_config(f'{name}_tiny'), {'train.phases': phases}
    )
  else:
    config = config_of(small_config, folders, phases, **overrides)
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    families.check_config(config)
    job.make(config, tmp_path)


def test_a_stage_with_a_store_needs_no_units_in_the_text(small_config, folders):
  phases = tuple(
    (2, 32, 16, 'continue', *unit)
    for unit in ((), (f'stored:{folders}/store4',))
  )
  plain = {'data__folder': None, 'data__units': 'wordpiece'}
  families.check_config(config_of(small_config, folders, phases, **plain))


def test_a_store_of_another_vocabulary_is_refused(
  small_config, folders, small_store, tmp_path
):
  phases = ((2, 32, 16, 'continue', f'stored:{small_store}'),)
  config = config_of(small_config, folders, phases)
  with pytest.raises(ValueError, match='the store has another vocabulary'):
    job.make(config, tmp_path)
  described = json.loads((small_store / 'store.json').read_text())
  assert 'unit_source' not in described['request']
