"""The way from the command to the loss."""

import subprocess
import sys

from launch import environment

# Runs the command, and ends it where the loss is first computed.
PROGRAM = """
import pathlib, runpy, sys, traceback
import train
from train.engine import objectives

root = str(pathlib.Path(train.__file__).parents[1])

def stop(*_, **__):
  frames = [
    frame for frame in traceback.extract_stack()[:-1]
    if frame.filename.startswith(root)
  ]
  for frame in frames:
    print(frame.filename.removeprefix(root), frame.name)
  sys.exit(0)

objectives.bert_losses = stop
sys.argv = ['train.main', *sys.argv[1:]]
runpy.run_module('train.main', run_name='__main__', alter_sys=True)
"""


def test_few_frames_lie_between_the_command_and_the_loss(small_store, tmp_path):
  done = subprocess.run(
    [
      *(sys.executable, '-c', PROGRAM, '--config', 'bert_tiny'),
      f'--config.data.folder={small_store}',
      f'--workdir={tmp_path / "run"}',
    ],
    env=environment(),
    capture_output=True,
    text=True,
    timeout=400,
  )
  frames = [line.split() for line in done.stdout.splitlines()]
  assert frames, done.stderr
  # The loss itself is the eighth.
  assert len(frames) <= 7, done.stdout
  files = {file for file, _ in frames}
  assert len(files) <= 4, done.stdout
