"""Folders that appear whole: what killed processes leave is removed."""

import os
import shutil

import pytest

from data.store import folders


def test_leftovers_of_the_dead_alone_are_removed(tmp_path):
  for name in ('.dead.partial', '.alive.partial', 'whole'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'file').write_text('x')
  (tmp_path / '.dead.lock').touch()  # nobody holds it any more
  with folders.exclusive(tmp_path / 'alive'):
    folders.remove_leftovers(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {'.alive.partial', '.alive.lock', 'whole'}
    with (
      pytest.raises(BlockingIOError),
      folders.exclusive(tmp_path / 'alive', wait=False),
    ):
      pytest.fail('two hold one lock')
  folders.remove_leftovers(tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == ['whole']
  folders.remove_leftovers(tmp_path / 'missing')


def test_a_new_folder_is_whole_or_absent(tmp_path):
  target = tmp_path / 'target'
  with (
    pytest.raises(KeyboardInterrupt),
    folders.exclusive(target),
    folders.new_folder(target) as partial,
  ):
    (partial / 'file').write_text('half')
    raise KeyboardInterrupt
  assert not list(tmp_path.iterdir())
  for text in ('first', 'second'):
    with folders.exclusive(target), folders.new_folder(target) as partial:
      (partial / 'file').write_text(text)
    assert (target / 'file').read_text() == text
  assert list(tmp_path.iterdir()) == [target]


def test_what_changed_in_a_sealed_folder_is_found(tmp_path, monkeypatch):
  folder = tmp_path / 'sealed'
  folder.mkdir()
  (folder / 'a').write_bytes(b'12345')
  (folder / 'b').write_bytes(b'')
  assert folders.find_damage(folder) == 'checksums.json is missing'
  folders.seal(folder)
  with monkeypatch.context() as patch:
    patch.setattr(folders, '_checksum', None)  # the stamp spares reading
    assert not folders.find_damage(folder)
  copied = tmp_path / 'copied'
  shutil.copytree(folder, copied)
  assert not folders.find_damage(copied)
  with monkeypatch.context() as patch:
    patch.setattr(folders, '_checksum', None)  # and it is stamped
    assert not folders.find_damage(copied)
  time = (folder / 'a').stat().st_mtime_ns
  (folder / 'a').write_bytes(b'12346')
  os.utime(folder / 'a', ns=(time + 1, time + 1))
  assert 'a is damaged' in folders.find_damage(folder)
  (folder / 'a').write_bytes(b'1234')
  assert folders.find_damage(folder) == 'a has 4 bytes, expected 5'
  (folder / 'a').unlink()
  assert folders.find_damage(folder) == 'a is missing'
  for text in ('{', '[]', '{"b": 1}', '{"b": ["x", 1]}', '""'):
    (folder / 'checksums.json').write_text(text)
    assert folders.find_damage(folder)


def test_the_users_cache(monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', '/some/where')
  assert str(folders.default_cache('stores')) == '/some/where/sesame/stores'
  monkeypatch.delenv('XDG_CACHE_HOME')
  assert str(folders.default_cache('stores')) == '~/.cache/sesame/stores'
