import pytest

from train.benches import table


def test_words_of_trees(tmp_path):
  (tmp_path / 'test.txt').write_text(
    '(3 (2 Fine) (2 -LRB-))\n(2 One\u00a0\u0085half)\n'
    '(4 (2 A) (3 (2 b) (2 c)))\n(1 (1 x) (2 y))\n'
  )
  sentences = table.read_tree_words(str(tmp_path))
  # A no-break space and a next-line character are part of their word.
  expected = [['Fine', '-LRB-'], ['One\u00a0\u0085half'], ['A', 'b', 'c']]
  assert sentences == [*expected, ['x', 'y']]
  assert table.read_tree_words(str(tmp_path), 2) == sentences[::2]
  assert table.read_tree_words(str(tmp_path), 4) == sentences
  for count in (0, 5):
    with pytest.raises(ValueError, match=f'{count} sentences.*1 to the 4'):
      table.read_tree_words(str(tmp_path), count)


@pytest.mark.parametrize(
  'line', ['', 'no tree', '(3 (2 Fine) (2 .)', '(3 (2 Fine) (2 .)) (2 x)']
)
def test_a_line_that_is_no_tree_is_named(tmp_path, line):
  (tmp_path / 'test.txt').write_text(f'(2 Fine)\n{line}\n(2 .)\n')
  with pytest.raises(ValueError, match=r'test\.txt, line 2: found .* exp'):
    table.read_tree_words(str(tmp_path))


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match=r'there is no .*/test\.txt'):
    table.read_tree_words(str(tmp_path))


def test_the_published_test_set(sesame_data):
  sentences = table.read_tree_words(str(sesame_data / 'sst5'))
  assert len(sentences) == 2210
  assert sentences[0] == ['Effective', 'but', 'too-tepid', 'biopic']
