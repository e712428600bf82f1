"""JSON that means harm, and sizes that no model has."""

import pytest
from hostile_files import refused

from models.pretrained import config_files


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
