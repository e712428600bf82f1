"""Documents as rows: a sentence each, with speakers, genre and mentions."""

import dataclasses

import numpy as np
import pytest
import small_documents
from small_documents import TASK, document

from data.scoring import kinds
from data.tasks import registry
from data.vocabulary import characters


def test_rows_are_the_sentences():
  clusters = (((4, 6), (0, 1)), ((2, 2), (3, 3), (4, 4)))
  documents = [
    document((3, 1, 4), clusters=clusters),
    document((2,), number=1, clusters=None, genre='zz'),
    document((2, 5), number=2, clusters=(), genre='bc'),
  ]
  documents[1] = dataclasses.replace(documents[1], clusters=None)
  features = kinds.encode(TASK, documents, None, 8, form='words')
  assert len(features) == 3
  assert features.row_offsets.tolist() == [0, 3, 4, 6]
  assert features.offsets.tolist() == [0, 3, 4, 8, 10, 12, 17]
  assert features.lengths.tolist() == [8, 2, 7]
  words = np.array(features.words)
  for i, example in enumerate(documents):
    for row, sentence in enumerate(example.sentences):
      place = features.place(i, row)
      assert tuple(words[features.tokens[place]]) == sentence
      # The speakers of the sentences are '', Ann and Bo.
      assert set(features.speakers[place]) == {row}
  assert features.genres.tolist() == [2, 0, 1]
  assert features.mention_offsets.tolist() == [0, 5, 5, 5]
  assert features.labels.tolist() == [
    [0, 1, 0],
    [2, 2, 1],
    [3, 3, 1],
    [4, 4, 1],
    [4, 6, 0],
  ]
  assert features.label_mask.tolist() == [True, False, True]
  assert features.examples.tolist() == [0, 1, 2]
  assert features.truncated == 0
  assert features.characters.shape == (len(words), 50)
  used = features.characters[features.tokens[0]]
  np.testing.assert_array_equal(
    used, characters.encode_words([documents[0].words[0]])[0][0]
  )


def test_the_real_documents(sesame_data):
  task = registry.find('coref_gum')
  documents = registry.load(task, str(sesame_data), 'dev')
  features = kinds.encode(task, documents, None, 100, form='words')
  words = np.array(features.words)
  assert tuple(words[features.tokens]) == tuple(
    word for example in documents for word in example.words
  )
  assert len(features.labels) == 3815
  assert features.genres.min() == 1 and features.genres.max() == 15


def test_no_sentence_is_cut():
  documents = [document((3, 9, 2), number=4)]
  with pytest.raises(
    ValueError,
    match=r'document doc4: sentence 2 has 9 words, task.max_length is 8.* set '
    r'task.max_length=9 or more',
  ):
    kinds.encode(TASK, documents, None, 8, form='words')


def test_other_forms_are_refused():
  with pytest.raises(ValueError, match='choose the model e2e_coref'):
    kinds.encode(TASK, [document((3,))], None, 8, form='elmo')


def test_drawn_documents_are_valid():
  for number in range(20):
    example = small_documents.document((5, 1, 3), number=number)
    assert not list(example.problems(TASK))
