import sys

import pytest
from small_elmo import small_elmo

from models.pretrained import elmo as pretrained
from train.host import processes


@pytest.fixture(scope='session')
def small_elmo_folder(tmp_path_factory):
  """A folder of released weights of a small ELMo, random ones."""
  folder = tmp_path_factory.mktemp('elmo')
  pretrained.write_folder(folder, *small_elmo())
  return folder


@pytest.fixture
def run_command(tmp_path, monkeypatch, capsys):
  """Returns a function (command, *arguments) -> standard output and error."""

  def run(command, *arguments):
    monkeypatch.setattr(sys, 'argv', ['command', *map(str, arguments)])
    command.main()
    return capsys.readouterr()

  def end(message):  # as the end of the process would
    raise SystemExit(message)

  monkeypatch.setattr(processes, 'end_all', end)
  monkeypatch.chdir(tmp_path)
  return run
