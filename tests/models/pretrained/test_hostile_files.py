"""Small files that mean harm are refused before they do any."""

import io
import json
import pickle
import struct
import tracemalloc
import zipfile

import h5py
import mutations
import numpy as np
import pytest
from etils import epath

from models.pretrained import (
  config_files,
  gpt_release,
  hdf5_file,
  tensorflow_file,
  torch_pickle,
)

MIB = 1 << 20


def refused(read, file, message):
  """Asserts that a reader refuses a file, and needs no memory for it."""
  tracemalloc.start()
  try:
    with pytest.raises(ValueError, match=message) as caught:
      entries = read(epath.Path(file))
      for entry in entries.values():
        entry.read()
    assert tracemalloc.get_traced_memory()[1] < 4 * MIB
  finally:
    tracemalloc.stop()
  assert file.name in str(caught.value)
  assert len(str(caught.value)) < 1000


# PyTorch's

FLOATS = b'ctorch\nFloatStorage\n'
REBUILD = b'ctorch._utils\n_rebuild_tensor_v2\n'


def text(value):
  return b'X' + struct.pack('<I', len(value)) + value.encode()


KIND, KEY = text('storage'), text('0')


def storage(dtype=FLOATS, key=KEY, size=b'K\x02', kind=KIND):
  """A reference to the numbers of an array."""
  return b'(' + kind + dtype + key + text('cpu') + size + b'tQ'


def tensor(stored, offset=b'K\0', shape=b'K\x02\x85', strides=b'K\x01\x85'):
  """A tensor of a shape and strides."""
  return REBUILD + b'(' + stored + offset + shape + strides + b'\x89}tR'


def state(value=None, key=KEY):
  """A pickle of a dict of one tensor."""
  value = tensor(storage()) if value is None else value
  return b'\x80\x02}' + key + value + b's.'


def old_file(pickled, numbers=bytes(8)):
  head = [0x1950A86A20F9469CFC6C, 1001, {'little_endian': True}]
  first = b''.join(pickle.dumps(part, 2) for part in head)
  keys = pickle.dumps(['0'], 2)
  return first + pickled + keys + struct.pack('<q', 2) + numbers


def archive(pickled, compression=zipfile.ZIP_STORED, **others):
  """A zip archive as torch.save writes it, with more in it."""
  memory = io.BytesIO()
  with zipfile.ZipFile(memory, 'w', compression) as opened:
    opened.writestr('archive/data.pkl', pickled)
    opened.writestr('archive/byteorder', others.pop('byteorder', 'little'))
    opened.writestr('archive/data/0', bytes(8))
    for name, content in others.items():
      opened.writestr(f'archive/{name}', content)
  return memory.getvalue()


def nested(depth):
  """A tuple that holds a tuple twice, and so on: 2 ** depth of them."""
  return b')q\0' + b'h\0\x86q\0' * depth


@pytest.fixture
def file(tmp_path):
  return tmp_path / 'pytorch_model.bin'


def test_what_the_hostile_pickles_differ_from_is_opened(file):
  for content in (old_file(state()), archive(state())):
    file.write_bytes(content)
    (entry,) = torch_pickle.entries(epath.Path(file)).values()
    np.testing.assert_array_equal(entry.read(), np.zeros(2, np.float32))


HUGE = b'\x8a\x20' + b'\xff' * 31 + b'\x7f'
PICKLES = {
  'memo': (
    b'\x80\x02}r' + struct.pack('<I', 1 << 24) + b'.',
    'place 16,777,216 of',
  ),
  'key of tuples': (state(key=nested(40)), 'a tuple as a name'),
  'number as key': (state(key=HUGE), 'a number beyond 32 bits as a name'),
  'keys of tuples': (
    b'\x80\x02}(' + nested(40) + b'K\1u.',
    'a tuple as a name',
  ),
  'pairs': (
    b'\x80\x02ccollections\nOrderedDict\n]]' + nested(40) + b'aK\1aa\x85R.',
    'a tuple as a name',
  ),
  'BUILD of a function': (
    b'\x80\x02' + REBUILD + b'}' + text('changed') + b'K\1sb.',
    'an attribute of a function',
  ),
  'BUILD of a class': (
    b'\x80\x02' + FLOATS + b'}' + text('changed') + b'K\1sb.',
    'an attribute of a',
  ),
  'new object': (b'\x80\x02ccollections\nOrderedDict\n)\x81.', 'NEWOBJ'),
  'extension': (b'\x80\x02\x82\1.', 'EXT1'),
  'dtype as text': (state(tensor(storage(text('O')))), 'text or tuple as'),
  'key as tuple': (state(tensor(storage(key=nested(40)))), 'of a storage'),
  'kind as tuple': (state(tensor(storage(kind=nested(40)))), 'a storage'),
  'size as tuple': (state(tensor(storage(size=nested(40)))), 'of a storage'),
  'size below 0': (
    state(tensor(storage(size=b'J\xff\xff\xff\xff'))),
    'of a storage',
  ),
  'offset as tuple': (state(tensor(storage(), nested(40))), 'shape and str'),
  'offset below 0': (
    state(tensor(storage(), b'J\xff\xff\xff\xff')),
    'shape and strides',
  ),
  'offset beyond': (state(tensor(storage(), b'K\1')), 'its 2 numbers'),
  'huge shape': (
    state(tensor(storage(), shape=b'J\0\0\0\x40\x85', strides=b'K\0\x85')),
    '0 has more numbers than',
  ),
  'huge empty shape': (
    state(
      tensor(storage(), shape=b'K\0' + HUGE + b'\x86', strides=b'K\1K\1\x86')
    ),
    '0 has more numbers than',
  ),
  'axes': (
    state(
      tensor(
        storage(),
        shape=b'(' + b'K\1' * 70 + b't',
        strides=b'(' + b'K\1' * 70 + b't',
      )
    ),
    '70 axes',
  ),
  'frame': (b'\x80\x04\x95' + struct.pack('<Q', 1 << 40) + b'}.', 'cut off'),
  'text': (b'\x80\x02X\xff\xff\xff\x7f.', 'cut off'),
}


@pytest.mark.parametrize('container', [old_file, archive])
@pytest.mark.parametrize('pickled, message', PICKLES.values(), ids=PICKLES)
def test_hostile_pickles(pickled, message, container, file):
  file.write_bytes(container(pickled))
  refused(torch_pickle.entries, file, message)


def test_no_pickle_changes_the_reader(file):
  """Neither an attribute of a function nor one of a class stays."""
  for named in (REBUILD, FLOATS, b'ccollections\nOrderedDict\n'):
    file.write_bytes(
      archive(b'\x80\x02' + named + b'}' + text('changed') + b'K\1sb.')
    )
    with pytest.raises(ValueError, match='pytorch_model.bin'):
      torch_pickle.entries(epath.Path(file))
  from models.pretrained import plain_pickle

  for value in plain_pickle.ADMITTED.values():
    assert not hasattr(value, 'changed')


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


# HDF5


# HDF5


@pytest.fixture
def hdf5(tmp_path):
  """A file beside one that it has no business with."""
  (tmp_path / 'secret').write_bytes(np.arange(4, dtype='<f4').tobytes())
  with h5py.File(tmp_path / 'other.hdf5', 'w') as opened:
    opened['x'] = np.arange(4.0)
  return tmp_path / 'weights.hdf5'


def link(opened, folder):
  opened['x'] = h5py.ExternalLink(folder / 'other.hdf5', 'x')


def soft_link(opened, folder):
  opened['x'] = h5py.SoftLink('/y')


def external(opened, folder):
  opened.create_dataset(
    *('x', (4,), '<f4'), external=[(str(folder / 'secret'), 0, 16)]
  )


def virtual(opened, folder):
  layout = h5py.VirtualLayout((4,), 'f8')
  layout[:] = h5py.VirtualSource(folder / 'other.hdf5', 'x', (4,))
  opened.create_virtual_dataset('x', layout)


def strings(opened, folder):
  opened.create_dataset('x', data=['text'], dtype=h5py.string_dtype())


def pairs(opened, folder):
  opened.create_dataset('x', (2,), [('a', 'f4'), ('b', 'f4')])


def nothing(opened, folder):
  opened['x'] = h5py.Empty('f4')


def never_written(opened, folder):
  opened.create_dataset('x', (1 << 40,), 'f4')


def compressed(opened, folder):
  opened.create_dataset('x', data=np.zeros(1 << 21), compression='gzip')


def large_chunk(opened, folder):
  opened.create_dataset('x', (1,), 'f4', chunks=(1 << 29,), maxshape=(None,))


@pytest.mark.parametrize(
  'write, message',
  [
    (link, 'x is a link to something else'),
    (soft_link, 'x is a link to something else'),
    (external, 'x are in another file'),
    (virtual, 'x are in another file'),
    (strings, 'x holds object, expected numbers'),
    (pairs, 'x holds .*, expected numbers'),
    (nothing, 'x holds nothing'),
    (never_written, 'x is 1,099,511,627,776, more numbers than'),
    (compressed, 'x is 2,097,152, more numbers than'),
    (large_chunk, 'x is 1, more numbers than'),
  ],
)
def test_hostile_hdf5(write, message, hdf5):
  with h5py.File(hdf5, 'w') as opened:
    write(opened, hdf5.parent)
  refused(hdf5_file.entries, hdf5, message)


def test_groups_that_hold_themselves(hdf5):
  with h5py.File(hdf5, 'w') as opened:
    group = opened.create_group('a')
    group['b'] = group['c'] = group
    group['x'] = np.arange(3.0)
    opened['again'] = group['x']
  entries = hdf5_file.entries(epath.Path(hdf5))
  assert len(entries) == 1
  (entry,) = entries.values()
  np.testing.assert_array_equal(entry.read(), np.arange(3.0))


# The others


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


def npy(header):
  text = header.encode() + b'\n'
  return b'\x93NUMPY\1\0' + struct.pack('<H', len(text)) + text + bytes(80)


@pytest.mark.parametrize(
  'content',
  [
    npy('(' * 9000),
    npy('-' * 9000 + '1'),
    npy('{"descr": "|O", "fortran_order": False, "shape": (2,)}'),
    npy('{"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}'),
    npy(
      '{"descr": "<f4", "fortran_order": False, "shape": (9' + '0' * 15 + ',)}'
    ),
    npy('{"descr": "<f4", "fortran_order": False, "shape": (-2,)}'),
    npy('{"descr": "<i4", "fortran_order": False, "shape": (2,)}'),
    archive(state()),
  ],
  ids=[
    *('brackets', 'signs', 'objects', 'sum', 'huge', 'negative', 'integers'),
    'zip',
  ],
)
def test_hostile_npy(content, tmp_path):
  for i in range(10):
    np.save(tmp_path / f'params_{i}.npy', np.zeros(2, np.float32))
  file = tmp_path / 'params_3.npy'
  file.write_bytes(content)
  refused(
    lambda file: gpt_release.entries(file.parent, {'x': (20,)}),
    *(file, 'params_3.npy (is damaged or no NumPy file|holds int32, expected)'),
  )


@pytest.mark.parametrize(
  'content, message',
  [
    ('[' * 100_000, 'lists and objects inside one another'),
    ('{"x": ' * 60 + '1' + '}' * 60, 'lists and objects inside one another'),
    ('{"x": NaN}', 'NaN is no number of JSON'),
    ('{"x": -Infinity}', '-Infinity is no number of JSON'),
    ('{"x": ' + '9' * 5000 + '}', 'Exceeds the limit'),
    ('{"x": "\xff"}', 'codec can.t decode'),
  ],
)
def test_hostile_json(content, message, tmp_path):
  file = tmp_path / 'config.json'
  file.write_bytes(content.encode('latin-1'))
  refused(config_files.read, file, message)


def test_sizes_that_no_model_has():
  """Layers are laid out before their arrays are looked for."""
  for kind, values in {
    'a count': (2**31, 10**400),
    'a count of layers': (1001, 10**9),
    'a count of layers or nothing': (1001, 10**9),
    'a positive number or nothing': (float('1e999'), 10**400),
    'pairs of a width and a count': ([[1, 2]] * 1001, [[1, 10**400]]),
  }.items():
    for value in values:
      assert not config_files.KINDS[kind](value)


def test_shapes_that_no_array_has(tmp_path):
  file = tmp_path / 'params_shapes.json'
  for shape in ([-64], [0], [10**400], [True]):
    file.write_text(json.dumps([[17, 64], [133, 64], *[shape] * 12]))
    with pytest.raises(ValueError, match='params_shapes.json is no list of'):
      gpt_release.open_folder(epath.Path(tmp_path))
