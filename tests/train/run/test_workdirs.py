"""The folders of runs and of their token stores."""

import os

import pytest

from data.store import corpus, folders
from train.papers import table_figures
from train.probing import outputs
from train.run import settings, workdirs


def store_of(**overrides):
  config = settings.load_config('bert_mini')
  keys = {f'data.{key}': value for key, value in overrides.items()}
  return workdirs.default_store(settings.with_overrides(config, keys))


def test_a_store_has_the_name_of_its_text():
  assert store_of(source='a/books.txt').startswith('runs/stores/books-')
  assert store_of(source='b/books.txt') != store_of(source='a/books.txt')
  assert store_of(held_out=0.1) != store_of()
  # The exponent means nothing for one language.
  assert store_of(language_exponent=0.3) == store_of()
  folders = {'source': 'gs://no-such/books/*/'}  # it is not listed
  assert store_of(**folders).startswith('runs/stores/books-')
  assert store_of(**folders, language_exponent=0.3) != store_of(**folders)
  several = {'source': 'en=books/*.txt,de=buecher/*.txt'}
  assert store_of(**several).startswith('runs/stores/en-de-')
  assert store_of(**several, language_exponent=0.3) != store_of(**several)


@pytest.mark.parametrize(
  ('name', 'read'),
  [
    ('config.json', workdirs.read_config),
    ('results.json', workdirs.read_results),
    ('store.json', corpus.read_meta),
    ('a.json', lambda folder: outputs.read(folder / 'a.json')),
    ('a.json', lambda folder: table_figures.read_summary(folder / 'a.json')),
  ],
)
def test_a_pipe_and_deep_json_in_our_folders_are_named(name, read, tmp_path):
  (tmp_path / name).write_text('{"x":' * 50_000)
  with pytest.raises(ValueError, match=name):
    read(tmp_path)
  (tmp_path / name).unlink()
  os.mkfifo(tmp_path / name)
  with pytest.raises(ValueError, match=name):
    read(tmp_path)


def test_a_pipe_in_the_place_of_checksums_is_damage(tmp_path):
  os.mkfifo(tmp_path / 'checksums.json')
  assert 'it is no regular file' in folders.find_damage(tmp_path)
