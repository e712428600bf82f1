"""Files of vectors: what word_vectors and gensim's reader get out of them."""

import numpy as np
import pytest

from data.vocabulary import word_vectors
from data.vocabulary.word2vec import vector_files

WORDS = ['the', 'Straße', '2,5', 'new_york']
VECTORS = np.array(
  [[0.1, -2e-9, 3.0], [1 / 3, 4e10, -0.0], [1, 2, 3], [7, 8, 9.5]], np.float32
)
FORMS = {'text': vector_files.as_text, 'binary': vector_files.as_binary}


def write(path, form, words=WORDS, vectors=VECTORS):
  path.write_bytes(b''.join(FORMS[form](words, vectors)))
  return path


@pytest.mark.parametrize('form', FORMS)
def test_our_reader_gets_the_same_bits(tmp_path, form):
  found = word_vectors.read(write(tmp_path / 'vectors', form), WORDS)
  assert list(found.words) == WORDS
  assert found.vectors.tobytes() == VECTORS.tobytes()


@pytest.mark.parametrize('form', FORMS)
def test_gensim_gets_the_same_bits(tmp_path, form):
  from gensim.models import KeyedVectors

  found = KeyedVectors.load_word2vec_format(
    str(write(tmp_path / 'vectors', form)), binary=form == 'binary'
  )
  assert found.index_to_key == WORDS
  assert found.vectors.tobytes() == VECTORS.tobytes()
  theirs = tmp_path / 'theirs'
  found.save_word2vec_format(str(theirs), binary=form == 'binary')
  again = word_vectors.read(theirs, WORDS)
  np.testing.assert_array_equal(again.vectors, VECTORS)


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['a', 'b', 'a', 'c'], r"word 3 of the vectors, 'a', comes twice"),
    (['a', 'b c', 'd', 'e'], r"word 2 of the vectors, 'b c', is not one word"),
    (['a', '', 'd', 'e'], r"word 2 of the vectors, '', is not one word"),
    (['a'], r'vectors \[4, 3\], expected one for each of 1 words'),
  ],
)
@pytest.mark.parametrize('form', FORMS)
def test_wrong_words_are_refused(form, words, message):
  with pytest.raises(ValueError, match=message):
    list(FORMS[form](words, VECTORS))


def test_a_broken_header_is_refused_by_line(tmp_path):
  path = tmp_path / 'vectors.txt'
  for header in ('3', '3 -2', '3,000 2', '3 2 1', '3.5 2', '0 2', '3\t2'):
    path.write_text(f'{header}\na 1 2\nb 3 4\nc 5 6\n')
    with pytest.raises(ValueError, match=r'vectors.txt, line 1: found .* exp'):
      word_vectors.read(path, ['a', 'b'])


def test_classes_are_of_directions_and_sorted_by_size():
  random = np.random.default_rng(0)
  centres = np.repeat(np.eye(3), [10, 30, 20], axis=0)
  vectors = centres * random.uniform(1, 9, (60, 1))
  vectors += random.normal(0, 0.01, vectors.shape)
  found = vector_files.classify(vectors, 3)
  assert found.tolist() == [2] * 10 + [0] * 30 + [1] * 20
  lines = list(vector_files.as_classes([f'w{i}' for i in range(60)], found))
  assert lines[0] == b'w10 0\n' and lines[-1] == b'w9 2\n'
  with pytest.raises(ValueError, match='classes=61: expected 60 at most'):
    vector_files.classify(vectors, 61)
