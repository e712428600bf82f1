"""Rows of texts, pairs and choices: BERT's as Hugging Face's, GPT's by hand."""

import dataclasses
import itertools

import numpy as np
import pytest

from data.inputs import framing
from data.scoring import kinds
from data.tasks.examples import (
  ChoiceExample,
  ChoiceTask,
  TextExample,
  TextTask,
)
from data.vocabulary import tokenization

LABELS = ('no', 'yes')
TEXT = TextTask('text', 'Text', 'classification', {}, None, labels=LABELS)
PAIR = dataclasses.replace(TEXT, name='pair', num_texts=2)
CHOICE = ChoiceTask('choice', 'Choice', 'choice', {}, None, num_choices=3)
WORDS = 'a small dog ran over the green hill and saw two cats there'.split()


@pytest.fixture(scope='module')
def wordpiece():
  return trained('train:wordpiece:80')


def trained(how):
  texts = [f'{a} {b}' for a, b in itertools.permutations(WORDS, 2)]
  return tokenization.train(texts, tokenization.parse_training(how))


def rows(features):
  places = itertools.pairwise(features.offsets.tolist())
  return [features.tokens[a:b].tolist() for a, b in places]


def types(features):
  lengths = np.diff(features.offsets).tolist()
  return [
    [0] * start + [1] * (length - start)
    for start, length in zip(
      features.second_starts.tolist(), lengths, strict=True
    )
  ]


@pytest.fixture(scope='module')
def mrpc(sesame_data):
  lines = (sesame_data / 'glue/MRPC/dev.tsv').read_text('utf-8').splitlines()
  return [
    TextExample(str(n), tuple(line.split('\t')[3:5]), None)
    for n, line in enumerate(lines[1:])
  ]


@pytest.mark.parametrize('max_length', [128, 64, 41, 40, 16])
def test_pairs_are_those_of_hugging_face(
  mrpc, minilm, hugging_face, max_length
):
  # The second text is the longer one in the other half.
  examples = mrpc + [
    dataclasses.replace(e, texts=(e.texts[0], ' '.join(e.texts[::-1])))
    for e in mrpc[:100]
  ]
  features = kinds.encode(PAIR, examples, minilm, max_length)
  expected = hugging_face(
    [e.texts[0] for e in examples],
    [e.texts[1] for e in examples],
    truncation='longest_first',
    max_length=max_length,
  )
  assert rows(features) == expected['input_ids']
  assert types(features) == expected['token_type_ids']
  assert len(features) == len(examples)
  cut = hugging_face(*zip(*(e.texts for e in examples), strict=True))
  lost = [max(0, len(ids) - max_length) for ids in cut['input_ids']]
  assert features.truncated == np.count_nonzero(lost)
  assert features.most_lost == max(lost)


@pytest.mark.parametrize('max_length', [128, 20])
def test_single_texts_are_those_of_hugging_face(
  mrpc, minilm, hugging_face, max_length
):
  texts = [e.texts[0] for e in mrpc] + ['', 'naïve café', '東京 \u200b']
  examples = [TextExample(str(n), (t,), None) for n, t in enumerate(texts)]
  features = kinds.encode(TEXT, examples, minilm, max_length)
  expected = hugging_face(texts, truncation=True, max_length=max_length)
  assert rows(features) == expected['input_ids']
  assert types(features) == expected['token_type_ids']


def test_the_longer_text_yields():
  assert framing.longest_first(3, 4, 7) == (3, 4)
  assert framing.longest_first(3, 40, 10) == (3, 7)
  assert framing.longest_first(40, 3, 10) == (7, 3)
  assert framing.longest_first(40, 30, 11) == (6, 5)
  assert framing.longest_first(30, 40, 11) == (5, 6)
  assert framing.longest_first(40, 40, 11) == (5, 6)
  assert framing.longest_first(40, 40, 10) == (5, 5)
  assert framing.longest_first(0, 40, 10) == (0, 10)


def test_labels(wordpiece):
  examples = [
    TextExample('a', ('dog',), 'yes'),
    TextExample('b', ('cats',), None),
    TextExample('c', ('hill',), 'no'),
  ]
  features = kinds.encode(TEXT, examples, wordpiece, 16)
  assert features.labels.dtype == np.int32
  assert features.labels[[0, 2]].tolist() == [1, 0]
  assert features.label_mask.tolist() == [True, False, True]
  assert features.examples.tolist() == [0, 1, 2]
  scores = [dataclasses.replace(e, label=2.5) for e in examples]
  regression = dataclasses.replace(TEXT, kind='regression', labels=())
  features = kinds.encode(regression, scores, wordpiece, 16)
  assert features.labels.dtype == np.float32
  assert features.labels.tolist() == [2.5] * 3


def test_choices_of_bert(wordpiece):
  examples = [
    ChoiceExample('a', 'a dog ran', 'the cats', ('saw', 'ran', ''), 2),
    ChoiceExample('b', 'a hill', '', ('green', 'small dog', 'two'), None),
  ]
  features = kinds.encode(CHOICE, examples, wordpiece, 32)
  (dog, hill, *others) = wordpiece.encode_batch(
    ['a dog ran', 'a hill', 'the cats saw', 'the cats ran', 'the cats']
    + ['green', 'small dog', 'two']
  )
  cls, sep = wordpiece.cls_id, wordpiece.sep_id
  assert rows(features) == [
    [cls, *a, sep, *b, sep]
    for a, b in zip([dog] * 3 + [hill] * 3, others, strict=True)
  ]
  assert features.num_rows == 3 and len(features) == 2
  assert features.labels[0] == 2
  assert features.label_mask.tolist() == [True, False]
  lengths = [len(dog) + 3 + max(map(len, others[:3]))]
  assert features.lengths[0] == lengths[0]
  assert features.tokens[features.place(1, 2)].tolist() == rows(features)[5]


@pytest.mark.parametrize('how', ['train:bpe:120', 'train:bytebpe:300'])
def test_forms_of_gpt(how):
  tokenizer = trained(how)
  if how == 'train:bpe:120':
    start, delimiter, classify = (
      tokenizer.start_id,
      tokenizer.delimiter_id,
      tokenizer.classify_id,
    )
  else:
    start = delimiter = classify = tokenizer.end_of_text_id
  a, b, c, space_b = tokenizer.encode_batch(
    ['a small dog', 'the cats', 'ran', ' the cats']
  )
  single = [TextExample('0', ('a small dog',), 'yes')]
  features = kinds.encode(TEXT, single, tokenizer, 64, form='gpt')
  assert rows(features) == [[start, *a, classify]]
  pair = [TextExample('0', ('a small dog', 'the cats'), 'yes')]
  features = kinds.encode(PAIR, pair, tokenizer, 64, form='gpt')
  assert rows(features) == [[start, *a, delimiter, *b, classify]]
  assert not any(map(any, types(features)))
  similar = dataclasses.replace(PAIR, symmetric=True)
  features = kinds.encode(similar, pair, tokenizer, 64, form='gpt')
  assert features.num_rows == 2 and len(features) == 1
  assert rows(features) == [
    [start, *a, delimiter, *b, classify],
    [start, *b, delimiter, *a, classify],
  ]
  choices = [ChoiceExample('0', 'a small dog', 'the cats', ('ran',) * 3, 0)]
  features = kinds.encode(CHOICE, choices, tokenizer, 64, form='gpt')
  row = [start, *a, *space_b, delimiter, *c, classify]
  assert rows(features) == [row] * 3


def test_gpt_cuts_as_released():
  tokenizer = trained('train:bytebpe:300')
  long, short = 'dog ' * 600, 'cats'
  (ids,), (few,) = (tokenizer.encode_batch([text]) for text in (long, short))
  end = tokenizer.end_of_text_id
  pair = [TextExample('0', (short, long), None)]
  features = kinds.encode(PAIR, pair, tokenizer, 512, form='gpt')
  assert rows(features) == [[end, *few, end, *ids[:254], end]]
  single = [TextExample('0', (long,), None)]
  features = kinds.encode(TEXT, single, tokenizer, 512, form='gpt')
  assert rows(features) == [[end, *ids[:510], end]]
  # The context makes room for the question and the choice.
  choices = [ChoiceExample('0', long, short, (short, long, ''), 0)]
  features = kinds.encode(CHOICE, choices, tokenizer, 64, form='gpt')
  (asked,) = tokenizer.encode_batch([f' {short}'])
  assert rows(features) == [
    [end, *ids[: 61 - len(asked) - len(few)], *asked, end, *few, end],
    [end, *ids[: 31 - len(asked)], *asked, end, *ids[:30], end],
    [end, *ids[: 61 - len(asked)], *asked, end, end],
  ]
  assert features.truncated == 1


def test_texts_apart_in_whole_words():
  examples = [
    TextExample('0', ("A dog didn't run", 'two cats'), 'yes'),
    TextExample('1', ('the hill', 'a ' * 9), 'no'),
  ]
  features = kinds.encode(PAIR, examples, None, 6, form='words')
  assert features.num_rows == 2
  assert [[features.words[i] for i in row] for row in rows(features)] == [
    ['A', 'dog', 'didn', "'t", 'run'],
    ['two', 'cats'],
    ['the', 'hill'],
    ['a'] * 6,
  ]
  assert features.truncated == 1 and features.most_lost == 3
  assert features.characters.shape == (len(features.words), 50)
  assert features.labels.tolist() == [1, 0]
  spaced = kinds.encode(PAIR, examples, None, 6, form='words', split='spaces')
  assert [spaced.words[i] for i in rows(spaced)[0]] == examples[0].texts[
    0
  ].split()


def test_choices_apart_in_whole_words():
  example = ChoiceExample('0', 'a dog', 'it', ('ran', 'saw cats', 'sat'), 1)
  features = kinds.encode(CHOICE, [example], None, 9, form='words')
  assert features.num_rows == 6
  assert [
    ' '.join(features.words[i] for i in row) for row in rows(features)
  ] == ['a dog', 'it ran', 'a dog', 'it saw cats', 'a dog', 'it sat']


def test_a_gpt_reads_pieces_of_a_bert(wordpiece):
  example = TextExample('0', ('a dog', 'cats ran'), 'yes')
  features = kinds.encode(PAIR, [example], wordpiece, 16, form='gpt')
  dog, cats = wordpiece.encode_batch(example.texts)
  cls, sep = wordpiece.cls_id, wordpiece.sep_id
  assert rows(features) == [[cls, *dog, sep, *cats, sep]]


def test_refusals(wordpiece):
  example = TextExample('q7', ('dog',), 'maybe')
  with pytest.raises(ValueError, match="example q7: found the label 'maybe'"):
    kinds.encode(TEXT, [example], wordpiece, 16)
  with pytest.raises(ValueError, match='max_length is 4'):
    kinds.encode(TEXT, [], wordpiece, 4)
  with pytest.raises(ValueError, match=r'bert take .* \[MASK\], this tok'):
    kinds.encode(TEXT, [], trained('train:bytebpe:300'), 16)
  with pytest.raises(
    ValueError, match='gpt take pieces: WordPiece or a byte-p'
  ):
    kinds.encode(TEXT, [], trained('train:words:300'), 16, form='gpt')
  with pytest.raises(ValueError, match="form 'lstm': expected one of bert"):
    kinds.encode(TEXT, [], wordpiece, 16, form='lstm')
  span = dataclasses.replace(TEXT, kind='span')
  with pytest.raises(ValueError, match='task text: the form of gpt has no'):
    kinds.encode(span, [], trained('train:bytebpe:300'), 16, form='gpt')
  two = [ChoiceExample('c1', 'a', '', ('b', 'c'), 0)]
  with pytest.raises(ValueError, match='example c1: found 2 choices, expected'):
    kinds.encode(CHOICE, two, wordpiece, 16)


def long_rows(wordpiece, form, long_text, task=TEXT, **options):
  """Rows of a text of 12 words, of two words, and their features."""
  texts = [' '.join(WORDS), 'a dog'] if task is TEXT else []
  examples = [
    TextExample(str(n), (text,), LABELS[n]) for n, text in enumerate(texts)
  ] or [TextExample('0', (' '.join(WORDS), 'a dog'), 'yes')]
  tokenizer = wordpiece if form == 'bert' else None
  return kinds.encode(
    task, examples, tokenizer, 10, form=form, long_text=long_text, **options
  )


def test_what_a_long_text_keeps(wordpiece):
  ids = list(wordpiece.encode_batch([' '.join(WORDS)])[0])
  first, last = wordpiece.cls_id, wordpiece.sep_id
  expected = {
    'head': ids[:8],
    'tail': ids[-8:],
    'both': ids[:2] + ids[-6:],  # a quarter and the rest
  }
  for long_text, kept in expected.items():
    features = long_rows(wordpiece, 'bert', long_text)
    assert rows(features)[0] == [first, *kept, last]
    assert len(rows(features)[1]) == 4
    assert features.truncated == 1
  pair = long_rows(wordpiece, 'bert', 'tail', PAIR)
  short = list(wordpiece.encode_batch(['a dog'])[0])
  room = 7 - len(short)
  assert rows(pair) == [[first, *ids[-room:], last, *short, last]]


def test_both_ends_have_the_shares_of_the_paper():
  """Sun et al. 2019 keep 128 and 382 tokens of 510."""
  kept = framing._keep(np.arange(1000), 510, 'both')
  assert kept.tolist() == [*range(128), *range(618, 1000)]


def test_a_long_text_in_windows(wordpiece):
  ids = list(wordpiece.encode_batch([' '.join(WORDS)])[0])
  features = long_rows(wordpiece, 'bert', 'windows', doc_stride=5)
  starts = range(0, len(ids) - 8 + 5, 5)
  first, last = wordpiece.cls_id, wordpiece.sep_id
  assert len(starts) > 1
  assert rows(features)[:-1] == [[first, *ids[a : a + 8], last] for a in starts]
  count = len(starts)
  assert features.examples.tolist() == [0] * count + [1]
  assert features.labels.tolist() == [0] * count + [1]
  assert features.label_mask.all() and features.truncated == 0
  words = long_rows(None, 'words', 'windows', doc_stride=10)
  assert np.diff(words.offsets).tolist() == [10, 3, 2]
  assert words.examples.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
  ('task', 'long_text', 'message'),
  [
    (TEXT, 'middle', 'expected one of head, tail, both, windows'),
    (CHOICE, 'tail', "task choice is of kind choice, expected 'head'"),
    (PAIR, 'windows', 'task pair has 2 texts, expected one'),
  ],
)
def test_wrong_ways_with_long_texts_are_refused(
  task, long_text, message, wordpiece
):
  with pytest.raises(ValueError, match=f'task.long_text=.*{message}'):
    kinds.encode(task, [], wordpiece, 10, long_text=long_text)
