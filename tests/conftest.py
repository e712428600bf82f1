"""Eight CPU devices, real data by SESAME_DATA, and small shared inputs."""

import collections
import gc
import json
import os
import pathlib
import re

import fusions
import program_cache

# Before JAX is imported, here and in every child process.
os.environ['JAX_PLATFORMS'] = 'cpu'
# Tests compile for minutes what runs for milliseconds: level 0 takes a third of
# the time, without MLIR's emitters of fusions it takes half of that again, and
# the programs compute the same but for roundings.
for _flag, _value in (
  ('--xla_force_host_platform_device_count', 8),
  ('--xla_backend_optimization_level', 0),
  *([('--xla_cpu_use_fusion_emitters', 'false')] if fusions.HAS_FLAG else []),
):
  if _flag not in os.environ.get('XLA_FLAGS', ''):
    os.environ['XLA_FLAGS'] = (
      f'{os.environ.get("XLA_FLAGS", "")} {_flag}={_value}'
    )
# One folder of compiled programs for this and all later runs, and for the
# programs that tests start.
CACHE = program_cache.folder()
os.environ['JAX_COMPILATION_CACHE_DIR'] = str(CACHE)
os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
os.environ['TF_USE_LEGACY_KERAS'] = '1'  # does not import Keras
os.environ['HF_HUB_OFFLINE'] = '1'
HELPERS = pathlib.Path(__file__).parent / 'helpers'


import pydoc_data.topics  # noqa: E402

import jax  # noqa: E402
import pytest  # noqa: E402
from jax._src import lru_cache  # noqa: E402

from data.store import build  # noqa: E402
from data.vocabulary import tokenization  # noqa: E402
from train.run import settings  # noqa: E402

program_cache.install(lru_cache.LRUCache)
SECONDS = pathlib.Path(__file__).with_name('seconds.json')


def pytest_addoption(parser):
  parser.addoption(
    '--seed', type=int, default=0, help='of the slow tests that draw'
  )
  parser.addoption(
    '--renew_seconds',
    action='store_true',
    help=f'write the seconds of each file into tests/{SECONDS.name}',
  )


def pytest_configure(config):
  """Where tests run, programs that they start find helpers and `children`."""
  is_worker = hasattr(config, 'workerinput')
  if not is_worker:
    program_cache.prune(CACHE)
    if config.getoption('--renew_seconds'):
      config.pluginmanager.register(Seconds(config.rootpath))
  if is_worker or not config.getoption('tx', None):
    path = [str(HELPERS), str(HELPERS / 'children')]
    path += filter(None, [os.environ.get('PYTHONPATH')])
    os.environ['PYTHONPATH'] = os.pathsep.join(path)


def pytest_collection_modifyitems(items):
  """Files that took longest come first, so that all workers end together."""
  seconds = json.loads(SECONDS.read_text())
  parts = {_part(item.nodeid, item.keywords) for item in items}
  of_file = collections.Counter()
  for part in parts:
    of_file[part.partition(' ')[0]] += seconds.get(part, 0.0)
  items.sort(key=lambda item: -of_file[item.nodeid.partition('::')[0]])
  # Modules of tests and their libraries stay: collections need not walk them.
  # Tracing makes many objects, few of them in cycles.
  gc.collect()
  gc.freeze()
  gc.set_threshold(100_000, 20, 100)


def _part(nodeid, keywords) -> str:
  """Returns what a test counts to: its file's slow tests, or the others."""
  return nodeid.partition('::')[0] + (' slow' if 'slow' in keywords else '')


class Seconds:
  """Sums what each file takes, and writes it at the end of a whole run."""

  def __init__(self, root):
    self._root = root
    self._seconds = collections.Counter()

  def pytest_runtest_logreport(self, report):
    self._seconds[_part(report.nodeid, report.keywords)] += report.duration

  def pytest_sessionfinish(self):
    """Keeps the figures of files that did not run and are still there."""
    before = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    kept = {
      part for part in before if (self._root / part.partition(' ')[0]).exists()
    }
    seconds = {part: before[part] for part in kept} | {
      part: round(value, 1) for part, value in self._seconds.items()
    }
    text = json.dumps(dict(sorted(seconds.items())), indent=0)
    SECONDS.write_text(f'{text}\n')


@pytest.fixture(scope='session')
def seed(request) -> int:
  """The seed of tests that draw; `--seed` gives another one."""
  return request.config.getoption('--seed')


@pytest.fixture(scope='session')
def sesame_data() -> pathlib.Path:
  """The folder of real data sets and fixtures; skips where there is none."""
  folder = os.environ.get('SESAME_DATA')
  if not folder:
    pytest.skip('SESAME_DATA names no folder of real data sets')
  return pathlib.Path(folder)


@pytest.fixture(scope='session')
def torch():
  """PyTorch, of which other programs are references of ours."""
  torch = pytest.importorskip('torch')
  # One thread: two that wait for each other on a busy machine take 5 x as long.
  torch.set_num_threads(1)
  return torch


@pytest.fixture(autouse=True, scope='module')
def clear_caches():
  """Compiled programs of one module do not pile up in the next."""
  yield
  jax.clear_caches()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
  """With real data at hand nothing may be skipped but what some users have."""
  report = yield
  may_skip = re.search(r"\(the extra '(cuda|hf)'\)", str(report.longrepr))
  if report.skipped and os.environ.get('SESAME_DATA') and not may_skip:
    report.outcome = 'failed'
    report.longrepr = f'skipped although SESAME_DATA is set: {report.longrepr}'
  return report


HELD_OUT = 0.02  # two documents of the small store


@pytest.fixture(scope='session')
def small_store(tmp_path_factory) -> pathlib.Path:
  """A store of a part of the manual, 500 word pieces."""
  folder = tmp_path_factory.mktemp('stores') / 'small'
  text = tmp_path_factory.mktemp('text') / 'story.txt'
  text.write_text(small_text())
  build.build_store(
    str(text),
    'train:wordpiece:500',
    folder,
    document_break='== .*',
    held_out=HELD_OUT,
    progress=False,
  )
  return folder


def small_text() -> str:
  """Returns 60 documents of the manual's topics, each headed '== NAME'."""
  topics = sorted(pydoc_data.topics.topics.items())[:60]
  return '\n'.join(f'== {name}\n{text}\n' for name, text in topics)


@pytest.fixture(scope='session')
def small_config(small_store):
  """Returns a function (overrides) -> config of a run of seconds."""

  def make(**overrides):
    config = settings.load_config('bert_tiny')
    return settings.with_overrides(
      config,
      {
        'model.num_layers': 2,
        'model.scan_layers': True,
        'model.embed_dim': 32,
        'model.num_heads': 2,
        'model.mlp_dim': 64,
        'model.max_length': 64,
        'model.dropout_rate': 0.1,
        'model.attention_dropout_rate': 0.1,
        'data.folder': str(small_store),
        'data.source': str(source_of(small_store)),
        'data.tokenizer': 'train:wordpiece:500',
        'data.document_break': '== .*',
        'data.held_out': HELD_OUT,
        'data.loader': 'plain',
        'train.phases': ((12, 32, 16, 'continue'),),
        'train.log_every': 4,
        'train.eval_every': 6,
        'train.checkpoint_every': 4,
        'train.peak_tflops': 0.1,
        'optim.warmup_steps': 2,
        'eval.global_batch': 16,
        'eval.max_windows': 32,
        'eval.draws': 1,
        **{key.replace('__', '.'): value for key, value in overrides.items()},
      },
    )

  return make


def source_of(store: pathlib.Path) -> str:
  """Returns the text file that a store was built from."""
  return json.loads((store / 'store.json').read_text())['spec']['source']


@pytest.fixture(scope='session')
def small_bert(small_store, tmp_path_factory):
  """A folder of published weights of a small BERT, random ones."""
  import small_published
  import torch

  torch.manual_seed(0)
  folder = tmp_path_factory.mktemp('published') / 'bert'
  small_published.write_bert(
    folder, tokenization.load(small_store), kind='BertModel'
  )
  return folder


@pytest.fixture(scope='session')
def loopback(tmp_path_factory):
  """A Cloud Storage of this process; this and started programs are led to it.

  Its attribute `storage` has the buckets. Tests use buckets of their own: the
  fixture `gs` makes one.
  """
  from train.benches import bucket as buckets
  from train.benches import loopback as served_here

  storage = buckets.Storage()
  folder = tmp_path_factory.mktemp('certificate')
  with served_here.serve(str(folder), storage.answer) as served:
    served.storage = storage
    os.environ.update(served.environment)  # before a client of it is made
    # TensorFlow tries again at once, not after a second.
    os.environ['GCS_RETRY_CONFIG_INIT_DELAY_TIME_US'] = '10000'
    yield served


@pytest.fixture
def gs(loopback, request):
  """The name of an empty bucket, and `loopback` without faults or delay."""
  name = re.sub('[^a-z0-9]+', '-', request.node.name.lower()).strip('-')
  loopback.storage.buckets[name] = {}
  loopback.requests.clear()
  yield f'gs://{name}'
  del loopback.storage.buckets[name]
  loopback.faults.clear()
  loopback.storage.refuses.clear()
  loopback.delay = 0.0
