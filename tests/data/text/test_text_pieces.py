"""Pieces of text know their file and line, and sources what they dropped."""

import pytest
from text_sources import write

from data.text import documents, sources, text_pieces


@pytest.mark.parametrize('document_break', ['file', 'blank_line', '== .*'])
def test_a_piece_names_its_file_and_line(tmp_path, monkeypatch, document_break):
  monkeypatch.setattr(documents, 'PIECE_CHARS', 40)
  lines = []
  for number in range(60):
    lines.append(f'The line {number + 1} of a text.')
    if number % 7 == 3:
      lines[-1] = ''
    elif number % 11 == 5:
      lines[-1] = f'== {number + 1}'
  for name in ('a', 'b'):
    write(tmp_path / f'{name}.txt', '\r\n'.join([*lines, name]))
  source = sources.open_source(str(tmp_path), document_break=document_break)
  found = list(source.pieces())
  assert len(found) > 20
  for piece in found:
    first = piece.text.split('\n')[0]
    there = [*lines, piece.file.rsplit('/', 1)[1][0]]
    assert there[piece.line - 1].endswith(first)
  assert {piece.file for piece in found} == {
    f'{tmp_path}/{name}.txt' for name in ('a', 'b')
  }


def test_dropped_text_in_one_line():
  described = text_pieces.describe_dropped(
    {'empty file': 2, 'none': 0, 'binary file': 1}, {'empty file': ['a', 'b']}
  )
  assert described == 'binary file: 1; empty file: 2 (a, b)'
  assert text_pieces.describe_count(5000, ()) == '5,000'
