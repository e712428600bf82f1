"""Damaged checkpoints are known and passed over; storage may falter."""

import asyncio
import http.server
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
import runs
from orbax.checkpoint._src.serialization import serialization

from data.store import corpus
from train.architectures import architecture
from train.engine import sharding, state
from train.pretrain import assemble
from train.run import checkpoint, metrics, training_phases

# Meshes have tests of their own.
pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture
def torn(finished, tmp_path):
  """A copy of the run, its newest checkpoint about to be damaged."""
  workdir = tmp_path / 'torn'
  shutil.copytree(finished[0], workdir)
  (workdir / 'results.json').unlink()
  return workdir


def largest_file(folder: pathlib.Path) -> pathlib.Path:
  """Returns the file that holds most of the arrays."""
  files = [path for path in folder.rglob('*') if path.is_file()]
  return max(files, key=lambda path: path.stat().st_size)


def truncate(folder):
  path = largest_file(folder)
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def unfinish(folder):
  (folder / 'commit_success.txt').unlink()


def flip_bytes(folder):
  """Damages every file of arrays: which holds which of them is chance."""
  files = [path for path in folder.glob('**/d/*') if path.is_file()]
  assert largest_file(folder) in files
  for path in files:
    content = bytearray(path.read_bytes())
    content[::500] = [byte ^ 1 for byte in content[::500]]
    path.write_bytes(content)


DAMAGES = {
  'truncated': (truncate, 'cannot be read'),
  'not finished': (unfinish, 'commit_success.txt is missing'),
  'flipped': (flip_bytes, ''),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(
  name, finished, torn, small_config, capsys
):
  damage, reason = DAMAGES[name]
  damage(torn / 'checkpoints' / '12')
  results = runs.train(small_config(), torn)
  said = ' '.join(capsys.readouterr().err.split())
  assert 'The checkpoint of step 12 is damaged' in said
  assert reason in said
  assert 'checkpoints/damaged-12, and the sound one of step 8 is used' in said
  assert 'Continuing after step 8' in said
  for digest in ('state_sha256', 'optimizer_sha256'):
    assert results[digest] == finished[1][digest]
  rows = [
    [row for row in metrics.read_metrics(where) if 'time/' not in row[1]]
    for where in (finished[0], torn)
  ]
  assert rows[0] == rows[1]
  names = {path.name for path in (torn / 'checkpoints').iterdir()}
  assert names == {'4', '8', '12', 'damaged-12'}


def test_without_a_sound_checkpoint_nothing_begins_anew(torn, small_config):
  folders = sorted((torn / 'checkpoints').iterdir())
  for folder in folders:
    flip_bytes(folder)
  with pytest.raises(ValueError, match='(?s)step 12: .*step 8: .*step 4: '):
    runs.train(small_config(), torn)
  assert sorted((torn / 'checkpoints').iterdir()) == folders


def test_damaged_initial_weights_are_refused(torn, small_config, tmp_path):
  flip_bytes(torn / 'checkpoints' / '12')
  with pytest.raises(ValueError, match='the checkpoint of step 12'):
    runs.train(small_config(init__weights=str(torn)), tmp_path / 'new')


@pytest.fixture
def job(small_config):
  """What the runs compute with."""
  config = small_config()
  store = corpus.open_store(config.data.folder)
  return assemble.build_parts(
    config,
    training_phases.resolve_phases(config, {}),
    architecture.Vocabulary.of(store.tokenizer),
    sharding.make_mesh(config.mesh),
  )


def test_no_flipped_byte_goes_unseen(job, torn):
  """One byte in each file, more in those of the arrays."""
  rng = random.Random(0)
  shutil.rmtree(torn / 'checkpoints' / '4')

  def restored():
    with checkpoint.Checkpoints(torn, keep=3) as checkpoints:
      step, found = checkpoints.restore(job.shapes)
    return step, state.digest(found)

  sound = {12: restored()[1]}
  newest = torn / 'checkpoints' / '12'
  shutil.move(newest, torn / 'aside')
  sound[8] = restored()[1]
  shutil.move(torn / 'aside', newest)
  passed_over = 0
  for path in [path for path in newest.rglob('*') if path.is_file()]:
    content = path.read_bytes()
    for _ in range(1 + len(content) // 40_000):
      flipped = bytearray(content)
      flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
      path.write_bytes(flipped)
      step, digest = restored()
      assert digest == sound[step], path
      if step == 8:
        passed_over += 1
        (torn / 'checkpoints' / 'damaged-12').rename(newest)
      path.write_bytes(content)
  assert passed_over > 5


def test_other_reads_end_before_the_fault_is_told(job, torn, monkeypatch):
  """Left behind, each would print a page whenever it is collected."""
  begun = []

  async def slow_read(**_):
    begun.append(asyncio.current_task())
    if len(begun) == 1:
      raise ValueError('a torn page')
    await asyncio.sleep(0.2)

  monkeypatch.setattr(serialization, '_read_shard', slow_read)
  with (
    checkpoint.Checkpoints(torn, keep=3) as checkpoints,
    pytest.raises(ValueError, match='no checkpoint .* can be restored'),
  ):
    checkpoints.restore(job.shapes)
  assert len(begun) > 10
  assert all(task.done() for task in begun)


def test_a_fault_of_another_process_counts(job, torn, monkeypatch):
  """Each process reads files of its own: one may be damaged."""
  answers = iter([['', 'it cannot be read'], ['', '']])
  monkeypatch.setattr(
    checkpoint.processes, 'gather', lambda fault: next(answers)
  )
  with checkpoint.Checkpoints(torn, keep=3) as checkpoints:
    assert checkpoints.restore(job.shapes)[0] == 8
  assert (torn / 'checkpoints' / 'damaged-12').exists()


def test_checksums_see_every_bit_and_place():
  numbers = np.arange(60, dtype=np.float32).reshape(5, 12)

  def checksum(array):
    return state.checksums({'a': jax.numpy.array(array)})['a']

  seen = {checksum(numbers), checksum(numbers[:, ::-1])}
  for i in range(60):
    for places in ([i], [i, i - 7]):  # the same bit in two words
      other = numbers.copy()
      other.view(np.uint32).flat[places] ^= np.uint32(1 << i % 32)
      seen.add(checksum(other))
  assert len(seen) == 122


class FalteringBucket(http.server.BaseHTTPRequestHandler):
  """The part of Cloud Storage that TensorStore needs; says 503 twice each."""

  protocol_version = 'HTTP/1.1'
  objects: dict[str, bytes] = {}
  asked: list[str] = []

  def respond(self):
    body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
    self.asked.append(self.command)
    if self.asked.count(self.command) <= 2:
      self.answer(503, b'{}')
    elif self.command == 'POST':
      self.objects['it'] = body
      self.answer(200, json.dumps({'name': 'it', 'generation': '1'}).encode())
    else:
      self.answer(200, self.objects['it'])

  do_GET = do_POST = respond

  def answer(self, code, body):
    self.send_response(code)
    self.send_header('x-goog-generation', '1')
    self.send_header('Content-Length', str(len(body)))
    self.end_headers()
    self.wfile.write(body)

  def log_message(self, *_):
    pass


@pytest.mark.slow
def test_the_storage_library_tries_again():
  """Orbax writes and reads the arrays by TensorStore's `gcs`, as it stands."""
  server = http.server.ThreadingHTTPServer(('localhost', 0), FalteringBucket)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  program = (
    'import tensorstore\n'
    "bucket = tensorstore.KvStore.open('gs://bucket/').result(timeout=60)\n"
    "bucket.write('it', b'content').result(timeout=60)\n"
    "print(bucket.read('it').result(timeout=60).value)"
  )
  done = subprocess.run(
    [sys.executable, '-c', program],
    env=os.environ
    | {
      'TENSORSTORE_GCS_HTTP_URL': f'http://localhost:{server.server_port}',
      'GOOGLE_AUTH_TOKEN_FOR_TESTING': 'none',
    },
    capture_output=True,
    text=True,
    timeout=200,
  )
  server.shutdown()
  server.server_close()
  assert done.stdout == "b'content'\n", done.stderr
  assert sorted(FalteringBucket.asked) == ['GET'] * 3 + ['POST'] * 3
