"""Tables as sources of text: the bits of the same text as JSONL."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet
from small_tables import TEXTS, WRITERS, make_table
from text_sources import read, texts_of

from data.store import build
from data.text import sources

KEPT = [text.replace('\r\n', '\n') for text in TEXTS if text.strip()]


@pytest.mark.parametrize('name', WRITERS)
def test_all_formats_have_the_same_documents(name, tmp_path):
  WRITERS[name](tmp_path / name, make_table())
  source = sources.open_source(str(tmp_path / name))
  assert texts_of(source) == KEPT
  assert source.dropped == {'record without text': 2}
  assert source.bytes_read == source.num_bytes > 0
  assert source.document_break == 'record'
  assert "its column 'body', the only one of text" in source.description
  named = sources.open_source(str(tmp_path / name), text_field='body')
  assert 'only one' not in named.description
  assert named.fingerprint == source.fingerprint


def test_a_store_has_the_bits_of_jsonl(tmp_path):
  texts = [f'Text number {i}. It has {i} words, or so.' for i in range(60)]
  lines = [json.dumps({'text': text}) for text in texts]
  (tmp_path / 'a.jsonl').write_text('\n'.join(lines))
  names = ['a.jsonl']
  for name, write in WRITERS.items():
    write(tmp_path / name, make_table(texts))
    names.append(name)
  found = set()
  for name in names:
    store = tmp_path / f'store of {name}'
    build.build_store(
      str(tmp_path / name),
      'train:wordpiece:200',
      str(store),
      workers=1,
      progress=False,
    )
    bits = [
      p.read_bytes() for p in sorted(store.glob('*')) if p.suffix != '.json'
    ]
    found.add(tuple(bits))
  assert len(bits) >= 4
  assert len(found) == 1


def test_null_texts_are_counted(tmp_path):
  table = pa.table({'text': ['One.', None, '', None], 'id': [1, 2, 3, 4]})
  parquet.write_table(table, tmp_path / 'a.parquet')
  source = sources.open_source(str(tmp_path / 'a.parquet'))
  assert texts_of(source) == ['One.']
  assert source.dropped == {
    'record with a null text': 2,
    'record without text': 1,
  }


def test_a_tsv_has_no_quoting(tmp_path):
  (tmp_path / 'a.tsv').write_text(
    'id\tbody\n1\tSay "no", he said.\n\n2\t"No.\n'
  )
  assert read(tmp_path / 'a.tsv') == ['Say "no", he said.', '"No.']
  (tmp_path / 'a.tsv').write_text('id\tbody\n1\t"Say ""no""."\n')
  with pytest.raises(ValueError, match='a.tsv, line 2: found a field in the q'):
    read(tmp_path / 'a.tsv')


def test_several_files_and_languages(tmp_path):
  for name in ('a.parquet', 'a.csv'):
    WRITERS[name](tmp_path / name, make_table(['One.', name]))
  assert read(tmp_path / '*.*') == ['One.', 'a.csv', 'One.', 'a.parquet']
  both = sources.open_source(f'en={tmp_path}/a.csv,de={tmp_path}/a.parquet')
  assert [piece.language for piece in both.pieces()] == [0, 0, 1, 1]


@pytest.mark.parametrize(
  ('columns', 'options', 'message'),
  [
    (
      {'body': ['One.'], 'id': [1]},
      {'text_field': 'txt'},
      r"b.parquet: found no column 'txt', expected one, as in .*a.parquet: its"
      r" columns are 'body' \(string\), 'id' \(int64\)",
    ),
    (
      {'txt': [5]},
      {'text_field': 'txt'},
      "b.parquet: found int64 in the column 'txt', expected text as in .*a.par",
    ),
    (
      {'txt': [{'of': 'One.'}]},
      {'text_field': 'txt'},
      "b.parquet: found struct<of: string> in the column 'txt', which is n",
    ),
    (
      {'txt': ['One.'], 'url': ['http']},
      {},
      r"b.parquet: found the columns of text \['txt', 'url'\], expected \['t",
    ),
  ],
)
def test_other_columns_in_another_file_are_refused(
  columns, options, message, tmp_path
):
  parquet.write_table(pa.table({'txt': ['One.']}), tmp_path / 'a.parquet')
  parquet.write_table(pa.table(columns), tmp_path / 'b.parquet')
  with pytest.raises(ValueError, match=message):
    sources.open_source(f'{tmp_path}/*.parquet', **options)


@pytest.mark.parametrize(
  ('columns', 'message'),
  [
    (
      {'title': ['A'], 'body': ['One.']},
      r"found 2 columns of text and none named 'text': its columns are 'title'"
      r" \(string\), 'body' \(string\). Name the one of the text by text_field",
    ),
    ({'id': [1]}, 'found no columns of text'),
    ({'text': [b'One.']}, "found binary in the column 'text', expected text"),
  ],
)
def test_a_column_is_not_guessed_among_several(columns, message, tmp_path):
  parquet.write_table(pa.table(columns), tmp_path / 'a.parquet')
  with pytest.raises(ValueError, match=message):
    sources.open_source(str(tmp_path / 'a.parquet'))


def test_a_folder_of_text_and_tables_is_refused(tmp_path):
  (tmp_path / 'a.csv').write_text('text\nOne.\n')
  (tmp_path / 'README.md').write_text('What it is.')
  for spec in (tmp_path, f'{tmp_path}/*'):
    source = sources.open_source(str(spec))
    assert texts_of(source) == ['One.']
    assert source.dropped == {'file beside the tables': 1}
    assert source.dropped_files == {
      'file beside the tables': [f'{tmp_path}/README.md']
    }
  (tmp_path / 'b.txt').write_text('Two.')
  with pytest.raises(
    ValueError,
    match=r"b.txt, and tables, such as .*a.csv, .* as in '.*/\*.txt'",
  ):
    sources.open_source(str(tmp_path))


@pytest.mark.parametrize('name', WRITERS)
def test_a_folder_of_any_tables_has_splits(name, tmp_path):
  for split in ('train', 'test'):
    WRITERS[name](tmp_path / f'{split}_{name}', make_table([f'{split}.']))
  (tmp_path / f'gone_{name}').symlink_to('away')
  source = sources.open_source(str(tmp_path))
  assert texts_of(source) == ['train.']
  assert "1 file of the split 'train' (not of test)" in source.description
  assert source.dropped_files == {
    'link to nothing': [f'{tmp_path}/gone_{name} -> away']
  }
  assert read(f'hf:{tmp_path}:test') == ['test.']
  (tmp_path / f'gone_{name}').unlink()
  assert read(f'{tmp_path}/*') == ['test.', 'train.']


def test_documents_of_tables_have_no_break(tmp_path):
  (tmp_path / 'a.csv').write_text('text\nOne.\n')
  with pytest.raises(ValueError, match="document_break 'file' does not apply"):
    sources.open_source(str(tmp_path / 'a.csv'), document_break='file')
