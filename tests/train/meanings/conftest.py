import pytest
from small_elmo import small_elmo

from models.pretrained import elmo as pretrained


@pytest.fixture(scope='session')
def small_elmo_folder(tmp_path_factory):
  """A folder of released weights of a small ELMo, random ones."""
  folder = tmp_path_factory.mktemp('elmo')
  pretrained.write_folder(folder, *small_elmo())
  return folder
