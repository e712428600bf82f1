"""A bucket for runs that are killed: fake-gcs-server, and faults by the draw.

Every run has faults of its own, by default on up to 30 % of its requests.
"""

import collections
import contextlib
import json
import pathlib
import random
import shutil
import tempfile
import urllib.parse
from collections.abc import Iterator
from typing import Any

import buckets

from train.benches import loopback

NAME = 'killed'
ALWAYS = 10**9
# TensorFlow's own first wait after a fault is of a second.
_IMPATIENT = {
  'GCS_RETRY_CONFIG_INIT_DELAY_TIME_US': '50000',
  'TF_CPP_MIN_LOG_LEVEL': '3',
}
_ALL, _WRITES = '.', '^(POST|PUT|DELETE)'
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
  'answered 429': (_ALL, {'status': 429}),
  'answered 503': (_ALL, {'status': 503}),
  'stalled': (_ALL, {'delay': 0.5}),
  'cut in the middle': (_ALL, {'cut': True}),
  'done, but answered 503': (_WRITES, {'lost': 503}),
}


class Bucket:
  """A bucket that a harness's runs use.

  Attributes:
    url: 'gs://...' of it.
    environment: leads a run's processes to it.
    runs: how many had faults.
    requests: how many these made.
    made: kind of fault -> number of requests that failed so.
  """

  url = f'gs://{NAME}'

  def __init__(self, served: loopback.Loopback, largest_share: float):
    self._largest_share = largest_share
    self.environment = served.environment | _IMPATIENT
    self.runs = self.requests = 0
    self.made: collections.Counter[str] = collections.Counter()
    self._served = served

  def upload(self, folder: pathlib.Path) -> str:
    """Writes the files of a local folder; returns its path on the bucket."""
    for file in filter(pathlib.Path.is_file, folder.iterdir()):
      name = urllib.parse.quote(f'{folder.name}/{file.name}', safe='')
      target = f'/upload/storage/v1/b/{NAME}/o?uploadType=media&name={name}'
      self._ask('POST', target, file.read_bytes())
    return f'{self.url}/{folder.name}'

  def download(self, name: str, to: pathlib.Path) -> pathlib.Path:
    """Makes a local folder equal to one of the bucket; returns it."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    objects = f'/storage/v1/b/{NAME}/o'
    found = json.loads(self._ask('GET', f'{objects}?prefix={name}/'))
    assert 'nextPageToken' not in found
    for item in found.get('items', []):
      path = to / item['name'].removeprefix(f'{name}/')
      if item['name'].endswith('/'):  # stands for an empty folder
        path.mkdir(parents=True, exist_ok=True)
        continue
      path.parent.mkdir(parents=True, exist_ok=True)
      quoted = urllib.parse.quote(item['name'], safe='')
      path.write_bytes(self._ask('GET', f'{objects}/{quoted}?alt=media'))
    return to

  def _ask(self, method: str, target: str, body: bytes = b'') -> bytes:
    headers = {'Host': 'localhost', 'Content-Type': 'application/octet-stream'}
    status, _, said = self._served.answer(method, target, headers, body)
    assert status == 200, said
    return said

  @contextlib.contextmanager
  def faults(self, rng: random.Random | None) -> Iterator[dict[str, Any]]:
    """Draws the faults of one run; yields their report, whole at the end.

    Args:
      rng: draws the share of each kind; None: there are no faults.
    """
    report: dict[str, Any] = {}
    if rng is None:
      yield report
      return
    parts = [rng.random() for _ in FAULTS]
    whole = rng.uniform(0.05, self._largest_share) / sum(parts)
    drawn = {}
    for (kind, (pattern, how)), part in zip(FAULTS.items(), parts, strict=True):
      share, seed = part * whole, rng.randrange(10**6)
      drawn[kind] = loopback.Fault(
        pattern, **how, share=share, times=ALWAYS, seed=seed
      )
      report[f'share {kind}'] = round(share, 3)
    before = len(self._served.requests)
    self._served.faults[:] = drawn.values()
    try:
      yield report
    finally:
      self._served.faults.clear()
      report['requests'] = len(self._served.requests) - before
      report['failed'] = {
        kind: ALWAYS - fault.left for kind, fault in drawn.items()
      }
      self.runs += 1
      self.requests += report['requests']
      self.made.update(report['failed'])

  def report(self) -> dict[str, Any]:
    """Returns what all runs with faults saw."""
    return {
      'server': 'fake-gcs-server, behind a front that makes the faults',
      'runs': self.runs,
      'requests': self.requests,
      'failed': dict(self.made),
    }


@contextlib.contextmanager
def serve(largest_share: float = 0.3) -> Iterator[Bucket]:
  """Yields an empty bucket; skips a test where its program does not run.

  At most so large a share of a run's requests fails.
  """
  with (
    tempfile.TemporaryDirectory() as certificate,
    buckets.emulator(NAME) as answer,
    loopback.serve(certificate, answer) as served,
  ):
    yield Bucket(served, largest_share)
