"""Weights by their name on Hugging Face's hub, in a cache made by hand."""

import json

import huggingface_hub
import pytest
from etils import epath
from huggingface_hub import constants

from data import hub

NAME = 'some-org/small-bert'
COMMIT = '0123456789abcdef0123456789abcdef01234567'


@pytest.fixture
def cache(tmp_path, monkeypatch):
  """An empty cache; the real one is left alone."""
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
  monkeypatch.chdir(tmp_path)
  return tmp_path / 'hub'


def put(cache, *names, repository=NAME):
  """Puts files into the cache as a download does; returns their folder."""
  repository = cache / f'models--{repository.replace("/", "--")}'
  folder = repository / 'snapshots' / COMMIT
  (repository / 'blobs').mkdir(parents=True, exist_ok=True)
  (repository / 'refs').mkdir(exist_ok=True)
  folder.mkdir(parents=True, exist_ok=True)
  (repository / 'refs' / 'main').write_text(COMMIT)
  for name in names:
    (repository / 'blobs' / name).write_text('{}')
    (folder / name).symlink_to(f'../../blobs/{name}')
  return folder


@pytest.mark.parametrize('weights', ['model.safetensors', 'pytorch_model.bin'])
def test_what_is_cached_needs_no_network(cache, weights):
  folder = put(cache, 'config.json', 'vocab.txt', weights)
  assert hub.find(NAME) == epath.Path(folder)


def test_old_names_are_known(cache, tmp_path):
  name = 'google-bert/bert-base-uncased'
  folder = put(cache, 'vocab.txt', repository=name)
  short = name.partition('/')[2]
  assert hub.find(short, vocabulary_only=True) == epath.Path(folder)
  with pytest.raises(FileNotFoundError, match=name):
    hub.find(short)  # no weights
  assert hub.find('gpt3') == epath.Path('gpt3')
  (tmp_path / short).mkdir()
  assert hub.find(short) == epath.Path(short)


def test_a_path_wins(cache, tmp_path):
  put(cache, 'config.json', 'vocab.txt', 'model.safetensors')
  (tmp_path / NAME).mkdir(parents=True)
  assert hub.find(NAME) == epath.Path(NAME)
  # Nor is a misspelt path asked for in the network.
  assert hub.find('some-org/smal-bert') == epath.Path('some-org/smal-bert')
  for path in ('gs://some-org/small-bert', '~/small', '/a/b', 'small-bert'):
    assert hub.find(path) == epath.Path(path).expanduser()


def test_what_lacks_is_downloaded(cache, monkeypatch):
  """Of two formats the first; nothing that nobody reads."""
  folder = put(cache, 'config.json', 'model.safetensors')
  asked = []
  real = huggingface_hub.snapshot_download

  def download(name, *, allow_patterns, local_files_only):
    if local_files_only:
      return real(
        name, allow_patterns=allow_patterns, local_files_only=local_files_only
      )
    asked.append((name, allow_patterns))
    if 'vocab.txt' in allow_patterns:
      (folder / 'vocab.txt').write_text('[PAD]')
    return str(folder)

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
  assert hub.find(NAME) == epath.Path(folder)
  ((name, patterns),) = asked
  assert name == NAME
  assert 'model*.safetensors' in patterns and 'config.json' in patterns
  assert not [pattern for pattern in patterns if pattern.endswith('.bin')]
  # Without safetensors the other format is asked for.
  (folder / 'model.safetensors').unlink()
  asked.clear()
  with pytest.raises(FileNotFoundError, match='holds config.json, vocab.txt, '):
    hub.find(NAME)
  assert [patterns[-2] for _, patterns in asked] == [
    'model*.safetensors',
    'pytorch_model*.bin',
  ]


def test_a_part_of_several_files_is_not_whole(cache):
  folder = put(cache, 'config.json', 'tokenizer.json', 'model-1.safetensors')
  (folder / 'model.safetensors.index.json').write_text(
    json.dumps({'weight_map': {'a': 'model-1.safetensors', 'b': 'model-2.st'}})
  )
  with pytest.raises(FileNotFoundError, match='could not be downloaded'):
    hub.find(NAME)
  (folder / 'model-2.st').write_text('')
  assert hub.find(NAME) == epath.Path(folder)


def test_no_network_is_told_with_a_cure(cache):
  """The tests run with HF_HUB_OFFLINE."""
  with pytest.raises(FileNotFoundError) as error:
    hub.find(NAME)
  for part in (
    f'{NAME}: there is no such path',
    str(cache),
    f'hf download {NAME} --local-dir FOLDER',
  ):
    assert part in str(error.value)
