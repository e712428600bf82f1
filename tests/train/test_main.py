"""The way from the command to the loss."""

import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest
from launch import environment

from train.run import settings

# Runs the command, and ends it where the loss is first computed.
PROGRAM = """
import pathlib, runpy, sys, traceback
import train
from train.architectures import bert

root = str(pathlib.Path(train.__file__).parents[1])

def stop(*_, **__):
  frames = [
    frame for frame in traceback.extract_stack()[:-1]
    if frame.filename.startswith(root)
  ]
  for frame in frames:
    print(frame.filename.removeprefix(root), frame.name)
  ours = [
    module.__file__ for name, module in sys.modules.items()
    if name.partition('.')[0] in ('configs', 'data', 'models', 'train')
    and getattr(module, '__file__', None)
    and not module.__file__.endswith('__init__.py')
  ]
  lines = sum(len(open(file).readlines()) for file in ours)
  print('LOADED', len(ours), lines)
  sys.exit(0)

bert.MaskedTokens.losses = stop
sys.argv = ['train.main', *sys.argv[1:]]
runpy.run_module('train.main', run_name='__main__', alter_sys=True)
"""


def test_few_frames_lie_between_the_command_and_the_loss(small_store, tmp_path):
  done = subprocess.run(
    [
      sys.executable,
      '-c',
      PROGRAM,
      '--config',
      'bert_tiny',
      f'--config.data.folder={small_store}',
      f'--workdir={tmp_path / "run"}',
    ],
    env=environment(),
    capture_output=True,
    text=True,
    timeout=400,
  )
  *frames, loaded = [line.split() for line in done.stdout.splitlines()]
  # What pre-training a BERT loads of ours: files, lines.
  assert int(loaded[1]) <= 100 and int(loaded[2]) <= 20_000, loaded
  assert frames, done.stderr
  # The loss itself is the eighth.
  assert len(frames) <= 7, done.stdout
  files = {file for file, _ in frames}
  assert len(files) <= 4, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize('errors', ['>/dev/full', '>&-'])
def test_a_run_without_a_log_goes_on(
  errors, small_store, write_config, tmp_path
):
  """A full disk of the log, and a standard error that was closed."""
  config = settings.with_overrides(
    settings.load_config('bert_tiny'),
    {
      'data.folder': str(small_store),
      'train.phases': ((2, 32, 8, 'continue'),),
      'eval.max_windows': 8,
    },
  )
  command = [
    sys.executable,
    '-m',
    'train.main',
    '--config',
    write_config(config),
    f'--workdir={tmp_path / "run"}',
  ]
  done = subprocess.run(
    ['bash', '-c', f'{shlex.join(map(str, command))} 2{errors}'],
    env=environment() | {'PYTHONPATH': os.environ['PYTHONPATH']},
    cwd=pathlib.Path(__file__).parents[2],
    timeout=400,
  )
  assert done.returncode == 0
  results = json.loads((tmp_path / 'run/results.json').read_text())
  assert results['stderr']['lost_writes'] > 2
