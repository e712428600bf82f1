"""What a store's build will take: told once, and refused on a small disk."""

import types

import pytest

from data.store import build, outlook


@pytest.fixture
def source():
  return types.SimpleNamespace(num_bytes=1000, bytes_read=0)


def test_it_is_told_once_from_the_first_seconds(
  source, tmp_path, monkeypatch, capsys
):
  clock = [100.0]
  monkeypatch.setattr(outlook.time, 'monotonic', lambda: clock[0])
  tell = outlook.teller(source, tmp_path, 2, True)
  source.bytes_read = 10
  tell(5)
  assert capsys.readouterr().err == ''
  clock[0] += 6
  source.bytes_read = 100  # a tenth in 6 seconds: 54 more
  tell(200_000_000)
  line = capsys.readouterr().err
  assert 'about 0.9 minutes more on 2 processes, 2.0 GB of disk' in line
  assert ' of memory, by the first 6 seconds\n' in line
  tell(300_000_000)
  assert capsys.readouterr().err == ''


def test_a_disk_that_is_too_small_ends_the_build(tmp_path, monkeypatch):
  monkeypatch.setattr(outlook, 'FIRST_SECONDS', -1.0)
  monkeypatch.setattr(
    outlook.shutil, 'disk_usage', lambda _: types.SimpleNamespace(free=100)
  )
  text = tmp_path / 'text'
  text.mkdir()
  for number in range(5):
    line = f'Line {number} of a text with some words.\n'
    (text / f'{number}.txt').write_text(line * 40_000)
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
