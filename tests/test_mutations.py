"""Whatever a file holds, its reader opens it or says in our words why not."""

import json
import os
import pathlib
import subprocess
import sys

import mutations
import pytest


@pytest.fixture(
  scope='module', params=[100, pytest.param(2000, marks=pytest.mark.slow)]
)
def count(request):
  """How many changed files each reader is given."""
  return request.param


@pytest.fixture(scope='module')
def reports(count, seed, tmp_path_factory):
  """Name -> what its reader did with changed files, in a process of its own."""
  folder = tmp_path_factory.mktemp('files')
  # PyTorch, which programs of tests do not have, writes some of the files.
  without = str(pathlib.Path(mutations.__file__).with_name('children'))
  path = os.environ['PYTHONPATH'].split(os.pathsep)
  path = os.pathsep.join(entry for entry in path if entry != without)
  done = subprocess.run(
    [
      sys.executable,
      mutations.__file__,
      folder,
      *mutations.READERS,
      '--count',
      str(count),
      '--seed',
      str(seed),
    ],
    env=os.environ | {'PYTHONPATH': path},
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
def test_changed_files_are_read_or_refused(name, reports, count):
  report = reports[name]
  assert not report['others'], report['others'][0][1]
  assert report['opened'] + report['refused'] == count
  # The changes are small enough to reach what is behind the first check: some
  # of many files open.
  assert report['opened'] >= count // 200
