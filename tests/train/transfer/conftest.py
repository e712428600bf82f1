import functools

import pytest
import runs
import small_kinds
import small_tasks


@pytest.fixture(scope='session')
def own_set(tmp_path_factory):
  """A folder of a small set of sentences of two classes."""
  return small_tasks.write_sentences(tmp_path_factory.mktemp('own') / 'set')


@pytest.fixture(scope='session')
def make_config(own_set, small_bert):
  """Returns a function (overrides) -> config of a fine-tuning of seconds."""
  return functools.partial(small_tasks.small_config, own_set, small_bert)


@pytest.fixture(scope='session')
def config_of(small_bert, tmp_path_factory):
  """Returns a function kind -> config of four steps on a set of that kind."""

  @functools.cache
  def make(kind):
    folder = tmp_path_factory.mktemp('sets') / kind.replace(' ', '_')
    changes = {
      'own.test': None,
      'train.steps': 4,
      'train.global_batch': 8,
      'train.eval_every': 2,
      **small_kinds.write(folder, kind),
    }
    return small_tasks.small_config(folder, small_bert, **changes)

  return make


@pytest.fixture(scope='session')
def run_of(config_of, tmp_path_factory):
  """Returns a function kind -> a finished run: config, workdir, results."""

  @functools.cache
  def run(kind):
    workdir = tmp_path_factory.mktemp('runs_of_kinds') / kind.replace(' ', '_')
    with pytest.MonkeyPatch.context() as patch:
      runs.see_one_device(patch)
      return config_of(kind), workdir, runs.train(config_of(kind), workdir)

  return run
