"""Small files that mean harm, and what is asked of their readers."""

import io
import pickle
import struct
import tracemalloc
import zipfile

import pytest
from etils import epath

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
