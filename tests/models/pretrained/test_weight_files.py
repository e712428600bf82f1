"""Weights in several files, of PyTorch, and remote ones."""

import re
import subprocess
import sys

import published_cases
import pytest
from etils import epath

from models.pretrained import hugging_face, published, weight_files


def test_weights_in_several_files(released, tmp_path):
  _, theirs, params = released
  theirs.save_pretrained(tmp_path, max_shard_size='20KB')
  shards = sorted(tmp_path.glob('model-*.safetensors'))
  assert len(shards) > 3
  published_cases.assert_same(published.open_folder(tmp_path).load(), params)
  data = shards[2].read_bytes()
  shards[2].write_bytes(data[:-5])
  with pytest.raises(ValueError, match=f'{shards[2].name} is damaged'):
    published.open_folder(tmp_path)
  shards[0].unlink()
  shards[2].unlink()
  with pytest.raises(
    FileNotFoundError,
    match=f'2 of the .*missing: {shards[0].name}, {shards[2].name}$',
  ):
    published.open_folder(tmp_path)


@pytest.mark.parametrize('archive', [True, False], ids=['zip', 'old'])
def test_files_of_pytorch(torch, released, archive, tmp_path):
  """As those of 2018 and 2019, whose names were TensorFlow's here and there."""
  folder, theirs, params = released
  (tmp_path / 'bert_config.json').write_bytes(
    (folder / 'config.json').read_bytes()
  )
  state = {
    name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace(
      'LayerNorm.bias', 'LayerNorm.beta'
    ): tensor
    for name, tensor in theirs.state_dict().items()
  }
  assert sum('gamma' in name for name in state) == 8
  state['bert.embeddings.position_ids'] = torch.arange(19)[None]
  file = tmp_path / 'pytorch_model.bin'
  torch.save(state, file, _use_new_zipfile_serialization=archive)
  opened = published.open_folder(tmp_path)
  assert opened.set_aside == ('bert.embeddings.position_ids',)
  published_cases.assert_same(opened.load(), params)
  state['cls.predictions.decoder.weight'] = torch.zeros(131, 36)
  torch.save(state, file, _use_new_zipfile_serialization=archive)
  with pytest.raises(ValueError, match='decoder.weight differs from embedd'):
    published.open_folder(tmp_path).load()
  data = file.read_bytes()
  for kept in (0, 10, len(data) // 100, len(data) // 2, len(data) - 100):
    file.write_bytes(data[:kept])
    with pytest.raises(ValueError, match='pytorch_model.bin is damaged or no'):
      published.open_folder(tmp_path)


def test_remote_files_are_copied_first(tmp_path, monkeypatch):
  model, params = published_cases.make_bert('BertModel')
  hugging_face.write_folder(tmp_path, model, params)
  monkeypatch.setattr(
    weight_files, 'is_remote', lambda file: file.parent == tmp_path
  )
  opened = published.open_folder(tmp_path)
  (tmp_path / 'model.safetensors').write_bytes(b'')
  published_cases.assert_same(opened.load(), params)
  copy = weight_files.local(epath.Path(tmp_path) / 'model.safetensors')
  assert re.search('published-weights-', str(copy))


READER = """
import os, sys
from etils import epath
from models.pretrained import weight_files
print(weight_files.plain(epath.Path(sys.argv[1])), flush=True)
if len(sys.argv) > 2:
  os.kill(os.getpid(), 9)
"""


def test_a_killed_readers_copies_go_with_the_next_one(tmp_path, monkeypatch):
  monkeypatch.setenv('TMPDIR', str(tmp_path))
  file = str(tmp_path / 'exp [v2]' / 'model.safetensors')
  read = [sys.executable, '-c', READER, file]
  killed = subprocess.run([*read, 'kill'], capture_output=True, text=True)
  assert killed.returncode == -9
  left = epath.Path(killed.stdout.strip())
  assert left.parent.is_dir()
  again = subprocess.run(read, capture_output=True, text=True, check=True)
  assert again.stdout.strip() != str(left)
  assert not list(tmp_path.iterdir())
