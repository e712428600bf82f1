"""Our bucket beside fake-gcs-server: their clients see the same."""

import os
import subprocess
import sys

import buckets
import pytest

from data import storage
from train.benches import bucket
from train.benches import loopback as served_here

# What our programs do to a bucket, by each of the clients.
PROGRAM = """
import json
import numpy as np
import tensorstore as ts
from etils import epath
from google.api_core import exceptions
from data import storage

said = []
def tell(value):
  said.append(value)

def refused(work):
  try:
    work()
  except exceptions.GoogleAPIError as error:
    tell(type(error).__name__)

# google-cloud-storage
storage.check_buckets(['gs://bucket/in'], ['gs://bucket/out'])
refused(lambda: storage.client('gs://none').get_bucket('none'))
blob = storage.blob('gs://bucket/run/.lock')
blob.upload_from_string('one', if_generation_match=0)
first = blob.generation
refused(lambda: blob.upload_from_string('two', if_generation_match=0))
blob.upload_from_string('two', if_generation_match=first)
tell(blob.generation > first)
refused(lambda: blob.upload_from_string('three', if_generation_match=first))
tell(blob.download_as_bytes().decode())
storage.write('gs://bucket/run/.lock', b'four')  # by another
refused(blob.reload)
blob = storage.blob('gs://bucket/run/.lock')
tell(blob.download_as_bytes().decode())
storage.write('gs://bucket/a b/ü.txt', 'ü'.encode())
large = np.arange(3_000_000, dtype=np.int32).tobytes()  # in several parts
blob = storage.blob('gs://bucket/large')
blob.chunk_size = 1 << 20
blob.upload_from_string(large)
# TensorFlow's file system
folder = epath.Path('gs://bucket')
tell((folder / 'large').read_bytes() == large)
tell((folder / 'a b/ü.txt').read_text())
tell(sorted(path.name for path in folder.iterdir()))
tell([(folder / name).exists() for name in ('run', 'large', 'none')])
tell([(folder / name).is_dir() for name in ('run', 'large', 'none')])
(folder / 'run/5/commit').write_text('')
(folder / 'run/7/arrays').write_text('7')
tell([path.parent.name for path in (folder / 'run').glob('*/commit')])
(folder / 'run/7').rename(folder / 'run/8')
tell(sorted(path.name for path in (folder / 'run').iterdir()))
(folder / 'run').rmtree()
tell((folder / 'run').exists())
# TensorStore
spec = {
  'driver': 'zarr3',
  'kvstore': {'driver': 'ocdbt', 'base': {
    'driver': 'gcs', 'bucket': 'bucket', 'path': 'arrays'}},
}
array = np.arange(30_000, dtype=np.float32).reshape(100, 300)
made = ts.open(
  spec, create=True, dtype=ts.float32, shape=array.shape
).result()
made.write(array).result()
tell(bool((ts.open(spec).result().read().result() == array).all()))
print(json.dumps(said))
"""


def run(answer, folder):
  folder.mkdir()
  with served_here.serve(str(folder), answer) as served:
    done = subprocess.run(
      [sys.executable, '-c', PROGRAM],
      env=os.environ | served.environment,
      capture_output=True,
      text=True,
      timeout=200,
    )
  assert done.returncode == 0, done.stderr
  return done.stdout


@pytest.mark.slow
def test_three_clients_see_the_same_in_both(tmp_path):
  ours = run(bucket.Storage('bucket').answer, tmp_path / 'ours')
  with buckets.emulator('bucket') as answer:
    theirs = run(answer, tmp_path / 'theirs')
  assert ours == theirs
  assert 'PreconditionFailed' in ours


def test_another_generation_is_not_deleted(gs, loopback):
  from google.api_core import exceptions

  blob = storage.blob(f'{gs}/x')
  blob.upload_from_string('1')
  with pytest.raises(exceptions.PreconditionFailed):
    blob.delete(if_generation_match=blob.generation - 1)
  blob.delete(if_generation_match=blob.generation)
  assert not loopback.storage.buckets[gs[5:]]
