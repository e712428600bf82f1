"""Scores are those of compute-accuracy.c and of gensim."""

import numpy as np
import pytest
from drawn_words import ORIGINAL, drawn_questions, drawn_words

from data.tasks.words import analogies, pairs
from data.vocabulary.word2vec import vector_files
from train.meanings.words import scores, sources


@pytest.fixture
def sections(tmp_path):
  (tmp_path / 'questions.txt').write_text(drawn_questions())
  return analogies.read(tmp_path / 'questions.txt')


@pytest.mark.parametrize('first', ORIGINAL)
def test_analogies_in_two_cases_as_the_original(sections, first):
  words, vectors = drawn_words()
  found = scores.score_analogies(
    'drawn', words[:first], vectors[:first], sections
  )
  for part, (right, known) in zip(
    ('total', 'semantic', 'syntactic'), ORIGINAL[first], strict=True
  ):
    assert (found[part]['right'], found[part]['known']) == (right, known)
    assert found[part]['accuracy'] == right / known
  assert found['total']['questions'] == 1_056
  assert found['sections']['a'] == {
    'questions': 176,
    'known': 0,
    'right': 0,
    'accuracy': None,
  }


# Of words in two cases gensim takes neither for an answer: so one case.
@pytest.mark.parametrize('first', [96, 70])
def test_one_case_as_gensim(sections, tmp_path, first):
  from gensim.models import KeyedVectors

  words, vectors = (each[:96] for each in drawn_words())
  (tmp_path / 'vectors.bin').write_bytes(
    b''.join(vector_files.as_binary(words, vectors))
  )
  theirs = KeyedVectors.load_word2vec_format(
    tmp_path / 'vectors.bin', binary=True
  )
  _, expected = theirs.evaluate_word_analogies(
    tmp_path / 'questions.txt', restrict_vocab=first
  )
  rng = np.random.default_rng(1)
  lines = [
    f'{a.title()}\t{b}\t{rng.integers(10)}'
    for a, b in rng.choice([*words, 'unknown', 'other'], (60, 2))
  ]
  (tmp_path / 'some.txt').write_text('\n'.join(lines))
  _, (spearman, _), unknown = theirs.evaluate_word_pairs(tmp_path / 'some.txt')
  read = pairs.read_all([tmp_path / 'some.txt'])
  asked = [word for pair in read['some'] for word in pair[:2]]
  ours = sources.read_file(tmp_path / 'vectors.bin', first, asked)
  (layer,) = scores.score('v', ours, sections, read)['layers']
  found = layer['analogies']
  for section in expected:
    name = section['section']
    mine = found['total']
    if name != 'Total accuracy':
      mine = found['sections'][name]
    assert mine['right'] == len(section['correct'])
    assert mine['known'] == len(section['correct']) + len(section['incorrect'])
  similar = layer['word_pairs']['some']
  assert similar['spearman'] == pytest.approx(spearman, abs=1e-6)
  assert similar['pairs'] == 60
  assert 100 * (1 - similar['known'] / 60) == pytest.approx(unknown)
  assert 0 < unknown < 50


def test_no_answer_has_a_product_that_is_not_positive():
  section = analogies.Section('one', (('a', 'b', 'c', 'd'),))
  words, vectors = 'abcd', np.array([[1, 1], [-1, 1], [-1, 0.1], [1, -0.01]])
  found = scores.score_analogies('v', words, vectors, [section])
  assert found['total']['right'] == 0  # d is all that is left


def test_nothing_known_is_an_error(sections):
  with pytest.raises(
    ValueError, match='^v: .* none of the 1,056 .* first 2 wo'
  ):
    scores.score_analogies('v', ['a', 'b'], np.eye(2), sections)
  some = [pairs.WordPair('a', 'b', 1.0), pairs.WordPair('a', 'c', 2.0)]
  with pytest.raises(ValueError, match='^v: found both words of 1 of 2 pairs'):
    scores.score_pairs('v', ['A', 'b'], np.eye(2), some)
