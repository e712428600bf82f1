"""The window index."""

import os
import types

import numpy as np
import pytest
from window_stores import draw_sizes, make_store

from data.examples import pairs, windows
from data.store import folders

LENGTH = 32


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  held_out = [number % 5 == 0 for number in range(60)]
  sizes = draw_sizes(0, 60)
  sizes[3] = [200]  # a sentence longer than several windows
  sizes[4] = [3]
  return make_store(tmp_path_factory.mktemp('store'), sizes, held_out)


def reference_starts(store, document, length):
  """Window starts of a document, by the definition, one at a time."""
  first, last = store.documents[document], store.documents[document + 1]
  begins = store.sentences[first:last].tolist()
  begin, end = begins[0], int(store.sentences[last])
  starts = [begin]
  while (after := starts[-1] + length - 3) < end:
    sentence = max(place for place in begins if place <= after)
    begin = sentence if sentence > starts[-1] else after
    if end - begin < length // 8:
      break
    starts.append(begin)
  return starts, end


@pytest.mark.parametrize('length', [8, 32, 64])
@pytest.mark.parametrize('held_out', [False, True])
@pytest.mark.parametrize('block', [1, 7, 1 << 20])
def test_windows_match_reference(
  store, tmp_path, monkeypatch, length, held_out, block
):
  monkeypatch.setattr(windows, '_BLOCK', block)
  fields = vars(store) | {'folder': tmp_path}
  index = windows.open_index(
    types.SimpleNamespace(**fields), length, held_out=held_out
  )
  row = 0
  with_boundary = 0
  for document in range(len(store.held_out)):
    assert index.offsets[document] == row
    if store.held_out[document] != held_out:
      continue
    starts, end = reference_starts(store, document, length)
    first, last = store.documents[document : document + 2]
    covered = set()
    for start in starts:
      window = index.windows[row]
      stop = min(start + length + length // 8, end)
      marked = [
        sentence
        for sentence in range(first + 1, last)
        if start <= store.sentences[sentence] < stop
      ]
      assert window['start'] == start
      assert window['length'] == stop - start
      assert window['document'] == document
      assert window['num_sentences'] == len(marked)
      if marked:
        assert window['first_sentence'] == marked[0]
      with_boundary += any(store.sentences[s] > start for s in marked)
      covered |= set(range(start, stop))
      row += 1
    assert covered == set(range(starts[0], end)), 'text is lost'
  assert row == len(index.windows) == index.offsets[-1]
  assert index.boundary_share == pytest.approx(with_boundary / row)


def test_index_is_built_once_and_tied_to_the_store(tmp_path, monkeypatch):
  store = make_store(tmp_path, draw_sizes(1, 20))
  pairs.PairExamples(store, LENGTH, held_out=False)
  (folder,) = tmp_path.iterdir()
  assert {path.name for path in folder.iterdir()} == {
    'windows.bin',
    'offsets.npy',
    'index.json',
    'checksums.json',
    '.verified.json',
  }
  with monkeypatch.context() as patch:
    patch.setattr(windows, '_write', None)  # no second build
    pairs.PairExamples(store, LENGTH, held_out=False)
  other = make_store(tmp_path, draw_sizes(2, 20), digest='1' * 64)
  counts = [
    pairs.PairExamples(each, LENGTH, held_out=False).num_windows
    for each in (store, other)
  ]
  assert counts[0] != counts[1]


@pytest.mark.parametrize('name', ['windows.bin', 'offsets.npy', 'index.json'])
@pytest.mark.parametrize('damage', ['flipped', 'cut', 'gone'])
def test_a_damaged_index_is_built_anew(tmp_path, capsys, name, damage):
  store = make_store(tmp_path, draw_sizes(1, 20))
  right = pairs.PairExamples(store, LENGTH, held_out=False).train_batch(
    0, slice(None), 8, 7, 0
  )
  (folder,) = tmp_path.iterdir()
  data = bytearray((folder / name).read_bytes())
  data[-1] ^= 1
  if damage == 'gone':
    (folder / name).unlink()
  else:
    (folder / name).write_bytes(data if damage == 'flipped' else data[:-9])
  found = pairs.PairExamples(store, LENGTH, held_out=False).train_batch(
    0, slice(None), 8, 7, 0
  )
  told = {
    'flipped': 'is damaged: its checksum does not match',
    'cut': 'bytes, expected',
    'gone': 'is missing',
  }[damage]
  said = capsys.readouterr().err
  assert f'{folder}: {name}' in said and told in said
  assert list(tmp_path.iterdir()) == [folder]
  for key, array in right.items():
    np.testing.assert_array_equal(found[key], array)


def test_failed_build_leaves_nothing(tmp_path, monkeypatch):
  store = make_store(tmp_path, draw_sizes(1, 20))

  def fail(*_):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(windows, '_cut', fail)
  with pytest.raises(OSError, match='disk full'):
    pairs.PairExamples(store, LENGTH, held_out=False)
  assert not list(tmp_path.iterdir())


@pytest.fixture
def read_only(tmp_path, monkeypatch):
  """(a store that cannot be written into, the temporary folder)."""
  store = make_store(tmp_path / 'store', draw_sizes(1, 20))
  temporary = tmp_path / 'temporary'
  monkeypatch.setattr(folders.tempfile, 'gettempdir', lambda: str(temporary))
  exclusive = folders.exclusive

  def refuse(target):
    if target.parent == store.folder:
      raise OSError(30, 'Read-only file system')
    return exclusive(target)

  monkeypatch.setattr(folders, 'exclusive', refuse)
  return store, temporary


def test_read_only_store(read_only):
  store, temporary = read_only
  pairs.PairExamples(store, LENGTH, held_out=False)
  assert not store.folder.exists()
  (folder,) = temporary.iterdir()
  assert folder.stat().st_mode & 0o777 == 0o700
  (index,) = folder.glob('windows-*')
  made = index.stat().st_mtime_ns
  folder.chmod(0o755)
  pairs.PairExamples(store, LENGTH, held_out=False)
  assert index.stat().st_mtime_ns == made


def test_index_of_somebody_else_is_not_used(read_only, monkeypatch):
  store, temporary = read_only
  theirs = temporary / 'theirs'
  folder = temporary / f'sesame-indexes-{os.getuid()}'
  pairs.PairExamples(store, LENGTH, held_out=False)
  folder.rename(theirs)

  def refused():
    with pytest.raises(PermissionError, match=f'{folder} .*remove it'):
      pairs.PairExamples(store, LENGTH, held_out=False)

  folder.symlink_to(theirs)
  refused()
  folder.unlink()
  folder.touch()
  refused()
  folder.unlink()
  theirs.rename(folder)
  for mode in (0o777, 0o770):
    folder.chmod(mode)
    refused()
  folder.chmod(0o700)
  pairs.PairExamples(store, LENGTH, held_out=False)
  # Of another user: the same name, as its number is not ours.
  number = os.getuid()
  monkeypatch.setattr(windows.os, 'getuid', lambda: number + 1)
  folder.rename(temporary / f'sesame-indexes-{number + 1}')
  folder = temporary / f'sesame-indexes-{number + 1}'
  refused()


def test_bad_splits(tmp_path):
  store = make_store(tmp_path, [[9] * 20, [9] * 20], [False, True])
  with pytest.raises(ValueError, match='1 training.*document_break'):
    pairs.PairExamples(store, LENGTH, held_out=False)
  with pytest.raises(ValueError, match='1 held-out.*data.held_out'):
    pairs.PairExamples(store, LENGTH, held_out=True)
  store = make_store(tmp_path, [[9] * 20, [9] * 20])
  with pytest.raises(ValueError, match='0 held-out'):
    pairs.PairExamples(store, LENGTH, held_out=True)
  with pytest.raises(ValueError, match='length 7: expected 8'):
    pairs.PairExamples(store, 7, held_out=False)
