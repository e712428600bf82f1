"""Data sets of the hub, through the package that loads them."""

import pytest
from small_tables import WRITERS, make_table

from data.text.tables import hub_sets, table

TABLE = make_table([f'Text {i}.' for i in range(7)])


def numbers(texts):
  return [int(text.split()[1][:-1]) for text in texts]


def test_a_set_that_the_package_loads(tmp_path, monkeypatch):
  """A folder in the place of a set of the hub, which is opened as that is."""
  pytest.importorskip('datasets', reason="needs datasets (the extra 'hf')")
  WRITERS['a.parquet'](tmp_path / 'train.parquet', TABLE)
  monkeypatch.setenv('HF_DATASETS_CACHE', str(tmp_path / 'cache'))
  found, note = hub_sets.open_set('hf:x', str(tmp_path), '', 'train[2:]')
  records = [record for _, record in table.records(found, ['body', 'label'])]
  assert numbers([record['body'] for record in records]) == [2, 3, 4, 5, 6]
  assert records[0]['label'] == 'bad'
  assert '5 records' in note
  with pytest.raises(ValueError, match='datasets could not open .*') as error:
    hub_sets.open_set('hf:nobody/nothing', 'nobody/nothing', '', 'train')
  assert '\n' not in str(error.value)


def test_without_the_network_nothing_is_asked(monkeypatch):
  pytest.importorskip('datasets', reason="needs datasets (the extra 'hf')")
  assert not hub_sets.is_prepared('hf:nobody/x', 'nobody/x', '', 'train')
  monkeypatch.setattr(hub_sets.urllib.request, 'getproxies', dict)

  def fail(*_):
    raise OSError('no name is resolved')

  monkeypatch.setattr(hub_sets.socket, 'getaddrinfo', fail)
  told = "could not open 'nobody/x' on the hub.*: there is no network, and the"
  with pytest.raises(ValueError, match=told):
    hub_sets.open_set('hf:nobody/x', 'nobody/x', '', '')
