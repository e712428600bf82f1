"""What a store's build will take: told once, and refused on a small disk."""

import types

import pytest

from data.store import build, outlook, pool


@pytest.fixture
def source():
  return types.SimpleNamespace(num_bytes=1000, bytes_read=0)


def test_it_is_told_once_from_the_first_seconds(
  source, tmp_path, monkeypatch, capsys
):
  clock = [100.0]
  monkeypatch.setattr(outlook.time, 'monotonic', lambda: clock[0])
  tell = outlook.teller(source, tmp_path, 2, True)
  source.bytes_read = 100
  tell(0)
  tell(100_000_000)
  assert capsys.readouterr().err == ''
  clock[0] += 6
  source.bytes_read = 200  # a tenth in 6 seconds, of which 0.2 GB were written
  tell(300_000_000)
  line = capsys.readouterr().err
  assert 'about 0.8 minutes more on 2 processes, 2.0 GB of disk' in line
  assert ' of memory, by the first 6 seconds\n' in line
  tell(900_000_000)
  assert capsys.readouterr().err == ''


def test_a_disk_that_is_too_small_ends_the_build(tmp_path, monkeypatch):
  monkeypatch.setattr(outlook, 'FIRST_SECONDS', -1.0)
  monkeypatch.setattr(pool, 'ITEM_CHARACTERS', 100)
  monkeypatch.setattr(
    outlook.shutil, 'disk_usage', lambda _: types.SimpleNamespace(free=100)
  )
  text = tmp_path / 'text'
  text.mkdir()
  for number in range(30):
    line = f'Line {number} of a text with some words.\n'
    (text / f'{number}.txt').write_text(line * 20)
  with pytest.raises(
    OSError, match='about .* MB, .* and 0 MB are free: make ro'
  ):
    build.build_store(
      str(text),
      'train:wordpiece:100',
      str(tmp_path / 'store'),
      workers=1,
      progress=False,
    )
  assert not (tmp_path / 'store').exists()
