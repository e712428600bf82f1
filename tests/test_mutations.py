"""Whatever a file holds, its reader opens it or says in our words why not."""

import json
import subprocess
import sys

import mutations
import pytest

COUNT = 2000


@pytest.fixture(scope='module')
def reports(tmp_path_factory):
  """Name -> what its reader did with changed files, in a process of its own."""
  folder = tmp_path_factory.mktemp('files')
  for name, reader in mutations.READERS.items():
    (folder / name).mkdir()
    reader.write(folder / name)
  done = subprocess.run(
    [
      *(sys.executable, mutations.__file__, folder, *mutations.READERS),
      *('--count', str(COUNT)),
    ],
    capture_output=True,
    text=True,
    timeout=600,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return {
    report['name']: report
    for report in map(json.loads, done.stdout.split('\n')[:-1])
  }


@pytest.mark.parametrize('name', mutations.READERS)
def test_changed_files_are_read_or_refused(name, reports):
  report = reports[name]
  assert not report['others'], report['others'][0][1]
  assert report['opened'] + report['refused'] == COUNT
  # The changes are small enough to reach what is behind the first check.
  assert report['opened'] >= COUNT / 200
