"""What storage costs a run in a bucket: requests, waits, time to continue."""

import os
import re
import subprocess
import sys
import tempfile

from etils import epath

from train.benches import bucket, loopback
from train.run import checkpoint, ledger

_BUCKET = 'bench'
DELAY = 0.05  # seconds a request
STEPS = 1_000  # of BERT-Tiny
OLD = 50  # checkpoints beside the one to go on from
_BASE = (
  f"--config.train.phases=(({OLD + 2}, 32, 8, 'continue'),)",
  f'--config.train.checkpoint_every={OLD + 1}',
  f'--config.train.keep_checkpoints={2 * OLD}',
  '--config.train.platform=cpu',
  '--config.data.source=manual',
  '--config.data.tokenizer=train:wordpiece:8000',
  '--config.eval.max_windows=8',
  '--config.eval.global_batch=8',
)


def bench_storage() -> dict[str, float]:
  """Requests and waits of BERT-Tiny; how BERT-Base goes on after a kill.

  Both run on a bucket of this machine that takes `DELAY` for each request. The
  time of storage is the time beyond a run whose bucket answers at once.
  """
  storage = bucket.Storage(_BUCKET)
  figures: dict[str, float] = {}
  with (
    tempfile.TemporaryDirectory() as folder,
    loopback.serve(folder, storage.answer) as served,
  ):
    served.delay = DELAY
    _train(served, folder, 'bert_tiny', f'--config.train.steps={STEPS}')
    of_checkpoints = sum('checkpoints' in each for each in served.requests)
    objects = storage.buckets[_BUCKET]
    local = epath.Path(folder) / 'bert_tiny'
    local.mkdir()
    (local / ledger.FILE).write_bytes(objects[f'bert_tiny/{ledger.FILE}'].data)
    rows = ledger.read(local)
    training = [row for row in rows if 0 < row.step < STEPS]
    waited = sum(row.seconds['save'] for row in training)
    figures |= {
      'steps': STEPS,
      'checkpoints': len(_steps(objects, 'bert_tiny')),
      'requests_of_checkpoints': of_checkpoints,
      'requests_besides': len(served.requests) - of_checkpoints,
      'seconds': sum(sum(row.seconds.values()) for row in rows),
      'save_seconds': waited,
      'save_share': waited / sum(sum(row.seconds.values()) for row in training),
    }
    served.delay = 0.0
    _train(served, folder, 'bert_base', *_BASE)
    _add_old_checkpoints(storage)
    for label, delay in (('at_once', 0.0), ('delayed', DELAY)):
      _undo_last_step(objects)
      served.delay = delay
      served.requests.clear()
      said = _train(served, folder, 'bert_base', *_BASE)
      seconds = re.search(r'First step after ([\d.]+) s', said)
      figures[f'restart_{label}_seconds'] = float(seconds[1])
    figures |= {
      'restart_storage_seconds': figures['restart_delayed_seconds']
      - figures['restart_at_once_seconds'],
      'restart_old_checkpoints': OLD,
    }
  return figures


def _train(
  served: loopback.Loopback, folder: str, config: str, *flags: str
) -> str:
  """Trains by the command, on the bucket; returns what it said."""
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'train.main',
      '--config',
      config,
      '--workdir',
      f'gs://{_BUCKET}/{config}',
      f'--config.data.folder={folder}/store',
      *flags,
    ],
    stderr=subprocess.PIPE,
    text=True,
    env=os.environ | served.environment | {'JAX_PLATFORMS': 'cpu'},
  )
  if done.returncode:
    raise ChildProcessError(f'{config} failed:\n{done.stderr}')
  return done.stderr


def _steps(objects: dict[str, bucket.Object], run: str) -> set[str]:
  """Returns the steps of a run's complete checkpoints."""
  found = rf'{run}/{checkpoint.FOLDER}/(\d+)/{checkpoint.COMMIT_FILE}'
  return {m[1] for name in objects if (m := re.fullmatch(found, name))}


def _add_old_checkpoints(storage: bucket.Storage) -> None:
  """Copies the last checkpoint but one to all steps before it."""
  objects = storage.buckets[_BUCKET]
  place = f'bert_base/{checkpoint.FOLDER}'
  for name, found in list(objects.items()):
    if name.startswith(f'{place}/{OLD + 1}/'):
      for step in range(1, OLD + 1):
        objects[name.replace(f'/{OLD + 1}/', f'/{step}/', 1)] = found


def _undo_last_step(objects: dict[str, bucket.Object]) -> None:
  """Makes it a run that was killed before its last step."""
  last = f'bert_base/{checkpoint.FOLDER}/{OLD + 2}/'
  for name in list(objects):
    if name.startswith(last) or name == 'bert_base/results.json':
      del objects[name]
