"""The start-up script of a TPU host, on an empty host of stand-ins."""

import fcntl
import json
import pathlib
import shlex

import launch
import pytest
import tpu_host

from data import storage
from train.run import settings


@pytest.fixture
def upload(loopback, gs):
  """Returns a function (name, data) that writes an object of the bucket."""

  def put(name, data):
    loopback.storage.put(storage.split(gs)[0], name, data)

  return put


@pytest.fixture
def host(loopback, gs, upload, tmp_path):
  """An empty host; the code in its bucket is too little to train."""
  upload('sesame.tar.gz', tpu_host.archive({'setup.py': ''}, ()))
  environment = launch.environment()
  needed = ('JAX_COMPILATION_CACHE_DIR', 'TF_CPP_MIN_LOG_LEVEL', 'XLA_FLAGS')
  return tpu_host.Host(
    tmp_path / 'host',
    loopback.environment['STORAGE_EMULATOR_HOST'],
    {
      'sesame-source': f'{gs}/sesame.tar.gz',
      'sesame-config': 'seconds',
      'sesame-workdir': f'{gs}/run',
    },
    {name: environment[name] for name in (*loopback.environment, *needed)},
  )


@pytest.mark.slow
def test_a_host_trains_to_the_end(
  host, loopback, gs, upload, small_store, small_config
):
  own = {'configs/seconds.py': 'from configs.bert_tiny import get_config\n'}
  upload('sesame.tar.gz', tpu_host.archive(own))
  for file in filter(pathlib.Path.is_file, small_store.iterdir()):
    upload(f'store/{file.name}', file.read_bytes())
  config = settings.flatten(
    small_config(
      data__folder=f'{gs}/store',
      data__cache=str(host.folder / 'cache'),
      train__phases=((10, 32, 16, 'continue'),),
      train__objective='mlm',
      train__eval_every=10,
      train__checkpoint_every=10,
      model__num_layers=1,
      eval__max_windows=16,
    )
  )
  usual = settings.flatten(settings.load_config('bert_tiny'))
  host.attributes['sesame-flags'] = '\n '.join(
    shlex.quote(f'--config.{key}={value}')
    for key, value in config.items()
    if value != usual[key]
  )
  host.fail_once('curl', 'gcloud', 'uv')
  assert host.boot('75', 'train') == 0, host.log
  for line in (
    'curl: made to fail',
    'gcloud: made to fail',
    'uv: made to fail',
    'the run ended with 75',
    'step 10/10',
    'the run ended with 0',
  ):
    assert line in host.log
  files = loopback.storage.buckets[storage.split(gs)[0]]
  assert json.loads(files['run/results.json'].data)['steps'] == 10


def test_a_boot_installs_what_is_new_alone(host, upload):
  installation = ['uv venv', 'uv pip']

  def installing():
    return [' '.join(c.split()[:2]) for c in host.calls if c.startswith('uv')]

  host.fail_once('uv')
  assert host.boot('0') == 0
  assert installing() == ['uv venv', *installation]
  assert host.boot('0') == 0
  assert installing() == []
  upload('sesame.tar.gz', tpu_host.archive({'setup.py': '', 'more': ''}, ()))
  assert host.boot('0') == 0
  assert installing() == installation
  assert (host.home / 'code/more').exists()
  upload('sesame.tar.gz', tpu_host.archive({'setup.py': ''}, ()))
  assert host.boot('0') == 0
  assert not (host.home / 'code/more').exists()


def test_half_an_archive_is_fetched_again(host):
  host.fail_once('half')
  assert host.boot('0') == 0
  assert (
    host.calls.count(
      f'gcloud storage cp {host.attributes["sesame-source"]} new.tar.gz'
    )
    == 2
  )
  assert 'Unexpected EOF' in host.log or 'unexpected end of file' in host.log


def test_flags_are_quoted_as_in_a_shell(host):
  host.attributes['sesame-flags'] = (
    '--config.data.folder=gs://b/books\n  --config.train.phases='
    """'((100, 128, 64, "continue"),)' --config.data.tokenizer="a b" """
  )
  assert host.boot('0') == 0
  assert host.arguments[6:] == [
    '--config.data.folder=gs://b/books',
    '--config.train.phases=((100, 128, 64, "continue"),)',
    '--config.data.tokenizer=a b',
  ]
  del host.attributes['sesame-flags']
  assert host.boot('0') == 0
  assert host.arguments == [
    '-m',
    'train.main',
    '--config',
    'seconds',
    '--workdir',
    host.attributes['sesame-workdir'],
  ]


@pytest.mark.parametrize(
  'codes', [('1', '1', '1'), ('1', '75', '1', '134', '1', '1', '1')]
)
def test_what_is_refused_three_times_ends(host, codes):
  assert host.boot(*codes, '0') == 1
  assert host.ended == list(codes)
  assert 'refused three times' in host.log


@pytest.mark.parametrize('name', ['source', 'config', 'workdir'])
def test_a_missing_attribute_is_named(host, name):
  del host.attributes[f'sesame-{name}']
  assert host.boot('0') == 1
  assert f"error: the TPU's metadata has no sesame-{name}" in host.log
  assert not host.ended


def test_half_a_quote_is_refused(host):
  host.attributes['sesame-flags'] = "--config.data.source='a b"
  assert host.boot('0') == 1
  assert 'error: sesame-flags has a quote without its other half' in host.log


def test_it_runs_once_at_a_time(host):
  assert host.boot('0') == 0
  with (host.home / 'lock').open('w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    assert host.boot('0') == 1
  assert 'is at work' in host.log
  assert not host.ended
