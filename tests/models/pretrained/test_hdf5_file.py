"""HDF5 files that mean harm are refused before they do any."""

import h5py
import numpy as np
import pytest
from etils import epath
from hostile_files import refused

from models.pretrained import hdf5_file


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
    'x', (4,), '<f4', external=[(str(folder / 'secret'), 0, 16)]
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
