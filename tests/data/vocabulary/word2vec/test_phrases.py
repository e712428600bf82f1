"""Phrases are those of word2phrase.c."""

import hashlib
import json

import word2vec_original as original

from data.vocabulary.word2vec import phrases


def test_text_is_joined_as_by_the_original():
  lines = [' '.join(line) for line in original.sentences()]
  found = phrases.count(lines)
  joined = list(phrases.join(lines, found, original.THRESHOLD, original.DELTA))
  expected = json.loads(original.EXPECTED.read_text())
  words = [word for line in joined for word in line.split()]
  assert len(expected['phrases']) > 10
  for phrase, count in expected['phrases'].items():
    assert words.count(phrase) == count
  digest = hashlib.sha256('\n'.join(joined).encode()).hexdigest()
  assert digest == expected['joined']


def test_the_score_is_that_of_the_paper():
  lines = ['new york is new', 'in new york', 'york and new york']
  found = phrases.count(lines)
  assert found.num_words == 11
  # new 4, york 4, the pair 3: (3 - 1) / 16 * 11 = 1.375.
  assert found.counts['new_york'] == 3
  joined = list(phrases.join(lines, found, 1.37, 1))
  assert joined == ['new_york is new', 'in new_york', 'york and new_york']
  assert list(phrases.join(lines, found, 1.38, 1)) == lines


def test_rare_words_are_forgotten_where_there_are_too_many():
  lines = ['a b'] * 5 + [f'x{i} y{i}' for i in range(20)]
  found = phrases.count(lines, most=10)
  assert found.counts['a_b'] == 5
  assert len(found.counts) <= 10
  assert found.num_words == 50
