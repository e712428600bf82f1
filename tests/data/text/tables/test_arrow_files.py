"""Parquet and arrow: damage, other kinds of files, memory."""

import numpy as np
import pyarrow as pa
import pytest
from etils import epath
from pyarrow import ipc, parquet
from small_tables import WRITERS, make_table

from data.text.tables import arrow_files

BINARY = [name for name in WRITERS if 'csv' not in name.lower()]


def read(path, column='body'):
  opened = arrow_files.open_table(epath.Path(path))
  return [values[0] for _, values in opened.rows((column,))]


@pytest.mark.parametrize('name', BINARY)
def test_a_file_that_was_cut_off_is_named(name, tmp_path):
  path = tmp_path / name
  WRITERS[name](path, make_table(['Some words.' * 40] * 20))
  whole = path.read_bytes()
  for share in (0.02, 0.5, 0.97):
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ValueError, match='cut off or damaged') as error:
      read(path)
    assert str(path) in str(error.value)
    assert '\n' not in str(error.value)
  path.write_bytes(b'')
  with pytest.raises(ValueError, match='is empty, expected a table'):
    read(path)


def ends_of_batches(path):
  with pa.memory_map(str(path)) as file:
    batches = ipc.open_stream(file)
    return [file.tell(), *(file.tell() for _ in batches)]


def test_a_stream_that_was_cut_between_batches_is_named(tmp_path):
  """Arrow itself would take it for whole."""
  path = tmp_path / 'a.arrow'
  WRITERS['stream.arrow'](path, make_table([f'Text {i}.' for i in range(6)]))
  whole, (*ends, last) = path.read_bytes(), ends_of_batches(path)
  for number, end in enumerate([*ends, last]):
    path.write_bytes(whole[:end])
    after = f' after row {2 * number}' * bool(number)
    with pytest.raises(
      ValueError,
      match=rf'a.arrow: the file is cut off or damaged{after} \({end:,} bytes'
      r"\): found b'' after the last batch, expected the mark of the end",
    ):
      read(path)
  path.write_bytes(whole[:last] + bytes(4))  # as before Arrow 0.15
  assert len(read(path)) == 6
  path.write_bytes(whole * 2)  # Arrow itself would read the first half
  with pytest.raises(ValueError, match='after row 6 .* and nothing after it'):
    read(path)


def test_a_stream_without_rows_is_whole(tmp_path):
  WRITERS['stream.arrow'](tmp_path / 'a.arrow', make_table([]))
  assert read(tmp_path / 'a.arrow') == []


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.parquet', b'Text.', "begins with b'Text.', expected PAR1"),
    ('a.arrow', b'PAR1 and more', "begins with b'PAR1 and', expected an arrow"),
    ('a.feather', b'FEA1', 'found Feather of version 1, expected version 2'),
    (
      'a.parquet',
      b'version https://git-lfs.github.com/spec/v1',
      'found a pointer of Git LFS, expected the file itself: git lfs pull',
    ),
    ('a.parquet.gz', b'PAR1', 'found a compressed file of .parquet, expected'),
  ],
)
def test_other_files_are_named(name, content, message, tmp_path):
  (tmp_path / name).write_bytes(content)
  with pytest.raises(ValueError, match=message):
    read(tmp_path / name)


def test_a_damaged_part_is_named_with_its_row(tmp_path):
  path = tmp_path / 'a.parquet'
  texts = [f'{i:05d}' * 50 for i in range(4000)]
  parquet.write_table(
    make_table(texts), path, row_group_size=1000, compression='gzip'
  )
  data = bytearray(path.read_bytes())
  place = parquet.ParquetFile(path).metadata.row_group(3).column(1)
  at = place.dictionary_page_offset + 200  # behind the head of the page
  data[at : at + 200] = b'\xff' * 200
  path.write_bytes(data)
  with pytest.raises(ValueError, match='damaged after row 2,048 '):
    read(path)


def test_text_that_is_not_utf_8_is_named(tmp_path):
  wrong = pa.array([b'One.', b'caf\xe9'], pa.binary()).view(pa.string())
  parquet.write_table(pa.table({'body': wrong}), tmp_path / 'a.parquet')
  with pytest.raises(
    ValueError,
    match=r"row 2: found the byte 0xe9 in the column 'body' at byte 3",
  ):
    read(tmp_path / 'a.parquet')


@pytest.mark.parametrize('name', ['file.arrow', 'stream.arrow'])
def test_places_outside_of_the_text_are_named(name, tmp_path):
  """Arrow itself would read there: wrong text, or the end of the process."""
  path = tmp_path / name
  WRITERS[name](path, pa.table({'body': ['One.', 'Two.', 'Three.', 'Four.']}))
  content = path.read_bytes()
  places = np.array([0, 4, 8], '<i4').tobytes()  # of the first two texts
  assert content.count(places) == 1
  for wrong in ([0, 4, 1 << 30], [0, -9, 8], [9, 4, 8]):
    path.write_bytes(
      content.replace(places, np.array(wrong, '<i4').tobytes(), 1)
    )
    with pytest.raises(ValueError, match=f'{name}: the file is damaged after'):
      read(path)


def test_two_columns_of_a_name_are_refused(tmp_path):
  twice = pa.table([['One.'], ['Two.']], names=['body', 'body'])
  parquet.write_table(twice, tmp_path / 'a.parquet')
  with pytest.raises(ValueError, match="found 2 columns named 'body'"):
    read(tmp_path / 'a.parquet')


def test_other_types_of_text_are_read(tmp_path):
  for number, kind in enumerate((pa.large_string(), pa.string_view())):
    values = pa.table({'body': pa.array(['One.', None], kind)})
    path = tmp_path / f'{number}.arrow'
    WRITERS['file.arrow'](path, values)
    assert read(path) == ['One.', None]
  values = pa.table({'body': pa.array(['a', 'b', 'a']).dictionary_encode()})
  for name in BINARY:
    WRITERS[name](tmp_path / name, values)
    assert read(tmp_path / name) == ['a', 'b', 'a']


@pytest.mark.parametrize('name', ['a.parquet', 'file.arrow', 'stream.arrow'])
def test_parts_are_small(name, tmp_path, monkeypatch):
  """One batch of a file is read in parts, whatever its size."""
  monkeypatch.setattr(arrow_files, 'PART_BYTES', 1000)
  texts = [f'{i:03d}' * 30 for i in range(500)]
  WRITERS[name](tmp_path / name, make_table(texts))
  sizes = []
  values_of = arrow_files.values_of

  def spied(place, batch, *rest):
    sizes.append(batch.num_rows)
    return values_of(place, batch, *rest)

  monkeypatch.setattr(arrow_files, 'values_of', spied)
  assert read(tmp_path / name) == texts
  assert max(sizes) <= 20


def test_memory_is_bounded(tmp_path):
  """Of a file of many row groups, none is held that was read."""
  path = tmp_path / 'a.parquet'
  words = np.random.default_rng(0).integers(32, 127, (2000, 10_000), np.uint8)
  table = pa.table({'body': [row.tobytes().decode() for row in words]})
  parquet.write_table(
    table, path, row_group_size=100, compression='none', use_dictionary=False
  )
  del table, words
  before = most = pa.total_allocated_bytes()
  opened = arrow_files.open_table(epath.Path(path))
  for _ in opened.rows(('body',)):
    most = max(most, pa.total_allocated_bytes())
  assert path.stat().st_size > 20_000_000
  assert most - before < 8_000_000
