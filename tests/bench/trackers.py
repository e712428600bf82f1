"""What real trackers hold of a run: python tests/bench/trackers.py FOLDER

Trains 60 steps of bert_tiny:modern in FOLDER, with an end after step 20, with
all of `train.trackers` in their modes without a network
(`pip install -e '.[trackers]'`), and compares their files with metrics.csv.
"""

import collections
import json
import math
import os
import pathlib
import sqlite3
import subprocess
import sys
import time

from train.run import metrics

Held = dict[tuple[int, str], list[float]]  # (step, metric) -> values
_BLOCK = 32_768  # of a file of wandb, in LevelDB's format of logs


def _of_wandb(folder: pathlib.Path) -> Held:
  from wandb.proto import wandb_internal_pb2

  held = collections.defaultdict(list)
  for file in sorted(folder.glob('run/wandb/offline-run-*/*.wandb')):
    data, at, record = file.read_bytes(), 7, b''
    while at + 7 <= len(data):
      if (left := _BLOCK - at % _BLOCK) < 7:
        at += left
        continue
      length, kind = (
        int.from_bytes(data[at + 4 : at + 6], 'little'),
        data[at + 6],
      )
      record += data[at + 7 : at + 7 + length]
      at += 7 + length
      if kind in (1, 4):  # whole, or the last part
        found = wandb_internal_pb2.Record.FromString(record)
        row = {
          item.key or '/'.join(item.nested_key): json.loads(item.value_json)
          for item in found.history.item
        }
        step, record = row.pop('step', None), b''
        for name, value in row.items():
          if not name.startswith('_'):
            held[step, name].append(value)
  return held


def _of_mlflow(folder: pathlib.Path) -> Held:
  held = collections.defaultdict(list)
  with sqlite3.connect(folder / 'mlflow.db') as base:
    for step, name, value in base.execute(
      'select step, key, value from metrics order by timestamp'
    ):
      held[step, name].append(value)
  return held


def _of_trackio(folder: pathlib.Path) -> Held:
  held = collections.defaultdict(list)
  with sqlite3.connect(folder / 'trackio/sesame.db') as base:
    for step, row in base.execute('select step, metrics from metrics'):
      for name, value in json.loads(row).items():
        held[step, name].append(value)
  return held


HELD = {'wandb': _of_wandb, 'mlflow': _of_mlflow, 'trackio': _of_trackio}


def main(out: str) -> None:
  """Trains, and prints a line for each tracker."""
  folder = pathlib.Path(out).absolute()
  folder.mkdir(parents=True)
  names = ','.join(map(repr, HELD))
  command = [sys.executable, '-m', 'train.main', '--config=bert_tiny:modern']
  command += ['--workdir=run', f'--config.train.trackers=({names})']
  steps = dict(steps=60, log_every=5, eval_every=20, checkpoint_every=20)
  command += [f'--config.train.{key}={value}' for key, value in steps.items()]
  environment = os.environ | {
    'WANDB_MODE': 'offline',
    'TRACKIO_DIR': str(folder / 'trackio'),
    'PYTHONPATH': os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
  }
  first = subprocess.Popen(command, cwd=folder, env=environment)
  while first.poll() is None and not metrics.is_scored(folder / 'run', 20):
    time.sleep(0.1)
  first.terminate()
  print('the first part ended with', first.wait())
  subprocess.run(command, cwd=folder, env=environment, check=True)
  rows = {
    (step, name): value
    for step, name, value in metrics.read_metrics(folder / 'run')
    if not math.isnan(value)
  }
  for name, read in HELD.items():
    held = read(folder)
    differ = sum(held[key][-1] != rows[key] for key in rows.keys() & held)
    print(
      f'{name}: {len(rows)} values of metrics.csv, {len(rows.keys() - held)}'
      f' missing, {len(held.keys() - rows)} others, {differ} different,'
      f' {sum(len(values) > 1 for values in held.values())} twice'
    )


if __name__ == '__main__':
  main(*sys.argv[1:])
