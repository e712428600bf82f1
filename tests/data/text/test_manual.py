"""The documentation inside every Python."""

import sysconfig

import pytest
from text_sources import texts_of, write

from data.text import manual, sources


def test_manual_is_the_documentation_of_python():
  source = sources.open_source('manual')
  assert source.document_break == 'record'
  found = texts_of(source)
  words = sum(len(text.split()) for text in found)
  assert 350 < len(found) < 700 and 200_000 < words < 600_000
  assert source.bytes_read == source.num_bytes
  assert sum(source.dropped.values()) > 20
  assert all(len(text.split()) >= manual.MIN_WORDS for text in found)
  assert sum('This module' in text for text in found) > 20
  assert any(text.startswith('Customizing attribute access') for text in found)
  assert texts_of(source) == found
  assert not any(piece.sentence_per_line for piece in source.pieces())


def test_manual_reads_source_and_imports_nothing(tmp_path, monkeypatch):
  words = ' '.join(f'word{i}' for i in range(30))
  write(
    tmp_path / 'b.py',
    f'"""Module. {words}"""\nraise SystemExit("imported")\n'
    'if True:\n  class A:\n    """Class A.\n\n    Indented."""\n'
    '    def f(self):\n      "Method f."\n      def g():\n        "Inner g."\n'
    'async def h():\n  """Title\n  =====\n\n  Coroutine h."""\n',
  )
  write(tmp_path / 'a' / '__init__.py', f'"""First. {words}"""')
  write(tmp_path / 'a' / 'small.py', '"""Too small."""')
  write(tmp_path / 'a' / 'broken.py', 'def (')
  write(tmp_path / 'test' / 'test_b.py', f'"""Test. {words}"""')
  write(tmp_path / 'site-packages' / 'c.py', f'"""Third party. {words}"""')
  monkeypatch.setattr(sysconfig, 'get_path', lambda name: str(tmp_path))
  monkeypatch.setattr(manual, '_topics', lambda: iter(()))
  manual.documents.cache_clear()
  try:
    texts, dropped = manual.documents()
  finally:
    manual.documents.cache_clear()
  assert texts == (
    f'Module. {words}\n\nClass A.\n\nIndented.\n\nMethod f.\n\nInner g.\n\n'
    'Title\n\nCoroutine h.',
    f'First. {words}',
  )
  assert dropped == {
    'module that cannot be parsed': 1,
    f'module with fewer than {manual.MIN_WORDS} words of docstrings': 1,
  }


def test_manual_without_library_source(tmp_path, monkeypatch):
  monkeypatch.setattr(sysconfig, 'get_path', lambda name: str(tmp_path))
  manual.documents.cache_clear()
  with pytest.raises(FileNotFoundError, match='no module source under'):
    sources.open_source('manual')
