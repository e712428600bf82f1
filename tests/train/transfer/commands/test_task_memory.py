"""The memory of a fine-tuning, before it is spent."""

import json
import re

import pytest
import runs
from task_command import command

from train.engine import memory


@pytest.mark.slow
def test_minilm_answers_questions_in_little_memory(
  small_store, tmp_path, monkeypatch
):
  """Batches of 16 x 384 to train on and 64 x 384 to score, of the command."""
  paragraph = 'The cat sat on the mat. ' * 120
  question = {
    'id': 'a',
    'question': 'Where did the cat sit?',
    'answers': [{'text': 'the mat', 'answer_start': 15}],
  }
  squad = {
    'version': '1.1',
    'data': [
      {
        'title': 'Cat',
        'paragraphs': [{'context': paragraph, 'qas': [question]}],
      }
    ],
  }
  for split in ('train', 'dev'):
    (tmp_path / f'{split}-v1.1.json').write_text(json.dumps(squad))
  monkeypatch.delenv('XLA_FLAGS')  # as users compile
  done = command(
    'train.main',
    '--config',
    'transfer:task=squad1',
    '--dry_run',
    f'--config.data.source={tmp_path}',
    f'--config.data.tokenizer={small_store}',
    '--config.model.num_layers=6',
    '--config.model.embed_dim=384',
    '--config.model.num_heads=12',
    '--config.model.mlp_dim=1536',
    '--config.train.global_batch=16',
    '--config.eval.global_batch=64',
    '--config.train.platform=cpu',
    '--config.data.loader=plain',
  )
  assert done.returncode == 0, done.stderr
  steps = re.findall(
    r'(training step|scoring) of (\d+ x 384) +([\d.]+) ([MG])iB', done.stdout
  )
  sizes = {
    name: (shape, float(size) * (1 if unit == 'G' else 1 / 1024))
    for name, shape, size, unit in steps
  }
  assert sizes.keys() == {'training step', 'scoring'}, done.stdout
  shape, size = sizes['training step']
  assert shape == '16 x 384' and 0.5 < size < 1.6
  shape, size = sizes['scoring']
  assert shape == '64 x 384' and 0.2 < size < 1.0


@pytest.mark.usefixtures('one_device')
def test_a_task_without_memory_is_refused(
  make_config, tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(memory, 'available_bytes', lambda: 2**20)
  config = make_config(train__steps=2)
  for dry_run in (True, False):
    with pytest.raises(ValueError, match='needs .*this machine has left 1.0 M'):
      runs.train(config, tmp_path / 'run', dry_run=dry_run)
  assert not (tmp_path / 'run').exists()
  printed = capsys.readouterr().out  # of the dry run
  assert re.search(r'training step of 16 x \d+ +[\d.]+ MiB', printed)
  assert re.search(r'in all +[\d.]+ [MG]iB of [\d.]+ [MG]iB', printed)
