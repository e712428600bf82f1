"""Questions with windows of the texts that hold their answers (run_squad.py).

Windows start every `doc_stride` tokens, and an answer is read only from the
window with most context. Answers are located by the characters of the text.
ELMo's task models read the question in a row of its own, and have no answer
"none" (AllenNLP's and document-qa's readers of SQuAD 1.1).
"""

from collections.abc import Iterable, Sequence

import numpy as np

from data.inputs import windows
from data.inputs.features import Features, Framing, encode_distinct, flatten
from data.inputs.word_numbers import WordNumbers
from data.tasks.examples import SpanExample, Task
from data.vocabulary.tokenization import EncoderTokenizer

_CHUNK = 2_000  # texts whose ids and places are Python's objects at one time


def encode(
  task: Task, examples: Sequence[SpanExample], framing: Framing
) -> Features:
  """Returns the windows of all questions; see `framing.encode`.

  A window without the whole answer has the label (0, 0), of [CLS]; with texts
  apart it has (-1, -1), of no word.
  """
  apart = framing.form.apart
  if not (framing.form.token_types or apart):
    raise ValueError(
      f'task {task.name}: the form of {framing.form.name} has no answer as a'
      " span of the text; use a BERT, or one of ELMo's task models for spans"
    )
  unanswerable = next((e.id for e in examples if e.has_no_answer), None)
  if apart and unanswerable is not None:
    raise ValueError(
      f'task {task.name}: the question {unanswerable!r} has no answer, expected'
      " one of each: ELMo's task models always find one; use a BERT"
    )
  max_length = framing.max_length
  max_query = min(framing.max_query, max_length) if apart else framing.max_query
  if framing.doc_stride < 1:
    raise ValueError(
      f'doc_stride is {framing.doc_stride}: windows would not advance'
    )
  contexts = encode_contexts(framing.tokenizer, (e.context for e in examples))
  questions = encode_distinct(framing.tokenizer, (e.question for e in examples))
  longest = min(max(map(len, questions.values()), default=0), max_query)
  symbols = len(framing.symbols.ids)
  if not apart and max_length < longest + symbols + 1:
    raise ValueError(
      f'max_length is {max_length}: a question of {longest} tokens and '
      f'{symbols} symbols leave no room for its text'
    )
  first, between, last = framing.symbols.arrays()
  if apart:
    first = between = last = first[:0]
  most = len(first) + longest + len(between)
  nowhere = np.full((most + len(last), 2), -1, np.int32)
  never = np.zeros(most + len(last), bool)
  rows, places, bests, second_starts, labels, numbers = [], [], [], [], [], []
  lost = []

  def add(found: list, before: tuple, window: tuple) -> None:
    """Adds the parts before a window and its own, as one row or as two."""
    found += [before, window] if apart else [before + window]

  for number, example in enumerate(examples):
    ids, spans = contexts[example.context]
    question = questions[example.question]
    lost.append(max(len(question) - max_query, 0))
    question = question[:max_query]
    answer = None
    if example.answers:
      text, start = example.answers[0]
      answer = locate(spans, start, start + len(text))
    before = len(first) + len(question) + len(between)
    # The window's place in its row.
    shift = 0 if apart else before
    bounds = windows.cut(
      len(ids), max_length - shift - len(last), framing.doc_stride
    )
    owners = windows.owners(bounds, len(ids))
    for window, (begin, end) in enumerate(bounds):
      add(rows, (first, question, between), (ids[begin:end], last))
      add(
        places,
        (nowhere[:before],),
        (spans[begin:end], nowhere[: len(last)]),
      )
      add(
        bests,
        (never[:before],),
        (owners[begin:end] == window, never[: len(last)]),
      )
      second_starts += [before, end - begin] if apart else [shift]
      numbers.append(number)
      if answer and begin <= answer[0] and answer[1] < end:
        labels.append([shift + i - begin for i in answer])
      else:
        labels.append((-1, -1) if apart else (0, 0))
  tokens, offsets = flatten(rows)
  labelled = np.array([e.is_labelled for e in examples], bool)
  return Features(
    num_rows=2 if apart else 1,
    tokens=tokens,
    offsets=offsets,
    second_starts=np.array(second_starts, np.int32),
    labels=np.array(labels, np.int32).reshape(-1, 2),
    label_mask=labelled[numbers],
    examples=np.array(numbers, np.int32),
    token_spans=flatten(places)[0],
    max_context=flatten(bests)[0],
    truncated=np.count_nonzero(lost),
    most_lost=max(lost, default=0),
  )


def encode_contexts(
  tokenizer: EncoderTokenizer | WordNumbers, texts: Iterable[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Returns text -> ids int32 [T], characters [begin, end) int32 [T, 2]."""
  texts = list(dict.fromkeys(texts))
  encoded = {}
  for first in range(0, len(texts), _CHUNK):
    chunk = texts[first : first + _CHUNK]
    for text, (ids, spans) in zip(
      chunk, tokenizer.encode_with_spans(chunk), strict=True
    ):
      spans = np.array(spans, np.int32).reshape(-1, 2)
      encoded[text] = np.array(ids, np.int32), spans
  return encoded


def locate(spans: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
  """Returns the first and the last token of the characters [start, end).

  The first begins by `start`, the last ends at or after `end`; None otherwise.
  """
  first = int(np.searchsorted(spans[:, 0], start, side='right')) - 1
  last = int(np.searchsorted(spans[:, 1], end, side='left'))
  if first < 0 or last == len(spans):
    return None
  return first, last
