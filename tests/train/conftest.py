import pytest

from train import settings


@pytest.fixture
def write_config(tmp_path):
  """Returns a function config -> the file of it, as a user would write one."""

  def write(config):
    path = tmp_path / 'small.py'
    path.write_text(
      'from configs import base\n\n\n'
      'def get_config():\n'
      '  config = base.get_config()\n'
      f'  config.update_from_flattened_dict({settings.flatten(config)!r})\n'
      '  return config.lock()\n'
    )
    return path

  return write
