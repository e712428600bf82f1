import pytest

from data.tasks import registry


@pytest.fixture
def load(tmp_path):
  """Returns a function (task, split, {file: text}) -> examples."""

  def read(name, split, texts):
    for file, text in texts.items():
      path = tmp_path / file
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(text.encode())
    return registry.load(registry.find(name), str(tmp_path), split)

  return read
