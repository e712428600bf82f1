import sys

import pytest
import runs
from small_elmo import small_elmo

from models.pretrained import elmo as pretrained
from train.host import processes


@pytest.fixture
def write_config(tmp_path):
  """Returns a function config -> the file of it, as a user would write one."""

  return lambda config: runs.write_config(config, tmp_path / 'small.py')


@pytest.fixture(scope='module')
def one_device():
  """Runs see only the first device."""
  with pytest.MonkeyPatch.context() as patch:
    runs.see_one_device(patch)
    yield


@pytest.fixture(scope='module', autouse=True)
def forget_steps():
  """Jitted steps are shared by the runs of a module alone."""
  yield
  runs.STEPS.clear()


@pytest.fixture(scope='session')
def finished(small_config, tmp_path_factory):
  """A finished run of 12 steps on one device: (workdir, results).

  It has checkpoints of steps 4, 8 and 12. Tests copy the workdir to change it.
  """
  workdir = tmp_path_factory.mktemp('finished') / 'run'
  with pytest.MonkeyPatch.context() as patch:
    runs.see_one_device(patch)
    return workdir, runs.train(small_config(), workdir, draws=True)


@pytest.fixture(scope='session')
def small_elmo_folder(tmp_path_factory):
  """A folder of released weights of a small ELMo, random ones."""
  folder = tmp_path_factory.mktemp('elmo')
  pretrained.write_folder(folder, *small_elmo())
  return folder


@pytest.fixture
def embedded(monkeypatch):
  """The numbers of sentences whose vectors are computed, call after call."""
  from train.vectors.vector_cache import VectorCache

  calls = []
  compute = VectorCache.compute

  def counted(cache, sentences):
    calls.append(len(sentences))
    return compute(cache, sentences)

  monkeypatch.setattr(VectorCache, 'compute', counted)
  return calls


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
