"""Words to character ids, against the released program's rule spelt out."""

import random

import numpy as np
import pytest

from data.vocabulary import characters
from models import char_cnn


def ids_of(word):
  """One word at a time, as bilm-tf's data.py is described to do it."""
  if word in ('<S>', '</S>'):
    middle = [256 if word == '<S>' else 257]
  else:
    middle = list(word.encode('utf-8', 'ignore')[:48])
  row = [258, *middle, 259]
  return row + [260] * (50 - len(row))


def test_layout():
  ids, num_cut = characters.encode_words(['cat', 'é', '', '<S>', '</S>'])
  assert ids.shape == (5, 50)
  assert ids[0, :6].tolist() == [258, 99, 97, 116, 259, 260]
  assert ids[1, :5].tolist() == [258, 195, 169, 259, 260]
  assert ids[2, :3].tolist() == [258, 259, 260]
  assert ids[3, :4].tolist() == [258, 256, 259, 260]
  assert ids[4, :4].tolist() == [258, 257, 259, 260]
  assert (ids[:, 6:] == 260).all()
  assert num_cut == 0


def test_long_words_are_cut_and_counted():
  words = ['a' * 48, 'a' * 49, 'a' * 47 + 'é', '中' * 16, '中' * 17, 'é' * 500]
  ids, num_cut = characters.encode_words(words)
  assert num_cut == 4
  assert (ids[:, 49] == 259).all()
  assert ids[2, 48] == 195  # the first half of a character
  np.testing.assert_array_equal(ids, [ids_of(word) for word in words])


def test_many_words_at_once_are_each_alone():
  rng = random.Random(0)
  alphabet = 'aZ09.,<>/S\x00\n\xa0é中😀\ud800\udcff'
  words = [
    ''.join(rng.choices(alphabet, k=rng.choice((0, 1, 2, 3, 9, 30, 60))))
    for _ in range(2000)
  ] + ['<S>', '</S>', '<UNK>', '<s>']
  rng.shuffle(words)
  ids, num_cut = characters.encode_words(words)
  np.testing.assert_array_equal(ids, [ids_of(word) for word in words])
  lengths = [len(word.encode('utf-8', 'ignore')) for word in words]
  assert num_cut == sum(length > 48 for length in lengths) > 100


def test_no_words():
  ids, num_cut = characters.encode_words([])
  assert ids.shape == (0, 50)
  assert num_cut == 0


def test_a_string_is_not_a_list_of_words():
  with pytest.raises(TypeError, match="the string 'a cat'.*split it first"):
    characters.encode_words('a cat')


def test_symbols_are_those_of_the_model():
  assert characters.PADDING_ID == char_cnn.NUM_CHARACTERS - 1
  ids, _ = characters.encode_words(['\udfff', '<S>', 'a'])
  assert ids.max() < char_cnn.NO_CHARACTER
