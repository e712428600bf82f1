"""Pickles that mean harm are refused before they do any."""

import io
import struct

import pytest
from etils import epath
from hostile_files import (
  FLOATS,
  REBUILD,
  archive,
  nested,
  old_file,
  refused,
  state,
  storage,
  tensor,
  text,
)

from models.pretrained import plain_pickle, torch_pickle


def test_memories_of_python_2_begin_at_place_1():
  """Also where a place takes four bytes, after 255 of them."""
  content = b'\x80\x02}('
  for place in range(1, 400):
    name = f'k{place}'.encode()
    content += b'U' + bytes([len(name)]) + name
    short = place < 256
    content += (
      b'q' + bytes([place]) if short else b'r' + struct.pack('<I', place)
    )
    content += b'K\1'
  found = plain_pickle.Unpickler(io.BytesIO(content + b'u.')).load()
  assert list(found) == [f'k{place}' for place in range(1, 400)]


@pytest.fixture
def file(tmp_path):
  return tmp_path / 'pytorch_model.bin'


HUGE = b'\x8a\x20' + b'\xff' * 31 + b'\x7f'


PICKLES = {
  'memo': (
    b'\x80\x02}r' + struct.pack('<I', 1 << 24) + b'.',
    'place 16,777,216 of',
  ),
  'key of tuples': (
    state(key=nested(40)),
    'a tuple as a name',
  ),
  'number as key': (
    state(key=HUGE),
    'a number beyond 32 bits as a name',
  ),
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
  'dtype as text': (
    state(tensor(storage(text('O')))),
    'text or tuple as',
  ),
  'key as tuple': (
    state(tensor(storage(key=nested(40)))),
    'of a storage',
  ),
  'kind as tuple': (
    state(tensor(storage(kind=nested(40)))),
    'a storage',
  ),
  'size as tuple': (
    state(tensor(storage(size=nested(40)))),
    'of a storage',
  ),
  'size below 0': (
    state(tensor(storage(size=b'J\xff\xff\xff\xff'))),
    'of a storage',
  ),
  'offset as tuple': (
    state(tensor(storage(), nested(40))),
    'shape and str',
  ),
  'offset below 0': (
    state(tensor(storage(), b'J\xff\xff\xff\xff')),
    'shape and strides',
  ),
  'offset beyond': (
    state(tensor(storage(), b'K\1')),
    'its 2 numbers',
  ),
  'huge shape': (
    state(tensor(storage(), shape=b'J\0\0\0\x40\x85', strides=b'K\0\x85')),
    '0 has more numbers than',
  ),
  'huge empty shape': (
    state(
      tensor(
        storage(),
        shape=b'K\0' + HUGE + b'\x86',
        strides=b'K\1K\1\x86',
      )
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
  for named in (
    REBUILD,
    FLOATS,
    b'ccollections\nOrderedDict\n',
  ):
    file.write_bytes(
      archive(b'\x80\x02' + named + b'}' + text('changed') + b'K\1sb.')
    )
    with pytest.raises(ValueError, match='pytorch_model.bin'):
      torch_pickle.entries(epath.Path(file))
  from models.pretrained import plain_pickle

  for value in plain_pickle.ADMITTED.values():
    assert not hasattr(value, 'changed')
