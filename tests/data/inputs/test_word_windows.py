"""Sentences with tags: one labelled token a word, with and without context."""

import dataclasses
import itertools

import numpy as np
import pytest

from data.inputs import batches
from data.scoring import answers, kinds
from data.tasks.examples import RoleExample, TaggedExample, Task
from data.vocabulary import tokenization

TAGS = ('O', 'B-PER', 'I-PER')
TASK = Task('tags', 'Tags', 'tagging', {}, None, labels=TAGS)
ROLES = dataclasses.replace(TASK, name='srl', kind='roles')


def sentence(words, number=0, document=0, tagged=True):
  words = tuple(words.split() if isinstance(words, str) else words)
  tags = tuple(TAGS[len(word) % 3] for word in words) if tagged else None
  return TaggedExample(str(number), words, tags, document)


def check(features, examples):
  """Every word has its label once, in the order of its sentence."""
  for number, example in enumerate(examples):
    places = [
      features.place(i) for i in np.flatnonzero(features.examples == number)
    ]
    words = np.concatenate([features.word_index[place] for place in places])
    labels = np.concatenate([features.labels[place] for place in places])
    assert words[words >= 0].tolist() == list(range(len(example.words)))
    told = [TAGS.index(tag) for tag in example.tags or ()]
    assert labels[labels >= 0].tolist() == told
    if told:
      np.testing.assert_array_equal(words >= 0, labels >= 0)


def test_first_pieces_are_those_of_hugging_face(
  sesame_data, minilm, hugging_face
):
  text = (sesame_data / 'panx/dev-en.tsv').read_text('utf-8')
  blocks = [block.splitlines() for block in text.strip().split('\n\n')[:400]]
  examples = [
    sentence([line.split('\t')[0] for line in block], number)
    for number, block in enumerate(blocks)
  ]
  features = kinds.encode(TASK, examples, minilm, 128)
  encoded = hugging_face(
    [list(e.words) for e in examples], is_split_into_words=True
  )
  assert len(features) == len(examples)
  for i, example in enumerate(examples):
    place = features.place(i)
    assert features.tokens[place].tolist() == encoded['input_ids'][i]
    words, before = [], None
    for word in encoded.word_ids(i):
      words.append(-1 if word in (None, before) else word)
      before = word
    assert features.word_index[place].tolist() == words
    expected = [TAGS.index(example.tags[w]) if w >= 0 else -1 for w in words]
    assert features.labels[place].tolist() == expected
  check(features, examples)


@pytest.mark.parametrize('max_length', [5, 12, 33])
@pytest.mark.parametrize('document_context', [False, True])
def test_every_word_of_long_sentences_has_a_row(
  minilm, max_length, document_context
):
  rng = np.random.default_rng(0)
  vocabulary = 'a an extraordinary jellyfish met Wolfeschlegelstein !'.split()
  examples = [
    sentence(list(rng.choice(vocabulary, rng.integers(1, 60))), n, n // 4)
    for n in range(30)
  ]
  features = kinds.encode(
    TASK, examples, minilm, max_length, document_context=document_context
  )
  check(features, examples)
  assert features.lengths.max() <= max_length
  starts, ends = features.offsets[:-1], features.offsets[1:] - 1
  assert (features.tokens[starts] == minilm.cls_id).all()
  assert (features.tokens[ends] == minilm.sep_id).all()
  assert (features.truncated > 0) == (max_length == 5)
  again = kinds.encode(
    TASK,
    examples[8:12],
    minilm,
    max_length,
    document_context=document_context,
  )
  part = np.isin(features.examples, range(8, 12))
  assert np.diff(features.offsets)[part].tolist() == again.lengths.tolist()


def words_of(tokenizer, features, i):
  place = features.place(i)
  pieces = [tokenizer.pieces[t] for t in features.tokens[place][1:-1]]
  own = features.word_index[place][1:-1] >= 0
  return [f'<{p}>' if o else p for p, o in zip(pieces, own, strict=True)]


def test_context_is_of_the_document(minilm):
  examples = [
    sentence('one two three', 0, 0),
    sentence('four', 1, 0),
    sentence('five six seven', 2, 0),
    sentence('red blue', 3, 1),
  ]
  features = kinds.encode(TASK, examples, minilm, 7, document_context=True)
  rows = [' '.join(words_of(minilm, features, i)) for i in range(4)]
  assert rows == [
    '<one> <two> <three> four five',
    'two three <four> five six',
    'three four <five> <six> <seven>',
    '<red> <blue>',
  ]
  check(features, examples)
  features = kinds.encode(TASK, examples, minilm, 7)
  rows = [' '.join(words_of(minilm, features, i)) for i in range(4)]
  assert rows[1] == '<four>'
  # A sentence too long for a row is context to itself.
  long = [sentence('one two three four five six seven eight', 0)]
  features = kinds.encode(TASK, long, minilm, 8)
  rows = [' '.join(words_of(minilm, features, i)) for i in range(3)]
  assert rows == [
    '<one> <two> <three> four five six',
    'three <four> <five> <six> seven eight',
    'three four five six <seven> <eight>',
  ]


def test_words_without_pieces_are_unknown(minilm):
  examples = [sentence(['one', '\u200b', 'two'])]
  features = kinds.encode(TASK, examples, minilm, 16)
  assert features.tokens[2] == minilm.unk_id
  check(features, examples)


def test_a_word_longer_than_a_row(minilm):
  words = ['Donaudampfschifffahrtsgesellschaft', 'one']
  features = kinds.encode(TASK, [sentence(words)], minilm, 6)
  (pieces,) = minilm.encode_batch(words[:1])
  assert features.tokens[features.place(0)][1:-1].tolist() == pieces[:4]
  assert features.truncated == 1 and features.most_lost == len(pieces) - 4
  check(features, [sentence(words)])


def test_gpt_labels_the_last_piece():
  texts = [
    ' '.join(pair) for pair in itertools.permutations('abc abd xyz'.split(), 2)
  ]
  tokenizer = tokenization.train(
    texts, tokenization.parse_training('train:bytebpe:257')
  )
  examples = [sentence('abc xyz'), sentence('xyz', 1, tagged=False)]
  features = kinds.encode(TASK, examples, tokenizer, 32, form='gpt')
  (first, second), (alone,) = tokenizer.encode_words(
    [e.words for e in examples]
  )
  end = tokenizer.end_of_text_id
  assert len(second) > 1
  assert features.tokens[features.place(0)].tolist() == [
    end,
    *first,
    *second,
    end,
  ]
  assert features.word_index[features.place(0)].tolist() == [
    -1,
    *[-1] * (len(first) - 1),
    0,
    *[-1] * (len(second) - 1),
    1,
    -1,
  ]
  assert features.label_mask.tolist() == [True, False]
  assert (features.labels[features.place(1)] == -1).all()
  assert features.lengths[1] == len(alone) + 2
  check(features, examples)


def test_tags_in_bioul_without_symbols():
  tags = ('B-PER', 'I-PER', 'O', 'B-LOC', 'B-PER', 'I-PER', 'I-PER')
  words = tuple('Ann Lee in Rome met Bo Ek'.split())
  task = dataclasses.replace(TASK, labels=(*TAGS, 'B-LOC', 'I-LOC'))
  features = kinds.encode(
    task,
    [TaggedExample('0', words, tags)],
    None,
    16,
    form='words',
    bioul=True,
  )
  assert [features.words[i] for i in features.tokens] == list(words)
  assert features.word_index.tolist() == list(range(7))
  names = [features.tag_labels[i] for i in features.labels]
  assert names == ['B-PER', 'L-PER', 'O', 'U-LOC', 'B-PER', 'I-PER', 'L-PER']
  # Predictions are the task's own tags again, also where the model errs.
  logits = np.eye(len(features.tag_labels))[features.labels]
  logits[1] = np.eye(len(features.tag_labels))[0]
  (found,) = kinds.decode(
    answers.Outputs(
      task, [TaggedExample('0', words, None)], features, [logits], None
    )
  )
  assert found.answer == ('B-PER', 'O', *tags[2:])


def test_an_unknown_tag(minilm):
  example = TaggedExample('s3', ('a', 'b'), ('O', 'B-LOC'))
  with pytest.raises(
    ValueError, match="example s3: found the label 'B-LOC', expec"
  ):
    kinds.encode(TASK, [example], minilm, 16)


# ---- Predicates -------------------------------------------------------------


def proposition(words, predicate, number=0):
  tagged = sentence(words, number)
  return RoleExample(
    str(number), tagged.words, tagged.tags, predicate=predicate
  )


def told(features, names, i=0):
  """A row's tokens, marked :1 by their types, and <> where they have a tag."""
  place = features.place(i)
  types = features.token_types
  types = np.zeros(len(features.tokens)) if types is None else types
  return ' '.join(
    (f'<{names(token)}>' if word >= 0 else names(token))
    + (':1' if kind else '')
    for token, word, kind in zip(
      features.tokens[place],
      features.word_index[place],
      types[place],
      strict=True,
    )
  )


def test_rows_of_a_predicate_of_bert(minilm):
  """Of two equal words the predicate is told by its token types."""
  words = 'he can jellyfish a jellyfish'
  examples = [proposition(words, 4), proposition(words, 2, 1)]
  features = kinds.encode(ROLES, examples, minilm, 32)
  assert [told(features, minilm.pieces.__getitem__, i) for i in range(2)] == [
    '[CLS] <he> <can> <jelly> ##fish <a> <jelly>:1 ##fish:1 [SEP] '
    'jelly:1 ##fish:1 [SEP]:1',
    '[CLS] <he> <can> <jelly>:1 ##fish:1 <a> <jelly> ##fish [SEP] '
    'jelly:1 ##fish:1 [SEP]:1',
  ]
  assert features.second_starts.tolist() == [9, 9]
  assert features.token_types.dtype == np.int8
  assert features.truncated == 0
  check(features, examples)
  made = batches.Batches(features, pad_id=0, max_length=32)
  (batch,) = made.eval_batches(2)
  for row, number in enumerate(batch['example_ids']):
    types = batch['token_types'][row][batch['token_mask'][row]]
    expected = features.token_types[features.place(number)]
    np.testing.assert_array_equal(types, expected)


def test_rows_of_a_predicate_of_gpt():
  """The predicate comes first, as no word sees a later one."""
  texts = [' '.join(x) for x in itertools.permutations('abc abd xyz'.split())]
  tokenizer = tokenization.train(
    texts, tokenization.parse_training('train:bytebpe:258')
  )
  example = proposition('xyz abd abc', 1)
  features = kinds.encode(ROLES, [example], tokenizer, 32, form='gpt')
  (words,) = tokenizer.encode_words([example.words])
  end = tokenizer.end_of_text_id
  assert len(words[1]) > 1
  assert features.tokens.tolist() == [
    end,
    *words[1],
    end,
    *itertools.chain(*words),
    end,
  ]
  last = np.cumsum([len(word) for word in words]) + len(words[1]) + 1
  assert np.flatnonzero(features.word_index >= 0).tolist() == last.tolist()
  assert features.token_types is None
  assert features.second_starts.tolist() == [len(features.tokens)]
  check(features, [example])


@pytest.mark.parametrize(
  ('form', 'expected'),
  [
    ('words', '<a> <cat> <saw>:1 <a> <cat>'),
    ('elmo', '<S> <a> <cat> <saw> <a> <cat> </S> saw </S>'),
  ],
)
def test_rows_of_a_predicate_in_whole_words(form, expected):
  examples = [proposition('a cat saw a cat', 2)]
  features = kinds.encode(ROLES, examples, None, 9, form=form)
  assert told(features, features.words.__getitem__) == expected
  check(features, examples)
  (batch,) = batches.Batches(features, pad_id=0, max_length=9).eval_batches(1)
  types = batch['token_types'][0]
  assert np.flatnonzero(types).tolist() == ([2] if form == 'words' else [])


@pytest.mark.parametrize('max_length', [5, 12, 33])
def test_every_row_of_a_long_sentence_has_its_predicate(minilm, max_length):
  rng = np.random.default_rng(0)
  vocabulary = 'a an extraordinary jellyfish met Wolfeschlegelstein !'.split()
  examples = []
  for number in range(30):
    words = list(rng.choice(vocabulary, rng.integers(1, 60)))
    examples.append(proposition(words, int(rng.integers(len(words))), number))
  features = kinds.encode(ROLES, examples, minilm, max_length)
  check(features, examples)
  assert len(features) > len(examples)
  assert features.lengths.max() <= max_length
  most = (max_length - 3) // 2
  (encoded,) = minilm.encode_words([vocabulary])
  pieces = dict(zip(vocabulary, encoded, strict=True))
  for i, number in enumerate(features.examples):
    example = examples[number]
    row = features.tokens[features.place(i)].tolist()
    predicate = pieces[example.words[example.predicate]][:most]
    assert row[-len(predicate) - 2 :] == [
      minilm.sep_id,
      *predicate,
      minilm.sep_id,
    ]
    types = features.token_types[features.place(i)]
    assert types[-len(predicate) - 1 :].all()
    # Whole rows end at a word: the predicate is there or not.
    inside = types[: -len(predicate) - 2]
    assert inside.sum() <= len(pieces[example.words[example.predicate]])
  assert (features.truncated > 0) == (max_length < 16)


def test_a_predicate_has_no_document_around_it(minilm):
  with pytest.raises(ValueError, match='srl: found document_context=True, exp'):
    kinds.encode(
      ROLES, [proposition('a b', 1)], minilm, 16, document_context=True
    )


def test_roles_in_bioul():
  tags = ('B-PER', 'I-PER', 'O')
  example = RoleExample('0', ('a', 'b', 'c'), tags, predicate=2)
  features = kinds.encode(ROLES, [example], None, 8, form='words', bioul=True)
  names = [features.tag_labels[i] for i in features.labels]
  assert names == ['B-PER', 'L-PER', 'O']
  assert features.token_types.tolist() == [0, 0, 1]
