"""Faults to order."""

import pytest
import requests

from train.benches.loopback import Fault


@pytest.mark.parametrize(
  ('fault', 'status'),
  [({'status': 503}, 503), ({'lost': 503}, 503), ({'delay': 0.1}, 200)],
)
def test_faults_hit_as_often_as_they_are_ordered(gs, loopback, fault, status):
  url = loopback.environment['STORAGE_EMULATOR_HOST']
  target = f'{url}/upload/storage/v1/b/{gs[5:]}/o?uploadType=media&name=x'
  loopback.faults.append(Fault('.', **fault))
  assert requests.post(target, data=b'1', timeout=9).status_code == status
  there = loopback.storage.buckets[gs[5:]]
  assert ('x' in there) == ('status' not in fault)
  assert requests.post(target, data=b'2', timeout=9).status_code == 200
  assert there['x'].data == b'2'
  assert loopback.counts('^POST')['POST'] == 2


def test_a_cut_upload_leaves_nothing_and_a_cut_read_is_seen(gs, loopback):
  loopback.storage.put(gs[5:], 'x', b'12345678')
  url = loopback.environment['STORAGE_EMULATOR_HOST']
  loopback.faults += [Fault('.', cut=True), Fault('.', cut=True)]
  with pytest.raises(requests.ConnectionError):
    requests.post(
      f'{url}/upload/storage/v1/b/{gs[5:]}/o?uploadType=media&name=y',
      data=b'1' * 1_000_000,
      timeout=9,
    )
  assert 'y' not in loopback.storage.buckets[gs[5:]]
  with pytest.raises(requests.exceptions.ChunkedEncodingError):
    requests.get(f'{url}/{gs[5:]}/x', timeout=9)
