"""How commands read their arguments, and how they end."""

import argparse
import importlib
import os
import resource
import sys

import pytest

from data import storage
from train.language import inputs
from train.run import command, settings


@pytest.mark.parametrize('text', ['0', '-1', '1.5', 'x', ''])
def test_numbers_of_1_or_more(text):
  assert command.positive('12') == 12
  with pytest.raises(argparse.ArgumentTypeError, match='expected 1 or more'):
    command.positive(text)


def test_a_text_is_utf_8():
  assert command.text('caf\xe9') == 'caf\xe9'
  argument = b'caf\xe9 [MASK]'.decode('utf-8', 'surrogateescape')
  with pytest.raises(argparse.ArgumentTypeError, match='byte 0xE9 at cha'):
    command.text(argument)


@pytest.mark.parametrize(
  ('environment', 'chips', 'is_hidden'),
  [
    ({}, [], True),
    ({}, ['/dev/accel0'], False),
    ({'TPU_WORKER_ID': '0'}, [], False),
    ({'JAX_PLATFORMS': 'cpu'}, [], False),
  ],
)
def test_libtpu_is_not_asked_where_no_tpu_is(
  environment, chips, is_hidden, monkeypatch
):
  for name in [*os.environ]:
    if name.startswith('TPU_') or name in ('JAX_PLATFORMS',):
      monkeypatch.delenv(name)
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  monkeypatch.delitem(sys.modules, 'jax', raising=False)
  monkeypatch.delitem(sys.modules, 'libtpu', raising=False)
  monkeypatch.setattr(command.chips, 'of_tpu', lambda: chips)
  command._be_quiet()
  assert (sys.modules.get('libtpu', '') is None) == is_hidden
  sys.modules.pop('libtpu', None)


def test_however_a_command_begins_it_is_quiet(monkeypatch):
  calls = []
  monkeypatch.setattr(command, '_be_quiet', lambda: calls.append('quiet'))
  command.run(lambda: calls.append('run'))  # as train.tables and train.bench
  command.main(argparse.Namespace(), lambda _: calls.append('main'))
  assert calls == ['quiet', 'run', 'quiet', 'main']


def test_a_parser_has_what_its_command_needs():
  parser = command.parser('x', 'First.\n\n  python -m train.x W', 'the weights')
  add, switch, number = command.adders(parser)
  add('text')
  switch('--all')
  number('--limit', default=3, help='of them')
  command.add_json(parser)
  found = parser.parse_args(['W', 'a', '--limit=7', '--json'])
  assert vars(found) == dict(
    weights='W', tokenizer=None, text='a', all=False, limit=7, json=True
  )
  text = parser.format_help()
  assert text.startswith('usage: python -m train.x [-h] [--tokenizer PATH]')
  assert 'First.\n\n  python -m train.x W\n' in text
  assert '--limit LIMIT     of them; by default 3\n' in text


@pytest.mark.parametrize('begun', [False, True])
def test_bad_input_is_one_line_and_a_bug_a_trace(begun, capsys, monkeypatch):
  """Before other processes are met, and after."""
  monkeypatch.setattr(os, '_exit', sys.exit)
  if not begun:
    monkeypatch.delitem(sys.modules, 'train.host.processes', raising=False)
  with pytest.raises(SystemExit) as ended:
    command.run(lambda: inputs.check_masked(['none']))
  assert ended.value.code == 1
  error = capsys.readouterr().err
  assert error.startswith(
    'error: expected [MASK], or <mask> of a RoBERTa, in each text'
  )
  with pytest.raises(SystemExit):
    command.run(lambda: open('/no/file'))
  error = capsys.readouterr().err
  assert error == 'error: /no/file: No such file or directory\n'
  with pytest.raises(ValueError, match='invalid literal'):
    command.run(lambda: int('a bug'))
  assert command.run(lambda: 5) == 5


@pytest.mark.parametrize(
  ('limit', 'is_told'),
  [(2_500_000_000, True), (16 << 30, False), (resource.RLIM_INFINITY, False)],
)
def test_little_memory_is_told_before_libraries_abort(
  limit, is_told, capsys, monkeypatch
):
  monkeypatch.setattr(os, '_exit', sys.exit)
  monkeypatch.setattr(resource, 'getrlimit', lambda _: (limit, limit))

  def fill():
    raise MemoryError('std::bad_alloc')

  with pytest.raises(SystemExit):
    command.run(fill)
  *notes, last = capsys.readouterr().err.splitlines()
  assert last.startswith('error: no memory is left') and 'bad_alloc' in last
  assert bool(notes) == is_told
  if is_told:
    assert notes[0].startswith('note: the limit of this shell is 2.5 GB of')


def test_paths_in_lists_are_checked_at_the_start():
  phase = (1, 128, 32, 'continue')
  config = settings.with_overrides(
    settings.load_config('bert_tiny'),
    {
      'data.source': 'en=gs://books/a,zh=ernie:gs:/lines,en=b',
      'train.phases': (phase, (*phase, 'stored:gs://entities/store')),
    },
  )
  paths = command.paths_of(config)
  for path in ('gs://books/a', 'gs:/lines', 'b', 'gs://entities/store'):
    assert path in paths
  with pytest.raises(ValueError, match='gs:/lines: expected gs://BUCKET/NAME'):
    storage.check_buckets(path for path in paths if path == 'gs:/lines')


ADDRESS = 'https://host/a'


@pytest.mark.parametrize(
  ('door', 'arguments'),
  [
    ('analogies', ('W', '--questions', ADDRESS)),
    ('minimal_pairs', ('W', 'pairs', '--beside', ADDRESS)),
    ('ngram', (ADDRESS, '--test', 'a.txt')),
    ('probe', ('W', '--data', '.', '--out', 'o', '--cache', ADDRESS)),
    ('report', (ADDRESS,)),
    ('similarity', ('W', ADDRESS, '--query', 'a')),
    ('tables', ('--table', 'bert/glue', '--weights', f'own={ADDRESS}')),
    ('tables', ('--table', 'bert/glue', '--out', ADDRESS)),
  ],
)
def test_addresses_of_other_places_are_refused_at_the_start(
  door, arguments, run_command
):
  module = importlib.import_module(f'train.{door}')
  with pytest.raises(SystemExit) as error:
    run_command(module, *arguments)
  assert f'{ADDRESS}: nothing is read from or written to' in str(error.value)


@pytest.mark.parametrize('key', ['data.source', 'init.weights', 'own.train'])
def test_addresses_in_a_config_are_refused(key):
  config = settings.load_config('transfer:task=own')
  config = settings.with_overrides(config, {key: ADDRESS})
  with pytest.raises(ValueError, match='nothing is read from or written to'):
    storage.check_buckets(command.paths_of(config))


def test_a_text_and_an_expression_may_begin_with_an_address():
  parser = argparse.ArgumentParser()
  parser.add_argument('--text', type=command.text, action='append')
  found = parser.parse_args(['--text', f'{ADDRESS} is a link.'])
  assert found.text == [f'{ADDRESS} is a link.']
  done = []
  command.main(found, done.append)
  assert done == [found]
  config = settings.with_overrides(
    settings.load_config('bert_tiny'), {'data.document_break': ADDRESS}
  )
  storage.check_buckets(command.paths_of(config))
