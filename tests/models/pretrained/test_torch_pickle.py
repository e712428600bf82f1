"""PyTorch's files of weights, and archives that mean harm."""

import collections
import io
import os
import pickle
import zipfile

import numpy as np
import published_cases
import pytest
from etils import epath
from hostile_files import (
  MIB,
  archive,
  old_file,
  refused,
  state,
  storage,
  tensor,
  text,
)

from models.pretrained import (
  hugging_face,
  published,
  torch_pickle,
  weight_files,
)


class Evil:
  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (self.path,)


@pytest.mark.parametrize('archive', [True, False], ids=['zip', 'old'])
def test_pickles_that_run_something_are_not_opened(torch, archive, tmp_path):
  model, params = published_cases.make_bert('BertModel')
  hugging_face.write_folder(tmp_path, model, params)
  (tmp_path / 'model.safetensors').unlink()
  file, made = tmp_path / 'pytorch_model.bin', tmp_path / 'made'
  for saved, told in (
    ({'x': torch.zeros(2), 'y': Evil(str(made))}, 'it would run posix.mkdir'),
    (torch.nn.Linear(2, 2), r'it would run torch\.nn'),
    ({'x': collections.Counter()}, 'it would run collections.Counter'),
    ({'model': {'x': torch.zeros(2)}, 'step': 3}, 'model, step are no arrays'),
    ([torch.zeros(2)], 'it holds a list, no names'),
  ):
    torch.save(saved, file, _use_new_zipfile_serialization=archive)
    with pytest.raises(ValueError, match=f'pytorch_model.bin .*{told}'):
      published.open_folder(tmp_path)
  assert not made.exists()
  file.write_bytes(pickle.dumps(Evil(str(made))))
  with pytest.raises(ValueError, match='it would run posix.mkdir'):
    published.open_folder(tmp_path)
  assert not made.exists()


@pytest.mark.parametrize('archive', [True, False], ids=['zip', 'old'])
def test_arrays_of_pytorch_that_share_numbers(torch, archive, tmp_path):
  base = torch.randn(7, 11)
  state = collections.OrderedDict(
    turned=base.t(),
    part=base[2:5, 1::3],
    parameter=torch.nn.Parameter(torch.randn(3)),
    none=torch.zeros(0, 3),
    one=torch.tensor(2.5),
    counts=torch.arange(5),
    half=torch.randn(4).half(),
    brain=torch.randn(4, 2).bfloat16(),
    double=torch.randn(2).double(),
  )
  file = epath.Path(tmp_path) / 'x.bin'
  torch.save(state, file, _use_new_zipfile_serialization=archive)
  entries = weight_files.HUGGING_FACE['pytorch_model.bin'](file)
  assert list(entries) == list(state)
  for name, entry in entries.items():
    array, tensor = entry.read(), state[name].detach()
    assert array.shape == entry.shape == tuple(tensor.shape)
    assert f'torch.{array.dtype}' == f'torch.{entry.dtype}' == str(tensor.dtype)
    np.testing.assert_array_equal(
      array.astype(np.float64), tensor.double().numpy()
    )


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
@pytest.mark.parametrize('archive', [True, False], ids=['zip', 'old'])
def test_state_dicts_of_pytorch(torch, archive, protocol, tmp_path):
  """Of modules: with `_metadata`, tied, Parameters, and with a view."""
  model = torch.nn.Sequential(
    torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5)
  ).half()
  model[1].weight = model[0].weight
  state = model.state_dict(keep_vars=True)
  assert state._metadata
  state['first'] = state['0.weight'][0]
  state['ones'] = torch.ones(1).expand(3, 7)
  file = epath.Path(tmp_path) / 'x.bin'
  torch.save(
    state,
    file,
    _use_new_zipfile_serialization=archive,
    pickle_protocol=protocol,
  )
  entries = weight_files.HUGGING_FACE['pytorch_model.bin'](file)
  assert list(entries) == list(state)
  for name, value in state.items():
    np.testing.assert_array_equal(entries[name].read(), value.detach().numpy())


def test_state_dicts_of_python_2(tmp_path):
  """Bytes for names, and an OrderedDict from a list of pairs."""
  head = [0x1950A86A20F9469CFC6C, 1001, {'little_endian': True}]
  file = epath.Path(tmp_path) / 'x.bin'
  file.write_bytes(
    b''.join(pickle.dumps(part, 2) for part in head)
    + b'\x80\x02ccollections\nOrderedDict\nq\0]q\1(]q\2(U\1xq\3'
    + b'ctorch._utils\n_rebuild_tensor_v2\nq\4((U\7storageq\5'
    + b'ctorch\nFloatStorage\nq\6U\x0a9876543210q\7U\3cpuq\x08K\2NtQ'
    + b'K\0K\2\x85K\1\x85\x89h\0]\x85RtRee\x85R}(U\t_metadataq\x0a'
    + b'h\0]\x85Rub.'
    + b'\x80\x02]q\0U\x0a9876543210q\1a.'
    + np.array([2], '<i8').tobytes()
    + np.array([3, 5], '<f4').tobytes()
  )
  entries = weight_files.HUGGING_FACE['pytorch_model.bin'](file)
  np.testing.assert_array_equal(entries['x'].read(), np.float32([3, 5]))


@pytest.fixture
def file(tmp_path):
  return tmp_path / 'pytorch_model.bin'


def test_what_the_hostile_pickles_differ_from_is_opened(file):
  for content in (
    old_file(state()),
    archive(state()),
  ):
    file.write_bytes(content)
    (entry,) = torch_pickle.entries(epath.Path(file)).values()
    np.testing.assert_array_equal(entry.read(), np.zeros(2, np.float32))


def test_long_pickles_are_refused(file):
  file.write_bytes(archive(b'\x80\x02(' + b'}' * (3 * MIB) + b'l.'))
  refused(torch_pickle.entries, file, 'data.pkl has 3,145,733 bytes')
  file.write_bytes(old_file(b'\x80\x02(' + b'}' * (3 * MIB)))
  with pytest.raises(ValueError, match='pytorch_model.bin.*beyond 2,097,152'):
    torch_pickle.entries(epath.Path(file))


def test_compressed_archives_are_not_expanded(file):
  bomb = state(text('0' * 64 * MIB))
  file.write_bytes(archive(bomb, zipfile.ZIP_DEFLATED))
  assert file.stat().st_size < MIB
  refused(torch_pickle.entries, file, 'archive/data.pkl is compressed')
  memory = io.BytesIO(archive(state()))
  with zipfile.ZipFile(memory, 'a') as opened:
    opened.writestr('archive/other', bytes(9 * MIB), zipfile.ZIP_BZIP2)
  file.write_bytes(memory.getvalue())
  refused(torch_pickle.entries, file, 'archive/other is compressed')
  with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED) as opened:
    opened.writestr('archive/data.pkl', state())
    opened.writestr('archive/data/0', bytes(8))
    opened.writestr('archive/byteorder', bytes(64 * MIB), zipfile.ZIP_DEFLATED)
  refused(torch_pickle.entries, file, 'byteorder is compressed')


def change(content, signature, offset, values):
  """Overwrites bytes of each header of a kind in a zip archive."""
  content, start = bytearray(content), 0
  while (start := content.find(signature, start)) >= 0:
    content[start + offset : start + offset + len(values)] = values
    start += 4
  return bytes(content)


def test_archives_whose_directory_does_not_tell_the_truth(file):
  content = archive(state())
  central = b'PK\1\2'
  for changed, message in (
    (change(content, central, 8, b'\1'), 'encrypted'),
    (change(content, central, 42, bytes(4)), 'overlap|differ'),
    (change(content, central, 20, b'\xff\xff\xff\x0f'), 'compressed|beyond'),
    (
      change(content, central, 20, b'\xff\xff\xff\x0f' * 2),
      'beyond the end',
    ),
    (content + b'PK\5\6' + bytes(18), 'data.pkl'),
  ):
    file.write_bytes(changed)
    refused(torch_pickle.entries, file, message)
  memory = io.BytesIO(content)
  with pytest.warns(UserWarning, match='Duplicate'):
    with zipfile.ZipFile(memory, 'a') as opened:
      opened.writestr('archive/data.pkl', state())
  file.write_bytes(memory.getvalue())
  refused(torch_pickle.entries, file, 'data.pkl .*twice')
  # A row of numbers that a member does not hold.
  file.write_bytes(archive(state(tensor(storage(size=b'K\x03')))))
  refused(torch_pickle.entries, file, '0 goes beyond its end')
