"""Windows of SQuAD's texts, as Hugging Face makes them, and their answers."""

import dataclasses

import numpy as np
import pytest
import qa_windows
import squad_json

from data.inputs import span_windows, windows
from data.inputs.word_numbers import WordNumbers
from data.scoring import kinds
from data.tasks.examples import SpanExample, Task

TASK = Task('squad', 'SQuAD', 'span', {}, None)


@pytest.fixture(scope='module')
def training(sesame_data):
  return squad_json.read(sesame_data / 'squad/train-v1.1.json')


@pytest.mark.parametrize('max_length,doc_stride', [(384, 128), (96, 16)])
def test_windows_are_those_of_hugging_face(
  training, minilm, hugging_face, max_length, doc_stride
):
  examples = training[:: 400 if max_length > 300 else 900]
  features = kinds.encode(
    TASK, examples, minilm, max_length, doc_stride=doc_stride
  )
  i = 0
  for number, example in enumerate(examples):
    for ids, spans, label in qa_windows.windows_of(
      hugging_face, example, max_length, doc_stride
    ):
      place = features.place(i)
      assert features.examples[i] == number
      assert features.tokens[place].tolist() == ids
      assert features.token_spans[place].tolist() == spans
      assert features.labels[i].tolist() == label
      i += 1
  assert i == len(features) > len(examples)
  assert features.label_mask.all() and features.truncated == 0


def owner(windows, place):
  """run_squad.py, `_check_is_max_context`: the window that speaks for it."""
  best, chosen = None, None
  for number, (begin, end) in enumerate(windows):
    if begin <= place < end:
      score = min(place - begin, end - 1 - place) + 0.01 * (end - begin)
      if best is None or score > best:
        best, chosen = score, number
  return chosen


@pytest.mark.parametrize('room,stride', [(9, 4), (8, 8), (8, 20), (20, 3)])
@pytest.mark.parametrize('length', [0, 1, 8, 9, 21, 40])
def test_windows_cover_the_text(length, room, stride):
  bounds = windows.cut(length, room, stride)
  assert bounds[0][0] == 0 and bounds[-1][1] == length
  for (a, b), (c, _) in zip(bounds, bounds[1:], strict=False):
    assert c == a + min(stride, room) and b == a + room >= c
  owners = windows.owners(bounds, length).tolist()
  assert owners == [owner(bounds, place) for place in range(length)]


def test_each_token_is_best_in_one_window(training, minilm):
  examples = training[::3000]
  features = kinds.encode(TASK, examples, minilm, 64, doc_stride=16)
  contexts = span_windows.encode_contexts(minilm, [e.context for e in examples])
  for number, example in enumerate(examples):
    numbers = np.flatnonzero(features.examples == number)
    spans = np.concatenate(
      [
        features.token_spans[features.place(i)][
          features.max_context[features.place(i)]
        ]
        for i in numbers
      ]
    )
    expected = contexts[example.context][1]
    assert sorted(spans.tolist()) == expected.tolist()


@pytest.mark.parametrize(
  'file,answers,inexact',
  [('dev-v1.1.json', 18_015, 56), ('dev-v2.0.json', 10_279, 21)],
)
def test_tokens_give_back_the_answers(
  sesame_data, minilm, file, answers, inexact
):
  """The answers of which tokens have more are known by their number."""
  examples = squad_json.read(sesame_data / 'squad' / file)
  contexts = span_windows.encode_contexts(minilm, [e.context for e in examples])
  count, wider = 0, []
  for example in examples:
    spans = contexts[example.context][1]
    for text, start in set(example.answers):
      end = start + len(text)
      assert example.context[start:end] == text
      first, last = span_windows.locate(spans, start, end)
      begin, stop = spans[first, 0], spans[last, 1]
      assert begin <= start and end <= stop
      count += 1
      exact = (begin, stop) == (start, end)
      assert exact == (example.context[begin:stop] == text)
      if not exact:
        wider.append((text, example.context[begin:stop]))
  assert (count, len(wider)) == (answers, inexact), wider[:20]


def test_answers_out_of_sight(minilm):
  context = 'one two three four five six seven eight nine ten'
  example = SpanExample('q', 'which?', context, (('nine', 40),))
  assert context[40:44] == 'nine'
  features = kinds.encode(
    TASK, [example], minilm, 10, doc_stride=3, max_query=5
  )
  # [CLS] which ? [SEP], 5 words, [SEP]
  words = [
    [context[a:b] for a, b in features.token_spans[features.place(i)] if b > 0]
    for i in range(len(features))
  ]
  assert [(w[0], w[-1]) for w in words] == [
    ('one', 'five'),
    ('four', 'eight'),
    ('seven', 'ten'),
  ]
  assert features.labels.tolist() == [[0, 0], [0, 0], [6, 6]]
  assert features.second_starts.tolist() == [4, 4, 4]
  assert features.examples.tolist() == [0, 0, 0]
  assert features.label_mask.all()
  untold = dataclasses.replace(example, answers=(), is_labelled=False)
  none = dataclasses.replace(example, answers=())
  features = kinds.encode(TASK, [untold, none], minilm, 64, max_query=9)
  assert features.labels.tolist() == [[0, 0], [0, 0]]
  assert features.label_mask.tolist() == [False, True]


def test_questions_are_cut(minilm):
  example = SpanExample('q', 'who ' * 70, 'one two', (('two', 4),))
  features = kinds.encode(TASK, [example], minilm, 128)
  assert features.second_starts.tolist() == [66]
  assert features.truncated == 1 and features.most_lost == 6
  part = dataclasses.replace(example, answers=(('wo', 5),))
  features = kinds.encode(TASK, [part, example], minilm, 128)
  assert features.labels.tolist() == [[67, 67]] * 2
  with pytest.raises(ValueError, match='is 67: a question of 64 tokens'):
    kinds.encode(TASK, [example], minilm, 67)
  with pytest.raises(ValueError, match='doc_stride is 0'):
    kinds.encode(TASK, [example], minilm, 128, doc_stride=0)


@pytest.mark.parametrize('split,inexact', [('marks', 83), ('spaces', 4_988)])
def test_words_give_back_the_answers(sesame_data, split, inexact):
  """The first answers of which words have more are known by their number."""
  examples = squad_json.read(sesame_data / 'squad/dev-v1.1.json')
  features = kinds.encode(TASK, examples, None, 1024, form='words', split=split)
  assert features.num_rows == 2 and len(features) == len(examples)
  assert features.label_mask.all() and features.truncated == 0
  wider = []
  for i, example in enumerate(examples):
    place = features.place(i, 1)
    spans, (first, last) = features.token_spans[place], features.labels[i]
    begin, stop = spans[first, 0], spans[last, 1]
    text, start = example.answers[0]
    assert begin <= start and start + len(text) <= stop
    if (begin, stop) != (start, start + len(text)):
      wider.append((text, example.context[begin:stop]))
  assert len(wider) == inexact, wider[:20]


@pytest.mark.parametrize('split', ['marks', 'spaces'])
def test_rows_of_words(training, split):
  examples = training[::1500]
  features = kinds.encode(
    TASK,
    examples,
    None,
    64,
    form='words',
    split=split,
    doc_stride=16,
    max_query=9,
  )
  assert len(features) > len(examples) and features.truncated > 5
  assert features.lengths.max() == 64
  assert (features.second_starts == np.diff(features.offsets)).all()
  numbers, words = WordNumbers(split), np.array(features.words)
  for number, example in enumerate(examples):
    ((ids, spans),) = numbers.encode_with_spans([example.context])
    ((asked, _),) = numbers.encode_with_spans([example.question])
    bounds = windows.cut(len(ids), 64, 16)
    mine = np.flatnonzero(features.examples == number)
    answer = span_windows.locate(
      np.array(spans),
      *np.cumsum([example.answers[0][1], len(example.answers[0][0])]),
    )
    best = []
    for i, (begin, end) in zip(mine, bounds, strict=True):
      question, text = features.place(i), features.place(i, 1)
      read = [numbers.words[k] for k in asked[:9]]
      assert words[features.tokens[question]].tolist() == read
      assert (features.token_spans[question] == -1).all()
      assert not features.max_context[question].any()
      read = [numbers.words[k] for k in ids[begin:end]]
      assert words[features.tokens[text]].tolist() == read
      found = features.token_spans[text]
      assert found.tolist() == [list(span) for span in spans[begin:end]]
      assert read == [example.context[a:b] for a, b in found]
      label = [-1, -1]
      if begin <= answer[0] and answer[1] < end:
        label = [answer[0] - begin, answer[1] - begin]
      assert features.labels[i].tolist() == label
      best += found[features.max_context[text]].tolist()
    assert sorted(best) == [list(span) for span in spans]
  assert (features.labels < 0).any() and (features.labels > 0).any()


def test_words_need_an_answer():
  example = SpanExample('q', 'which one?', 'one two', (('two', 4),))
  untold = dataclasses.replace(example, answers=(), is_labelled=False)
  features = kinds.encode(TASK, [example, untold], None, 8, form='words')
  assert features.labels.tolist() == [[1, 1], [-1, -1]]
  assert features.label_mask.tolist() == [True, False]
  # A row of a question is as long as a row may be.
  features = kinds.encode(
    TASK,
    [dataclasses.replace(example, question='a ' * 9)],
    None,
    8,
    form='words',
  )
  assert np.diff(features.offsets).tolist() == [8, 2]
  assert features.truncated == 1 and features.most_lost == 1
  none = dataclasses.replace(example, id='q7', answers=())
  with pytest.raises(ValueError, match="'q7' has no answer, expected one"):
    kinds.encode(TASK, [example, none], None, 8, form='words')
  with pytest.raises(ValueError, match='the form of elmo has no answer'):
    kinds.encode(TASK, [example], None, 8, form='elmo')
