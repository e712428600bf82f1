"""Builds: reruns, other input, interruption, and what training calls."""

import collections
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from text_stores import (
  TOKENIZER,
  build_quietly,
  contents,
  leftovers,
  make_documents,
  write_documents,
)

from data.store import arrays, build, corpus, folders
from data.text import manual


def test_rerun_returns_at_once(built, tmp_path, monkeypatch):
  def fail(*args):
    raise AssertionError('built again')

  monkeypatch.setattr(arrays, 'write_arrays', fail)
  before = (built / 'store' / 'tokens.npy').stat().st_mtime_ns
  audit = build_quietly(built / 'text.txt', TOKENIZER, built / 'store')
  assert audit == corpus.read_meta(built / 'store')['audit']
  # The vocabulary that it trained is the same tokenizer.
  vocab = shutil.copytree(built / 'store', tmp_path / 'vocab') / 'vocab.txt'
  build_quietly(built / 'text.txt', vocab, built / 'store')
  assert (built / 'store' / 'tokens.npy').stat().st_mtime_ns == before


def test_other_input_is_refused_and_replaced(store_copy, built, tmp_path):
  text = built / 'text.txt'
  with pytest.raises(ValueError, match='held_out .0.05 in the store, asked'):
    build_quietly(text, TOKENIZER, store_copy, held_out=0.2)
  with pytest.raises(ValueError, match='something else: tokenizer'):
    build_quietly(text, 'train:wordpiece:150', store_copy)
  other = write_documents(tmp_path / 'other.txt', make_documents(50, seed=8))
  with pytest.raises(ValueError, match='something else: source'):
    build_quietly(other, TOKENIZER, store_copy)
  build_quietly(other, TOKENIZER, store_copy, overwrite=True)
  assert len(corpus.open_store(store_copy).held_out) == 50
  assert leftovers(tmp_path) == []


def test_other_folders_are_left_alone(built, tmp_path):
  (tmp_path / 'thesis.tex').write_text('years of work')
  for overwrite in (False, True):
    with pytest.raises(ValueError, match='not a token store, and is left'):
      build_quietly(
        built / 'text.txt', TOKENIZER, tmp_path, overwrite=overwrite
      )
  assert [path.name for path in tmp_path.iterdir()] == ['thesis.tex']


def child(text, out, before='', **popen):
  code = (
    # A job in the background of a shell inherits that SIGINT is ignored.
    'import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n'
    'import sys; from data.store import pool; from data import prepare\n'
    f'{before}\n'
    'pool.ITEM_CHARACTERS = 20_000\n'
    f'sys.exit(prepare.main(["--source", {os.fspath(text)!r}, "--tokenizer", '
    f'{TOKENIZER!r}, "--out", {os.fspath(out)!r}, "--workers", "2"]))'
  )
  return subprocess.Popen(
    [sys.executable, '-c', code], stderr=subprocess.PIPE, text=True, **popen
  )


@pytest.mark.slow
@pytest.mark.parametrize('how', [signal.SIGKILL, signal.SIGINT])
def test_interrupted_build(tmp_path, how):
  # Long enough to be caught in the middle.
  text = write_documents(tmp_path / 'text.txt', make_documents(40_000))
  out = tmp_path / 'out'
  tokens = tmp_path / '.out.partial' / 'tokens.npy'
  with child(text, out, start_new_session=True) as process:
    deadline = time.monotonic() + 60
    while not tokens.exists() or tokens.stat().st_size < 1 << 20:
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.02)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    if how == signal.SIGINT:
      os.killpg(process.pid, how)  # as a terminal does
    else:
      process.kill()
    errors = process.communicate(timeout=100)[1]
  assert not out.exists()
  _, alive = psutil.wait_procs(workers, timeout=60)
  assert not alive
  if how == signal.SIGINT:
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith('error: interrupted')
    assert 'Traceback' not in errors
    assert leftovers(tmp_path) == []
  else:
    assert tokens.exists()
    short = write_documents(tmp_path / 'short.txt', make_documents(30))
    build_quietly(short, TOKENIZER, out)
    assert len(corpus.open_store(out).held_out) == 30
    assert leftovers(tmp_path) == []


def test_a_live_builder_is_waited_for(built, tmp_path, capsys):
  import threading

  out = tmp_path / 'out'
  with folders.exclusive(out):
    (tmp_path / '.out.partial').mkdir()
    thread = threading.Thread(
      target=build_quietly, args=(built / 'text.txt', TOKENIZER, out)
    )
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive() and (tmp_path / '.out.partial').exists()
    # The other process finishes an equal store: it is not built again.
    shutil.copytree(built / 'store', out)
    marker = (out / 'store.json').stat().st_ino
  thread.join(20)
  assert (out / 'store.json').stat().st_ino == marker
  assert 'waiting for the process' in capsys.readouterr().err


def test_disk_full(built, tmp_path):
  limit = (
    'import resource; '
    'resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))'
  )
  process = child(built / 'text.txt', tmp_path / 'out', limit)
  errors = process.communicate(timeout=400)[1]
  assert process.returncode == 1
  lines = errors.strip().splitlines()
  assert len(lines) == 1 and lines[0].startswith('error: disk full'), errors
  assert list(tmp_path.iterdir()) == []


def ensure(source, folder, tokenizer=TOKENIZER, **options):
  return build.ensure_store(
    os.fspath(source), tokenizer, folder, progress=False, **options
  )


def test_ensure_store_builds_small_text(built, tmp_path):
  store = ensure(built / 'text.txt', tmp_path / 'a' / 'store')
  assert len(store.held_out) == 200
  assert contents(store.folder) == contents(built / 'store')
  ensure(built / 'text.txt', tmp_path / 'a' / 'store')


def test_ensure_store_names_the_command(built, tmp_path):
  text = built / 'text.txt'
  with pytest.raises(ValueError) as error:
    ensure(text, tmp_path / 'my store', limit_bytes=1000, held_out=0.1)
  assert str(error.value).endswith(
    f'python -m data.prepare --source {text} --tokenizer {TOKENIZER} --out '
    f"'{tmp_path}/my store' --held_out 0.1"
  )
  assert list(tmp_path.iterdir()) == []


def test_the_tokenizer_is_checked_before_the_text(tmp_path):
  with pytest.raises(ValueError, match="tokenizer 'train:wordpice:3'"):
    build_quietly('no text', 'train:wordpice:3', tmp_path / 'out')


def test_ensure_store_names_what_differs(store_copy, built):
  with pytest.raises(ValueError, match='tokenizer .built with') as error:
    ensure(built / 'text.txt', store_copy, 'train:wordpiece:99', held_out=0.4)
  assert 'held_out (0.05 in the store, asked 0.4)' in str(error.value)
  assert 'source (' not in str(error.value)


def test_ensure_store_without_the_text(store_copy, tmp_path, documents):
  text = write_documents(tmp_path / 'text.txt', documents)
  build_quietly(text, TOKENIZER, store_copy, overwrite=True)
  os.unlink(text)
  assert len(ensure(text, store_copy).held_out) == 200
  with pytest.raises(ValueError, match='source .the store was built from'):
    ensure(tmp_path / 'other.txt', store_copy)


def test_the_manual_is_not_read_for_a_store_that_is_ready(
  tmp_path, monkeypatch
):
  texts = (('The cat sat on the mat. ' * 20,) * 9, collections.Counter())
  monkeypatch.setattr(manual, 'documents', lambda: texts)
  store = ensure('manual', tmp_path / 'store')

  def fail():
    raise AssertionError('read again')

  monkeypatch.setattr(manual, 'documents', fail)
  assert ensure('manual', tmp_path / 'store').num_tokens == store.num_tokens
  monkeypatch.setattr(manual, 'fingerprint', lambda: 'another Python')
  with pytest.raises(ValueError, match='source'):
    ensure('manual', tmp_path / 'store')
