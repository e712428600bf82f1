"""Pairs of words with scores, in the forms in which they are published."""

import pytest

from data.tasks.words import pairs

EXPECTED = [('old', 'new', 1.58), ('Tiger', 'cat', 7.0)]


@pytest.mark.parametrize(
  'text',
  [
    'old\tnew\t1.58\nTiger\tcat\t7\n',
    '# a comment\n\nold new 1.58\nTiger  cat 7.0\n',
    'Word 1,Word 2,Human (mean)\nold,new,1.58\nTiger,cat,7\n',
    # SimLex-999 and SimVerb-3500.
    'word1\tword2\tPOS\tSimLex999\told\nold\tnew\tA\t1.58\t2.72\n'
    'Tiger\tcat\tN\t7.00\t5\n',
    'old\tnew\tV\t1.58\tANTONYMS\nTiger\tcat\tV\t7\tNONE\n',
  ],
)
def test_forms(tmp_path, text):
  path = tmp_path / 'pairs.txt'
  path.write_text(text)
  assert pairs.read(path) == EXPECTED


def test_released_sets(sesame_data):
  folder = sesame_data / 'word_similarity/eval-word-vectors'
  found = pairs.read_all(sorted(folder.glob('*.txt')))
  assert len(found) == 13
  for name, count in (
    ('EN-WS-353-ALL', 353),
    ('EN-SIMLEX-999', 999),
    ('EN-SimVerb-3500', 3_500),
    ('EN-MEN-TR-3k', 3_000),
    ('EN-RW-STANFORD', 2_034),
  ):
    assert len(found[name]) == count


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('', 'found 0 pairs, expected two or more'),
    ('old new 1\n', 'found 1 pairs'),
    ('old new\n', "line 1: found 'old new', expected two words and a score"),
    ('a b 1\nold\tnew\tlow\n', 'line 2: found .*expected two words and a sco'),
    ('a b 1\nold,new,nan\n', 'line 2: found'),
    ('a b 1\n\tnew\t3\n', 'line 2: found'),
  ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
  path = tmp_path / 'pairs.txt'
  path.write_text(text)
  with pytest.raises(ValueError, match=f'pairs.txt.*{message}'):
    pairs.read(path)


def test_files_of_one_name(tmp_path):
  (tmp_path / 'a.txt').write_text('a b 1\nc d 2\n')
  with pytest.raises(
    ValueError, match='a second file a, expected files of oth'
  ):
    pairs.read_all([tmp_path / 'a.txt'] * 2)
