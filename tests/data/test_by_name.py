"""Entries of a table are loaded when they are looked up, and not before."""

import sys

import pytest

from data import by_name


def test_a_module_is_imported_with_its_first_entry(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(tmp_path)
  for name in ('first_entry', 'second_entry'):
    (tmp_path / f'{name}.py').write_text(f'VALUE = {name!r}\n')
  table = by_name.ByName({'a': 'first_entry:VALUE', 'b': 'second_entry:VALUE'})
  assert [*table] == ['a', 'b'] and len(table) == 2
  assert 'a' in table and 'c' not in table
  assert not {'first_entry', 'second_entry'} & sys.modules.keys()
  assert table['b'] == 'second_entry'
  assert 'first_entry' not in sys.modules
  assert table.get('c') is None
  with pytest.raises(KeyError):
    table['c']
  monkeypatch.setitem(table, 'a', 7)  # as tests do
  assert table['a'] == 7
  del table['a']
  assert [*table] == ['b']
