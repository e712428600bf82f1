"""Rows of byte-level vocabularies of encoders, as transformers makes them."""

import itertools

import encoder_folders
import numpy as np
import pytest
import qa_windows
import squad_json
import transformers
from tokenizers import pre_tokenizers

from data.scoring import kinds
from data.tasks.examples import (
  ChoiceExample,
  ChoiceTask,
  RoleExample,
  TaggedExample,
  Task,
  TextExample,
  TextTask,
)
from data.vocabulary import tokenization

LABELS = ('O', 'B-X')
PAIR = TextTask(
  'pair', 'Pair', 'classification', {}, None, labels=LABELS, num_texts=2
)
CHOICE = ChoiceTask('choice', 'Choice', 'choice', {}, None, num_choices=2)
TAGS = Task('tags', 'Tags', 'tagging', {}, None, labels=LABELS)
ROLES = Task('roles', 'Roles', 'roles', {}, None, labels=LABELS)
SPANS = Task('squad', 'SQuAD', 'span', {}, None)


@pytest.fixture(scope='module', params=encoder_folders.MAKERS)
def both(request, tmp_path_factory):
  """Our tokenizer and that of transformers, which does not cut by itself."""
  folder = tmp_path_factory.mktemp(request.param)
  theirs = encoder_folders.MAKERS[request.param](folder)
  return tokenization.load(folder), theirs, folder


def rows(features):
  places = itertools.pairwise(features.offsets.tolist())
  return [features.tokens[a:b].tolist() for a, b in places]


@pytest.mark.parametrize('max_length', [64, 21, 20, 8])
def test_pairs_are_cut_alike(both, max_length):
  ours, theirs, _ = both
  texts = [*itertools.product(encoder_folders.TEXT, repeat=2), ('a', 'b c')]
  examples = [TextExample(str(i), pair, None) for i, pair in enumerate(texts)]
  features = kinds.encode(PAIR, examples, ours, max_length)
  expected = theirs(
    *map(list, zip(*texts, strict=True)),
    truncation='longest_first',
    max_length=max_length,
  )
  assert rows(features) == expected['input_ids']
  # The second text begins behind all separators.
  for row, start in zip(rows(features), features.second_starts, strict=True):
    between = row[start - ours.separators : start]
    assert between == [ours.sep_id] * ours.separators
    assert row[start] != ours.sep_id


def test_a_row_of_two_texts_has_room_for_both(both):
  ours, *_ = both
  least = 4 + ours.separators
  example = TextExample('x', ('the dog', 'the cat'), None)
  ((row,),) = [rows(kinds.encode(PAIR, [example], ours, least))]
  assert len(row) == least
  with pytest.raises(ValueError, match=f'has {least} tokens at least'):
    kinds.encode(PAIR, [example], ours, least - 1)


def test_choices_are_pairs(both):
  ours, theirs, _ = both
  example = ChoiceExample('x', 'The dog', 'it', ('sat', 'is old'), 1)
  features = kinds.encode(CHOICE, [example], ours, 32)
  expected = theirs(['The dog'] * 2, ['it sat', 'it is old'])['input_ids']
  assert rows(features) == expected


def test_windows_with_answers_are_alike(both, sesame_data):
  ours, theirs, _ = both
  examples = squad_json.read(sesame_data / 'squad/train-v1.1.json')[::4000]
  features = kinds.encode(
    SPANS, examples, ours, 300, doc_stride=90, max_query=200
  )
  i = 0
  for number, example in enumerate(examples):
    for ids, spans, label in qa_windows.windows_of(
      theirs, example, 300, 90, 2 + ours.separators
    ):
      place = features.place(i)
      assert features.examples[i] == number
      assert features.tokens[place].tolist() == ids
      assert features.labels[i].tolist() == label
      for (start, end), wanted in zip(
        features.token_spans[place].tolist(), spans, strict=True
      ):
        if start >= 0:  # ModernBERT's spans hold the space before a word
          wanted[0] = start if start - wanted[0] in (0, 1) else wanted[0]
        assert [start, end] == wanted
      i += 1
  assert i == len(features) > len(examples)


def test_words_are_those_of_add_prefix_space(both):
  ours, _, folder = both
  theirs = transformers.AutoTokenizer.from_pretrained(folder)
  theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=True
  )
  words = "The café of the cats , isn't it ?".split()
  example = TaggedExample('x', tuple(words), None)
  features = kinds.encode(TAGS, [example], ours, 64)
  encoded = theirs(words, is_split_into_words=True)
  assert rows(features) == [encoded['input_ids']]
  seen = [-1 if word is None else word for word in encoded.word_ids()]
  first = [
    word if word != before else -1
    for before, word in itertools.pairwise([-1, *seen])
  ]
  np.testing.assert_array_equal(features.word_index, first)


@pytest.mark.parametrize('max_length', [32, 11])
def test_the_row_of_a_predicate(both, max_length):
  ours, *_ = both
  example = RoleExample('x', ('the', 'cat', 'sat'), None, predicate=2)
  features = kinds.encode(ROLES, [example], ours, max_length)
  words = [sum(ids, []) for ids in ours.encode_words([example.words])]
  (predicate,) = [sum(ids, []) for ids in ours.encode_words([['sat']])]
  (row,) = rows(features)[:1]
  sep = [ours.sep_id]
  behind = [*sep * ours.separators, *predicate, *sep]
  assert row[0] == ours.cls_id and row[-len(behind) :] == behind
  if max_length > 20:
    assert row == [ours.cls_id, *words[0], *behind]
    types = features.token_types.tolist()
    assert types[-len(behind) :] == [0] * ours.separators + [1] * (
      len(predicate) + 1
    )
    assert features.second_starts[0] == len(row) - len(predicate) - 1
