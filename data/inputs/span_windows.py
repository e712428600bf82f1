"""Questions and windows of the texts that they are about.

As google-research/bert has it (run_squad.py): windows of a text start every so
many tokens, and of the windows that show a token the one with most on both of
its sides speaks for it. Answers are found, and given back, by the characters of
the text.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from data.inputs import max_context
from data.inputs.features import Features, Symbols, encode_distinct, flatten
from data.tasks.examples import SpanExample
from data.vocabulary.tokenization import WordPiece

_CHUNK = 2_000  # texts whose ids and places are Python's objects at one time


def encode(
  examples: Sequence[SpanExample],
  tokenizer: WordPiece,
  symbols: Symbols,
  max_length: int,
  doc_stride: int,
  max_query: int,
) -> Features:
  """Returns the windows of all questions; see `framing.encode`.

  Raises:
    ValueError: if a row has no room for the longest question and a token of the
      text.
  """
  if doc_stride < 1:
    raise ValueError(f'doc_stride is {doc_stride}: windows would not advance')
  contexts = encode_contexts(tokenizer, (e.context for e in examples))
  questions = encode_distinct(tokenizer, (e.question for e in examples))
  longest = min(max(map(len, questions.values()), default=0), max_query)
  if max_length < longest + 4:
    raise ValueError(
      f'max_length is {max_length}: a question of {longest} tokens and three '
      'symbols leave no room for the text that it is about'
    )
  first, between, last = (np.array([i], np.int32) for i in symbols)
  nowhere = np.full((longest + 2, 2), -1, np.int32)
  never = np.zeros(longest + 2, bool)
  rows, places, bests, second_starts, labels, numbers = [], [], [], [], [], []
  lost = np.zeros(len(examples), np.int64)
  inexact = 0
  for number, example in enumerate(examples):
    ids, spans = contexts[example.context]
    question = questions[example.question]
    lost[number] = max(0, len(question) - max_query)
    question = question[:max_query]
    answer = None
    if example.answers:
      text, start = example.answers[0]
      answer = locate(spans, start, start + len(text))
      inexact += not is_exact(spans, answer, start, start + len(text))
    shift = len(question) + 2
    windows = _windows(len(ids), max_length - shift - 1, doc_stride)
    owners = max_context.owners(windows, len(ids))
    for window, (begin, end) in enumerate(windows):
      rows.append((first, question, between, ids[begin:end], last))
      places.append((nowhere[:shift], spans[begin:end], nowhere[:1]))
      bests.append((never[:shift], owners[begin:end] == window, never[:1]))
      second_starts.append(shift)
      numbers.append(number)
      if answer and begin <= answer[0] and answer[1] < end:
        labels.append([shift + i - begin for i in answer])
      else:
        labels.append((0, 0))
  tokens, offsets = flatten(rows)
  told = np.array([e.is_labelled for e in examples], bool)
  return Features(
    kind='span',
    num_rows=1,
    tokens=tokens,
    offsets=offsets,
    second_starts=np.array(second_starts, np.int32),
    labels=np.array(labels, np.int32).reshape(-1, 2),
    label_mask=told[numbers],
    examples=np.array(numbers, np.int32),
    token_spans=flatten(places)[0],
    max_context=flatten(bests)[0],
    truncated=int(np.count_nonzero(lost)),
    tokens_lost=int(lost.sum()),
    inexact=inexact,
  )


def encode_contexts(
  tokenizer: WordPiece, texts: Iterable[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Encodes each different text once.

  Returns:
    Of each its ids, int32 [T], and where they are from, int32 [T, 2]: the first
    character and the one after the last.
  """
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
  """Returns the first and the last token of a stretch of a text.

  Args:
    spans: int32 [T, 2], see `encode_contexts`.
    start: the first character.
    end: the one after the last.

  Returns:
    The last token that does not begin after the stretch does, and the first
    that does not end before it; None if that is none.
  """
  first = int(np.searchsorted(spans[:, 0], start, side='right')) - 1
  last = int(np.searchsorted(spans[:, 1], end, side='left'))
  if first < 0 or last == len(spans):
    return None
  return first, last


def is_exact(
  spans: np.ndarray, tokens: tuple[int, int] | None, start: int, end: int
) -> bool:
  """Tells whether tokens that `locate` found have a stretch and no more."""
  return tokens is not None and bool(
    spans[tokens[0], 0] == start and spans[tokens[1], 1] == end
  )


def _windows(length: int, room: int, stride: int) -> list[tuple[int, int]]:
  """Returns begin and end of each window; of an empty text there is one."""
  windows, begin = [], 0
  while True:
    end = min(begin + room, length)
    windows.append((begin, end))
    if end == length:
      return windows
    begin += min(stride, room)
