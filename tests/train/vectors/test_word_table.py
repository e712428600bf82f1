"""The table of a task's words, with and without vectors of a file."""

import numpy as np
import pytest

from train.vectors import word_table

SPLITS = {
  'train': 'The frog sat . The toad sat'.split(),
  'dev': 'a frog and a newt'.split(),
}


@pytest.fixture
def file(tmp_path):
  path = tmp_path / 'vectors.txt'
  path.write_text('the 1 2\nfrog 3 5\nelse 9 9\nnewt -1 0\n')
  return str(path)


def build(path, **changes):
  settings = {'dim': 3, 'lower': True, 'unknown': 'normal'} | changes
  return word_table.build(SPLITS, path, **settings)


def test_words_of_a_file_come_first_and_training_words_have_rows(file, capsys):
  table = build(file)
  # Of other splits only the file's words: the others could not be trained.
  assert table.words == ('the', 'frog', 'newt', '.', 'sat', 'toad')
  assert (table.num_rows, table.dim) == (7, 2)
  rows = table.rows(['The', 'THE', 'newt', 'and', 'toad'])
  assert rows.dtype == np.int32
  assert rows.tolist() == [1, 1, 3, 0, 6]
  printed = capsys.readouterr().err
  assert '4 vectors of 2; of 8 distinct words 3 have one (37.5%)' in printed
  assert 'of the training words 42.9%; the others are drawn' in printed


def test_first_vectors_are_a_function_of_the_seed(file):
  table = build(file)
  first, again, other = (table.initial(seed) for seed in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  known = [[1, 2], [3, 5], [-1, 0]]
  np.testing.assert_array_equal(first[1:4], known)
  np.testing.assert_array_equal(other[1:4], known)
  assert np.abs(first - other)[[0, 4, 5, 6]].min() > 0


def test_vectors_of_a_file_are_scaled_to_length_1(file):
  first = build(file, unknown='zero', unit=True).initial(0)
  lengths = np.linalg.norm(first, axis=1)
  np.testing.assert_allclose(lengths, [0, 1, 1, 1], rtol=1e-6)
  np.testing.assert_allclose(first[2], np.array([3, 5]) / 34**0.5, rtol=1e-6)


def test_missing_words_spread_as_the_others_or_are_zero(tmp_path):
  rng = np.random.default_rng(0)
  path = tmp_path / 'vectors.txt'
  path.write_text(
    ''.join(
      f'w{i} {a} {b}\n' for i, (a, b) in enumerate(rng.normal(3, 2, (400, 2)))
    )
  )
  words = [f'w{i}' for i in range(800)]
  settings = {'dim': 0, 'lower': False}
  normal, zero = (
    word_table.build({'train': words}, str(path), unknown=unknown, **settings)
    for unknown in word_table.UNKNOWN
  )
  drawn = normal.initial(0)[401:]
  assert drawn.shape == (400, 2)
  # 800 draws: five deviations of 2 / sqrt(800).
  assert abs(drawn.mean() - normal.vectors.mean()) < 0.36
  assert abs(drawn.std() / normal.vectors.std() - 1) < 0.13
  assert zero.num_rows == 401
  assert not zero.initial(0)[0].any()
  assert zero.rows(['w400', 'w0']).tolist() == [0, 1]


def test_without_a_file():
  table = build(None, lower=False)
  assert table.words == ('.', 'The', 'frog', 'sat', 'toad')
  drawn = table.initial(3)
  assert drawn.shape == (6, 3)
  assert 0.6 < np.abs(drawn).max() < np.sqrt(6 / 9)
  assert build(None, dim=0).num_rows == 0


def test_words_in_another_case_are_hinted_at(file):
  shouted = {'train': ['FROG', 'NEWT']}
  with pytest.raises(ValueError, match='2 of them are in lower case'):
    word_table.build(shouted, file, dim=0, lower=False, unknown='zero')
