"""TensorFlow's checkpoints, damaged and hostile ones too."""

import sys

import mutations
import numpy as np
import published_cases
import pytest
from etils import epath
from hostile_files import refused

from models.pretrained import published, tensorflow_file


def test_checkpoints_that_are_damaged_or_several(tmp_path):
  tmp_path = tmp_path / 'exp [v2]'  # no pattern
  tmp_path.mkdir()
  model, params = published_cases.make_bert('BertModel')
  for step in (5, 12):
    published_cases.save_checkpoint(
      tmp_path / f'model.ckpt-{step}',
      published_cases.bert_arrays(model, params),
    )
  published_cases.write_bert_config(tmp_path, model)
  with pytest.raises(ValueError, match='several.*ckpt-12.index, model.ckpt-5.'):
    published.open_folder(tmp_path)
  (tmp_path / 'checkpoint').write_text(
    'model_checkpoint_path: "/tmp/run/model.ckpt-12"\n'
    'all_model_checkpoint_paths: "/tmp/run/model.ckpt-5"\n'
  )
  published_cases.assert_same(published.open_folder(tmp_path).load(), params)
  data = tmp_path / 'model.ckpt-12.data-00000-of-00001'
  whole = data.read_bytes()
  data.write_bytes(whole[:-4])
  with pytest.raises(ValueError, match='data-00000-of-00001 is damaged.*bytes'):
    published.open_folder(tmp_path)
  data.write_bytes(whole[:9000] + b'!' + whole[9001:])  # checked when read
  with pytest.raises(ValueError, match='data-00000-of-00001 is damaged'):
    published.open_folder(tmp_path).load()
  data.rename(tmp_path / 'model.ckpt-12.data-00001-of-00003')
  with pytest.raises(
    FileNotFoundError, match='data-00000-of-00003, .*data-00002-of-00003$'
  ):
    published.open_folder(tmp_path)


@pytest.fixture
def checkpoint(tmp_path):
  """(index, its bytes) of a checkpoint of two arrays."""
  tf = pytest.importorskip('tensorflow')
  arrays = {'a': np.ones((4, 3), np.float32), 'b': np.zeros(3, np.float32)}
  tf.raw_ops.SaveV2(
    prefix=str(tmp_path / 'model.ckpt'),
    tensor_names=list(arrays),
    shape_and_slices=[''] * len(arrays),
    tensors=[tf.constant(array) for array in arrays.values()],
  )
  index = epath.Path(tmp_path) / 'model.ckpt.index'
  return index, index.read_bytes()


@pytest.mark.parametrize(
  'old, new, message',
  [
    # The type of an array, and then its shape: lengths, tags and sizes.
    (b'\x08\1\x12\x08\x12\2\x08\4', b'\x0f\1\x12\x08\x12\2\x08\4', 'a: .*pars'),
    (b'\x08\1\x12\x08', b'\x08\x63\x12\x08', 'a: .*DType'),
    (b'\x08\1\x12\x08', b'\x08\x65\x12\x08', 'a holds float32_ref'),
    (
      b'\x12\2\x08\4',
      b'\x12\2\x08\x7f',
      'a takes 1,524 bytes, .* 60 bytes',
    ),
    (b'\x12\2\x08\4', b'\x12\2\x08\1', 'a has 48 bytes, expected 12'),
    (b'\x20\x30\x28\x0c', b'\x20\x7f\x28\x0c', 'b lies at bytes 127 to 139'),
  ],
  ids=['no message', 'no type', 'address', 'larger', 'smaller', 'elsewhere'],
)
def test_hostile_indices_of_tensorflow(old, new, message, checkpoint):
  """Their sums are right; TensorFlow would end the program at the first."""
  index, content = checkpoint
  assert content.count(old) == 1
  index.write_bytes(mutations.pack_index(content, content.replace(old, new)))
  refused(tensorflow_file.entries, index, message)
  index.write_bytes(mutations.pack_index(content, content))
  entries = tensorflow_file.entries(index)
  assert [entry.read().sum() for entry in entries.values()] == [12, 0]


def test_a_checkpoint_without_tensorflow_is_refused(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow', None)
  with pytest.raises(ValueError, match='a/b.index: a checkpoint of TensorFlow'):
    tensorflow_file.entries(epath.Path('a/b.index'))
