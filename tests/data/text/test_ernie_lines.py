"""Lines of ERNIE's release, good and bad."""

import pytest

from data.text import ernie_lines

SYMBOLS = ernie_lines.LineSymbols(cls=1, sep=2, vocab_size=20)
LINE = '1 7 8 9 2 5 6 2;0 0 0 0 0 1 1 1;0 1 2 3 4 5 6 7;-1 0 1 0 -1 0 1 -1;1'


def test_a_line_is_two_texts_with_units():
  pair = ernie_lines.parse(LINE, SYMBOLS)
  assert pair.first == [7, 8, 9] and pair.second == [5, 6]
  assert pair.first_starts == [True, False, True]
  assert pair.second_starts == [True, False]
  assert pair.follows
  assert not ernie_lines.parse(LINE[:-1] + '0', SYMBOLS).follows


@pytest.mark.parametrize(
  ('old', 'new', 'found'),
  [
    (LINE, 'Some text.', r"found 1 fields between semicolons \('Some text.'\)"),
    ('7 8', '7 x', "found '1 7 x 9 2 5 6 2' as ids, expected whole numbers"),
    ('7 8', '7', 'found 7 ids, 8 segments, 8 positions, 8 bounds'),
    (';1', ';2', "found the label '2', expected 0 or 1"),
    ('0 1 0 -1', '0 3 0 -1', 'found the bound 3, expected -1, 0 or 1'),
    ('7 8', '7 20', 'the id 20 at place 2, expected 0 to 19: is the tokenizer'),
    ('9 2', '9 3', r'found the ids \[1, 3, 2\] at the places \[0, 4, 7\]'),
    ('-1 0 1 0', '0 0 1 0', r'found the ids \[2, 2\] at the places \[4, 7\]'),
    ('7 8', '2 8', r'found \[CLS\] 1 and \[SEP\] 3 times'),
    ('0 0 0 0 0 1', '0 0 0 0 1 1', 'other segments than 0 up to place 4'),
    ('0 1 2 3', '0 1 3 2', 'found other positions than 0 to 7 in order'),
    ('-1 0 1 0', '-1 1 1 0', 'found the bound 1 at place 1, expected 0'),
  ],
)
def test_bad_lines_are_named(old, new, found):
  assert LINE.count(old) == 1
  with pytest.raises(ValueError, match=found):
    ernie_lines.parse(LINE.replace(old, new), SYMBOLS)


def test_blocks_count_lines(tmp_path, monkeypatch):
  monkeypatch.setattr(ernie_lines, '_BLOCK_CHARS', 100)
  path = tmp_path / 'lines.txt'
  path.write_text('\n'.join([LINE] * 5) + '\n')
  found = list(ernie_lines.blocks(path))
  assert [first for first, _ in found] == [1, 3, 5]
  assert '\n'.join(text for _, text in found) == '\n'.join([LINE] * 5)
