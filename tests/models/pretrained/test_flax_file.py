"""Files that transformers' Flax classes wrote."""

import flax_files
import jax.numpy as jnp
import msgpack
import numpy as np
import pytest
import small_published
from flax import serialization

from data.vocabulary import tokenization
from models.pretrained import flax_file, published, weight_files
from models.pretrained.strict import flatten

KINDS = ('BertForPreTraining', 'BertForSequenceClassification', 'gpt2')


@pytest.fixture(scope='module')
def tokenizers(small_store):
  texts = ['a few words of text', 'and some more of them'] * 50
  training = tokenization.parse_training('train:bytebpe:300')
  return tokenization.load(small_store), tokenization.train(texts, training)


@pytest.mark.parametrize('sharded', [False, True], ids=['whole', 'shards'])
@pytest.mark.parametrize('kind', KINDS)
def test_a_model_is_the_one_of_pytorch(
  torch, tokenizers, kind, sharded, tmp_path
):
  torch.manual_seed(0)
  if kind == 'gpt2':
    model = small_published.write_gpt(tmp_path, tokenizers[1])
  else:
    model = small_published.write_bert(tmp_path, tokenizers[0], kind)
  expected = published.open_folder(tmp_path)
  params = flatten(expected.load())
  (tmp_path / 'model.safetensors').unlink()
  write = flax_files.write_shards if sharded else flax_files.write
  write(tmp_path, flax_files.named(model))
  found = published.open_folder(tmp_path)
  assert (found.heads, found.model) == (expected.heads, expected.model)
  assert not found.problems
  loaded = flatten(found.load())
  assert loaded.keys() == params.keys()
  for path, leaf in params.items():
    np.testing.assert_array_equal(loaded[path], leaf, err_msg=path)


def test_arrays_in_parts_and_other_numbers(tmp_path, monkeypatch):
  arrays = {
    'a': {'kernel': np.arange(6, dtype=np.float32).reshape(2, 3)},
    'b': {'bias': jnp.arange(3, dtype=jnp.bfloat16)},
    'c': {'scale': np.float16([1, 2])},
    'd': {'embedding': np.arange(40, dtype=np.float32).reshape(8, 5)},
    'e': {'bias': np.array(7, np.float32)},
  }
  monkeypatch.setattr(serialization, 'MAX_CHUNK_SIZE', 64)
  tree = serialization.to_bytes(arrays)
  assert flax_file.CHUNKS.encode() in tree
  (tmp_path / 'x.msgpack').write_bytes(tree)
  found = flax_file.entries(tmp_path / 'x.msgpack')
  for name, theirs in {
    'a.weight': arrays['a']['kernel'].T,
    'b.bias': arrays['b']['bias'],
    'c.weight': arrays['c']['scale'],
    'd.weight': arrays['d']['embedding'],
    'e.bias': arrays['e']['bias'],
  }.items():
    entry = found.pop(name)
    assert entry.shape == theirs.shape and entry.dtype == theirs.dtype
    np.testing.assert_array_equal(entry.read(), theirs)
  assert not found


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'', 'empty'),
    (b'no file of Flax', ''),
    (msgpack.packb([1]), ''),
    (msgpack.packb({1: {}}), 'a name is 1, expected a text'),
    (msgpack.packb({'a': 1}), ''),
    (msgpack.packb({'a': msgpack.ExtType(3, b'x')}), 'an extension of kind 3'),
    (serialization.to_bytes({'a': np.ones(4)})[:-1], ''),
    (serialization.to_bytes({'a': np.ones(4)}) + b'x', '1 bytes follow its'),
    (
      msgpack.packb(
        {'a': msgpack.ExtType(1, msgpack.packb(([2], 'float32', b'1234')))}
      ),
      r'4 bytes of an array \(2,\) of float32, expected 8',
    ),
  ],
)
def test_damaged_files_are_refused(content, message, tmp_path):
  file = tmp_path / flax_files.FILE
  file.write_bytes(content)
  with pytest.raises(ValueError, match=f'{file.name} is damaged or.*{message}'):
    weight_files.from_hugging_face(tmp_path)
