"""What is written appears whole, and no killed process leaves a part of it."""

import os
import signal
import subprocess
import sys

import pytest

from data import scratch

WRITER = """
import pathlib, sys, time
from data import scratch
if len(sys.argv) > 2:
  scratch.end_on_sigterm()
with scratch.replacing(sys.argv[1]) as new, scratch.temporary('words') as other:
  new.write_text('half')
  print(other, flush=True)
  time.sleep(60)
"""


def start(path, *options):
  """Returns a process that writes `path`, with two hidden folders."""
  process = subprocess.Popen(
    [sys.executable, '-c', WRITER, path, *options],
    stdout=subprocess.PIPE,
    text=True,
    env=os.environ | {'TMPDIR': str(path.parent)},
  )
  with process.stdout:
    assert process.stdout.readline()
  return process


def test_a_killed_writers_folders_go_with_the_next_one(tmp_path, monkeypatch):
  monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
  path = tmp_path / 'table.csv'
  path.write_text('old')
  alive = start(path)
  dead = start(path)
  dead.kill()
  dead.wait()
  assert path.read_text() == 'old'
  assert len(list(tmp_path.iterdir())) == 5  # two folders of each
  try:
    with scratch.replacing(path) as new, scratch.temporary('words'):
      new.write_text('new')
      assert len(list(tmp_path.iterdir())) == 5  # of us and of the living
    assert path.read_text() == 'new'
    assert len(list(tmp_path.iterdir())) == 3
  finally:
    alive.kill()
    alive.wait()
  scratch.write_bytes(path, b'newer')
  with scratch.temporary('words'):
    pass
  assert list(tmp_path.iterdir()) == [path]
  assert path.read_bytes() == b'newer'


def test_sigterm_removes_them_at_once(tmp_path):
  path = tmp_path / 'table.csv'
  process = start(path, 'ends')
  process.terminate()
  assert process.wait() == 128 + signal.SIGTERM
  assert not list(tmp_path.iterdir())


def test_the_folders_of_others_stay(tmp_path):
  path = tmp_path / 'a'
  names = ['.a.12345678.other', '.ab.12345678.new', '.a.123456789.new', 'b.new']
  for name in names:
    (tmp_path / name).mkdir()
  (tmp_path / '.a.12345678.new').symlink_to('b.new')
  scratch.write_bytes(path, b'')
  there = {each.name for each in tmp_path.iterdir()}
  assert there == {'a', '.a.12345678.new', *names}


def test_an_error_leaves_the_old_file(tmp_path):
  path = tmp_path / 'a'
  path.write_text('old')
  with pytest.raises(KeyboardInterrupt), scratch.replacing(path) as new:
    new.write_text('half')
    raise KeyboardInterrupt
  assert [each.read_text() for each in tmp_path.iterdir()] == ['old']


def test_files_that_belong_together_appear_together(tmp_path):
  page, figures = tmp_path / 'page.html', tmp_path / 'missing' / 'page.json'
  with pytest.raises(FileNotFoundError, match='missing'):
    scratch.write_all({page: 'text', figures: '{}'})
  assert not list(tmp_path.iterdir())
  figures.parent.mkdir()
  scratch.write_all({page: 'text', figures: '{}'})
  assert page.read_text() == 'text'
  assert figures.read_text() == '{}'


def test_long_names_are_written(tmp_path):
  path = tmp_path / ('n' * 255)
  scratch.write_bytes(path, b'text')
  assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_a_full_disk_names_the_file(tmp_path):
  program = """
import resource, signal, sys
from data.vocabulary import tokenization
from train.host import files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
tokenizer = tokenization.train(
  ['some words to learn'], tokenization.parse_training('train:wordpiece:60')
)
rows = files.RowFile(sys.argv[1] + '/metrics.csv', ['step'], [])
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
for write in (
  lambda: tokenizer.save(sys.argv[1]), lambda: rows.append([[100 * '1']])
):
  try:
    write()
  except OSError as error:
    print(error.filename)
"""
  done = subprocess.run(
    [sys.executable, '-c', program, tmp_path], capture_output=True, text=True
  )
  names = [
    f'{tmp_path}/{name}' for name in ('tokenizer_settings.json', 'metrics.csv')
  ]
  assert done.stdout.split() == names, done
