"""Lists of words, and what a name of vectors means."""

import pytest

from train.meanings.words import sources


def test_what_a_name_means(tmp_path):
  file = tmp_path / 'glove.txt'
  file.touch()
  assert sources.find_file(str(file)) == file
  assert sources.find_file(str(tmp_path)) is None
  assert sources.find_file('google-bert/bert-base-uncased') is None
  (tmp_path / 'some_index.parquet').touch()
  assert sources.find_file(str(tmp_path)) == tmp_path
  (tmp_path / 'vectors.bin').touch()
  assert sources.find_file(str(tmp_path)) == tmp_path / 'vectors.bin'


def test_candidates_come_first(tmp_path):
  file = tmp_path / 'glove.txt'
  file.write_text('the 1 2\na 3 4\nDog 5 6\ncat 0 0\n')
  found = sources.read_file(file, 2, ['dog', 'the'])
  assert found.words == ('the', 'a', 'Dog') and found.num_first == 2
  assert found.layers.shape == (1, 3, 2)


def test_words_of_a_list(tmp_path):
  file = tmp_path / 'words.txt'
  file.write_text('the\n\nof\n a \n')
  assert sources.read_words(file, 2) == ['the', 'of']
  for text, message in (
    ('', 'is empty, expected a word a line'),
    ('the\nof a\n', "line 2: found 2 words: 'of a'; expected a word a line"),
    ('the\nof\nthe\n', "line 3: found 'the' again, after line 1"),
  ):
    file.write_text(text)
    with pytest.raises(ValueError, match=f'words.txt.*{message}'):
      sources.read_words(file, 9)


def test_words_of_a_text(tmp_path):
  file = tmp_path / 'text.txt'
  file.write_text("The cat, the dog.\nA dog: it's the dog\n")
  assert sources.count_words(file, 3) == ['the', 'dog', 'cat']
