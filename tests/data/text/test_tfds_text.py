"""Text of TensorFlow Datasets."""

import collections
import json
import os
import socket
import subprocess
import sys
import urllib.request

import pytest

from data.text import tfds_text

WRITE_TFDS = """
import numpy as np
import tensorflow_datasets as tfds
texts = {'train': [f' Document {i}.\\n\\nÜber it.\\n ' for i in range(50)],
         'test': ['Held out.']}
tfds.dataset_builders.store_as_tfds_dataset(
  name='tiny_texts', version='1.0.0',
  features=tfds.features.FeaturesDict(
    {'body': tfds.features.Text(), 'id': np.int64}),
  split_datasets={split: [(i, {'body': t, 'id': i}) for i, t in enumerate(ts)]
                  for split, ts in texts.items()},
)
"""


READ_TFDS = """
import json, sys
from data.text import sources, tfds_text
for spec, field in json.loads(sys.argv[1]):
  try:
    assert tfds_text.is_prepared(spec.removeprefix('tfds:'))
    source = sources.open_source(spec, text_field=field)
    assert 'tensorflow' in sys.modules
    pieces = list(source.pieces('kept'))
    assert all(piece.ends_document for piece in pieces)
    assert pieces == list(source.pieces())
    assert source.bytes_read == source.num_bytes > 0
    print(json.dumps([source.description, [p.text for p in pieces]]))
  except ValueError as error:
    print(json.dumps(['error', str(error)]))
"""


@pytest.mark.slow
def test_tfds_reads_what_tfds_wrote(tmp_path):
  """In processes of their own: TFDS reads its folder's name at import."""
  env = os.environ | {'TFDS_DATA_DIR': str(tmp_path)}
  env['TF_CPP_MIN_LOG_LEVEL'] = '3'
  write = [sys.executable, '-c', WRITE_TFDS]
  subprocess.run(write, env=env, check=True, capture_output=True, timeout=400)
  specs = [
    ('tfds:tiny_texts', 'text'),  # the only text feature
    ('tfds:tiny_texts:1.0.0:train[:10%]', 'body'),
    ('tfds:tiny_texts:train[2:4]', 'body'),
    ('tfds:tiny_texts:test', 'body'),
    ('tfds:tiny_texts:valid', 'body'),
    ('tfds:tiny_texts', 'title'),
    ('tfds:no_such_set', 'text'),
    ('tfds:', 'text'),
  ]
  command = [sys.executable, '-c', READ_TFDS, json.dumps(specs)]
  done = subprocess.run(
    command, env=env, check=True, capture_output=True, text=True, timeout=400
  )
  whole, part, some, test, *errors = map(json.loads, done.stdout.splitlines())
  expected = [f' Document {i}.\n\nÜber it.\n ' for i in range(50)]
  assert collections.Counter(whole[1]) == collections.Counter(expected)
  assert whole[1][:5] == part[1]
  assert whole[1][2:4] == some[1]
  assert test[1] == ['Held out.']
  assert 'field body: 50 records' in whole[0]
  assert all(kind == 'error' for kind, _ in errors)
  assert "no split 'valid'; the splits of tiny_texts are" in errors[0][1]
  assert "['test', 'train']" in errors[0][1]
  assert "no text field 'title'; its text fields are ['body']" in errors[1][1]
  assert "no data set 'no_such_set'" in errors[2][1]
  assert 'expected tfds:NAME' in errors[3][1]

  prepare = [sys.executable, '-m', 'data.prepare', '--json']
  prepare += ['--source', 'tfds:tiny_texts', '--tokenizer']
  prepare += ['train:wordpiece:100', '--out', str(tmp_path / 'store')]
  done = subprocess.run(
    prepare, env=env, check=True, capture_output=True, text=True, timeout=400
  )
  assert json.loads(done.stdout)['documents'] == 50


def test_without_a_network_nothing_is_tried_for_minutes(monkeypatch, tmp_path):
  class Builder:
    data_dir = tmp_path

    def is_prepared(self):
      return False

    def download_and_prepare(self):
      raise AssertionError('it is tried')

  def fail(*_):
    raise socket.gaierror(-2, 'Name or service not known')

  monkeypatch.setattr(tfds_text, '_find_builder', lambda *_: Builder())
  monkeypatch.setattr(urllib.request, 'getproxies', dict)
  monkeypatch.setattr(socket, 'getaddrinfo', fail)
  with pytest.raises(ValueError, match='there is no network: Name or service'):
    tfds_text.open_builder('books', 'books')
  monkeypatch.setattr(urllib.request, 'getproxies', lambda: {'https': 'proxy'})
  with pytest.raises(ValueError, match='it is tried'):
    tfds_text.open_builder('books', 'books')


def test_a_library_that_is_not_installed_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  with pytest.raises(ValueError, match='pip install tensorflow-datasets'):
    tfds_text.open_builder('imdb', 'imdb')
