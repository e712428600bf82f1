"""Weights by their name on Hugging Face's hub, in a cache made by hand."""

import json
import os
import re

import huggingface_hub
import pytest
from etils import epath
from huggingface_hub import constants

from data import hub
from data.vocabulary import tokenization

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
  with pytest.raises(FileNotFoundError, match='gpt3: there is no such file'):
    hub.find('gpt3')
  (tmp_path / short).mkdir()
  assert hub.find(short) == epath.Path(short)


def test_a_path_wins(cache, tmp_path):
  put(cache, 'config.json', 'vocab.txt', 'model.safetensors')
  (tmp_path / NAME).mkdir(parents=True)
  assert hub.find(NAME) == epath.Path(NAME)
  assert hub.find(str(tmp_path / NAME)) == epath.Path(tmp_path / NAME)


def test_remote_paths_are_no_names(cache, no_download, monkeypatch):
  kind = type(epath.Path('gs://some-org/small'))
  monkeypatch.setattr(kind, 'exists', lambda path: True)
  assert str(hub.find('gs://some-org/small')) == 'gs://some-org/small'
  monkeypatch.setattr(kind, 'exists', lambda path: False)
  with pytest.raises(FileNotFoundError, match='^gs://some-org/small: .*der; a'):
    hub.find('gs://some-org/small')


@pytest.fixture
def no_download(monkeypatch):
  """Whoever asks the hub for anything fails."""

  def download(name, **_):
    pytest.fail(f'{name} was asked for on the hub')

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)


@pytest.mark.parametrize(
  ('path', 'hint'),
  [
    ('runs/bert', 'hf://runs/bert'),
    ('stores/books', 'hf://stores/books'),
    ('here/bert', 'hf://here/bert'),  # below a folder that is here
    ('books/vocab.txt', 'hf://books/vocab.txt'),
    ('bert', 'hf://ORGANISATION/MODEL'),
    *(
      (path, 'hf://ORGANISATION/MODEL')
      for path in ('./bert', '../bert', 'a/b/c', 'google-bert/bert/')
    ),
  ],
)
def test_what_may_be_a_path_is_never_downloaded(
  cache, no_download, tmp_path, path, hint
):
  """The message names the folder that was searched, and a way to the hub."""
  (tmp_path / 'here').mkdir()
  expected = f'{path}: there is no such file or folder in {tmp_path}; '
  for find in (hub.find, tokenization.load):
    with pytest.raises(FileNotFoundError, match=re.escape(expected)) as error:
      find(path)
    assert re.search(rf'asked for by {hint}\b', str(error.value))


def test_paths_from_elsewhere_tell_no_folder(cache, no_download):
  for path in ('/a/b', '~/small'):
    with pytest.raises(FileNotFoundError, match=f'^{path}: .* folder; a model'):
      hub.find(path)


def test_the_hub_is_asked_by_its_scheme(cache, tmp_path):
  """Whatever is here."""
  for name in ('runs/bert', NAME):
    folder = put(cache, 'vocab.txt', repository=name)
    (tmp_path / name).mkdir(parents=True)
    found = hub.find(f'hf://{name}', vocabulary_only=True)
    assert found == epath.Path(folder)
    assert hub.find(name) == epath.Path(name)
  folder = put(cache, 'vocab.txt', repository='openai-community/gpt2')
  assert hub.find('hf://gpt2', vocabulary_only=True) == epath.Path(folder)
  folder = put(cache, 'vocab.json', repository='FacebookAI/roberta-base')
  assert hub.find('roberta-base', vocabulary_only=True) == epath.Path(folder)
  for name in ('', 'bert', 'a/b/c', './a', '/a/b', 'a/b@main'):
    with pytest.raises(ValueError, match='expected hf://ORGANISATION/MODEL'):
      hub.find(f'hf://{name}')


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
    'flax_model*.msgpack',
  ]


def test_weights_may_be_published_without_a_vocabulary(cache, monkeypatch):
  """It is asked for where there is a network, and their other format is not."""
  folder = put(cache, 'config.json', 'model.safetensors')
  assert hub.find(NAME) == epath.Path(folder)  # without a network
  asked = []

  def download(name, *, allow_patterns, local_files_only):
    asked.append((allow_patterns[-2], local_files_only))
    return str(folder)

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
  assert hub.find(NAME) == epath.Path(folder)
  assert [patterns for patterns, cached in asked if not cached] == [
    'model*.safetensors'
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
  with pytest.raises(FileNotFoundError, match=f'^hf://{NAME} is not in the ca'):
    hub.find(f'hf://{NAME}')


@pytest.mark.parametrize('name', ['config.json', 'vocab.txt', 'x.safetensors'])
def test_a_pipe_or_a_device_among_weights_is_refused(name, tmp_path):
  (tmp_path / 'notes').mkdir()
  os.mkfifo(tmp_path / 'notes' / 'pipe')
  assert hub.find(tmp_path) == epath.Path(tmp_path)
  (tmp_path / name).symlink_to('/dev/zero')
  with pytest.raises(ValueError, match=f'{name}: is no regular file'):
    hub.find(tmp_path)
  (tmp_path / name).unlink()
  os.mkfifo(tmp_path / name)
  with pytest.raises(ValueError, match=f'{name}: is no regular file'):
    hub.find(tmp_path)
