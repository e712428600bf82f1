"""Tables of one set of texts, as files of each format."""

import csv
import gzip
import io
import json

import pyarrow as pa
import zstandard
from pyarrow import feather, ipc, parquet

TEXTS = [
  'One, "quoted" text.\n\nIts second paragraph.\r\nA line.',
  'Tab\tand comma, é 😀',
  '',
  'x ' * 700_000,
  '  ',
  'The last.',
]
FEATURES = {
  'id': {'dtype': 'int64', '_type': 'Value'},
  'body': {'dtype': 'string', '_type': 'Value'},
  'label': {'names': ['bad', 'good'], '_type': 'ClassLabel'},
}


def make_table(texts=TEXTS):
  """A table of ids, bodies and classes, with the metadata of a data set."""
  table = pa.table(
    {
      'id': list(range(len(texts))),
      'body': texts,
      'label': [i % 2 for i in range(len(texts))],
    }
  )
  info = json.dumps({'info': {'features': FEATURES}})
  return table.replace_schema_metadata({'huggingface': info})


def as_csv(table):
  out = io.StringIO(newline='')
  rows = csv.writer(out)
  rows.writerow(table.column_names)
  rows.writerows(zip(*table.to_pydict().values(), strict=True))
  return out.getvalue().encode()


def write_stream(path, table):
  path.parent.mkdir(parents=True, exist_ok=True)
  with ipc.new_stream(str(path), table.schema) as out:
    out.write_table(table, max_chunksize=2)


def write_file(path, table):
  with ipc.new_file(str(path), table.schema) as out:
    out.write_table(table, max_chunksize=2)


WRITERS = {
  'a.parquet': lambda path, t: parquet.write_table(t, path, row_group_size=4),
  'stream.arrow': write_stream,
  'file.arrow': write_file,
  'a.feather': lambda path, t: feather.write_feather(t, str(path)),
  'a.csv': lambda path, t: path.write_bytes(as_csv(t)),
  'a.csv.gz': lambda path, t: path.write_bytes(gzip.compress(as_csv(t))),
  'a.CSV.zst': lambda path, t: path.write_bytes(
    zstandard.ZstdCompressor().compress(as_csv(t))
  ),
}


def write_saved(folder, table, files=2, indices=None):
  """Writes a folder of `save_to_disk`; `indices` choose rows, as of old."""
  size = -(-len(table) // files)
  names = []
  for number in range(files):
    names.append(f'data-{number:05d}-of-{files:05d}.arrow')
    write_stream(folder / names[-1], table.slice(number * size, size))
  state = {'_data_files': [{'filename': name} for name in names]}
  if indices is not None:
    chosen = pa.table({'indices': pa.array(indices, pa.uint64())})
    write_stream(folder / 'indices.arrow', chosen)
    state['_indices_data_files'] = [{'filename': 'indices.arrow'}]
  (folder / 'state.json').write_text(json.dumps(state))
  (folder / 'dataset_info.json').write_text(json.dumps({'features': FEATURES}))
  return folder
