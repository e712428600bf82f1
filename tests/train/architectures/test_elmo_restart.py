"""An ELMo's run that is killed and goes on: what its rows remember."""

import contextlib
import functools
import shutil

import pytest
import runs
from elmo_store import (
  ROWS,
  STEPS,
  build_words,
  read_rows,
  saved,
  small_elmo_config,
  write_topics,
)

from train.run import checkpoint, ledger, workdirs

SAVED = (4, 8)  # steps that the killed run has checkpoints of


class Killed(Exception):
  """Stands in for a signal that nobody can catch."""


@contextlib.contextmanager
def killed_after(step):
  """Ends a run after a step, which is neither logged nor saved."""

  count = ledger.Ledger.count

  def count_or_die(self, done, *rest):
    if done == step:
      raise Killed
    count(self, done, *rest)

  with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
    patch.setattr(ledger.Ledger, 'count', count_or_die)
    yield


pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def make_config(tmp_path_factory):
  """Returns a function (overrides) -> config."""
  folder = tmp_path_factory.mktemp('store')
  store = build_words(write_topics(folder, 0, 60), folder / 'words')
  return functools.partial(small_elmo_config, store, eval__max_windows=16)


@pytest.fixture(scope='module')
def finished(make_config, tmp_path_factory):
  """The workdir of an uninterrupted run."""
  workdir = tmp_path_factory.mktemp('finished')
  runs.train(make_config(), workdir)
  return workdir


@pytest.fixture(scope='module')
def once_killed(make_config, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('killed')
  with killed_after(10):
    runs.train(make_config(), workdir)
  for step in SAVED:
    assert saved(workdir, step)
  assert checkpoint.latest_step(workdir) == SAVED[-1]
  return workdir


@pytest.fixture
def killed(once_killed, tmp_path):
  """A copy of a run's workdir that was killed after step 10."""
  return shutil.copytree(once_killed, tmp_path / 'run')


def losses(workdir, first, last):
  rows = read_rows(workdir)
  return [rows[step, 'train/loss'] for step in range(first, last + 1)]


def test_killed_and_continued_is_uninterrupted(finished, killed, make_config):
  runs.train(make_config(), killed)
  expected = saved(finished)
  for part in ('params', 'opt_state', 'carry', 'metrics'):
    assert any(path.startswith(f'{part}/') for path in expected)
  assert saved(killed) == expected
  assert read_rows(killed) == read_rows(finished)


def test_without_what_was_read_before_it_differs(finished, killed, make_config):
  """So the test above can fail; asking for empty memories is heard."""
  runs.train(make_config(train__reset_streams=True), killed)
  assert losses(killed, 1, 8) == losses(finished, 1, 8)
  assert all(
    a != b
    for a, b in zip(
      losses(killed, 9, STEPS), losses(finished, 9, STEPS), strict=True
    )
  )
  found, expected = saved(killed), saved(finished)
  assert found.keys() == expected.keys()
  for path in ('carry/cell', 'params/layers_1/bias'):
    assert found[path] != expected[path]
  assert found['step'] == expected['step']


@pytest.mark.slow
def test_another_batch_needs_empty_memories(killed, make_config):
  doubled = functools.partial(make_config, train__global_batch=2 * ROWS)
  with pytest.raises(
    ValueError,
    match='(?s)8 steps of another.*train.global_batch: None there, 8 here'
    '.*--config.train.reset_streams=true',
  ):
    runs.train(doubled(), killed)
  assert workdirs.read_config(killed).train.global_batch is None

  # Killed before it saved anything of its own: step 8 has the old batch.
  with killed_after(11):
    runs.train(doubled(train__reset_streams=True), killed)
  assert checkpoint.latest_step(killed) == 8
  first = losses(killed, 1, 10)
  shapes = r'carry/cell is \(4, 2, 2, 24\), expected \(8, 2, 2, 24\)'
  with pytest.raises(
    ValueError,
    match=f'(?s)step 8: .*{shapes}.*step 4: .*{shapes}'
    '.*reset_streams=true where they are of another train.global_batch',
  ):
    runs.train(doubled(), killed)
  assert {path.name for path in (killed / 'checkpoints').iterdir()} == {
    '4',
    '8',
  }

  config = doubled(train__reset_streams=True, train__checkpoint_every=10)
  assert runs.train(config, killed)['steps'] == STEPS
  assert losses(killed, 1, 10) == first
  expected, rows = saved(killed), read_rows(killed)

  # From a checkpoint of the new batch on, nothing is to be forgotten.
  shutil.rmtree(killed / 'checkpoints' / str(STEPS))
  (killed / 'results.json').unlink()
  assert checkpoint.latest_step(killed) == 10
  runs.train(doubled(), killed)
  assert saved(killed) == expected
  assert read_rows(killed) == rows
