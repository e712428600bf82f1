"""What a model reads of an example: its texts with symbols round them.

BERT's forms are those of google-research/bert (run_classifier.py, run_squad.py)
and of Devlin et al. 2018, sections 4 and 5.3; GPT's are those of Radford et al.
2018, figure 1, cut as finetune-transformer-lm cuts. ELMo reads BERT's, of whole
words.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from data.inputs import span_windows, word_windows
from data.inputs.features import Features, Symbols, encode_distinct, flatten
from data.inputs.word_numbers import WordNumbers
from data.tasks.examples import ChoiceExample, Example, Task, TextExample
from data.vocabulary.tokenization import BPE, ByteBPE, Tokenizer, WordPiece

FORMS = ('bert', 'gpt', 'elmo')
# Symbols of a pair, and a token of each text.
MIN_LENGTH = 5


def encode(
  task: Task,
  examples: Sequence[Example],
  tokenizer: Tokenizer | None,
  max_length: int,
  *,
  form: str = 'bert',
  at_last: bool | None = None,
  document_context: bool = False,
  doc_stride: int = 128,
  max_query: int = 64,
) -> Features:
  """Turns examples into rows of tokens.

  'bert': [CLS] A [SEP], or [CLS] A [SEP] B [SEP]. A pair that is too long loses
  tokens from the end of the longer text. Of a choice A is the context, B
  question and choice. A word's tag is at its first piece. Of a span A is the
  question, B a window of the context.

  'gpt': start A classify, or start A delimiter B classify; of a pair neither of
  whose texts comes first both orders, each a row. A text that is too long loses
  its end: of two each may have half of the row. Of a choice A is the context
  and the question, B the choice, which may have half; the context's end makes
  room for the others. A word's tag is at its last piece, the first that knows
  the whole word. No spans.

  'elmo': as 'bert', of whole words: <S> A </S>, or <S> A </S> B </S>. Those of
  a text are found as `words.split_words` does by marks. No spans.

  A text without tokens leaves its place empty. A word without tokens is
  unknown.

  Args:
    task: what the examples are of.
    examples: of its kind; with or without labels.
    tokenizer: WordPiece for 'bert'; BPE or ByteBPE, which has one symbol for
      all three, for 'gpt'; None for 'elmo'.
    max_length: tokens of a row, symbols included.
    form: one of `FORMS`.
    at_last: a word's tag is at its last piece, not at its first; None: as the
      form has it.
    document_context: fill a sentence's row with the words before and after it
      in its document; tagging only. A sentence that is too long for a row has
      several in any case, with as many words of both sides.
    doc_stride: tokens from the start of a window to that of the next; spans
      only.
    max_query: tokens of a question at most; spans only.

  Raises:
    ValueError: if a label is not the task's; names the example. If the
      tokenizer, the form and the task do not go together, or `max_length`
      leaves no room.
  """
  if form == 'elmo':
    tokenizer = words = WordNumbers()
    symbols = Symbols(words.begin_id, words.end_id, words.end_id)
  else:
    symbols = symbols_of(tokenizer, form)
  if max_length < MIN_LENGTH:
    raise ValueError(
      f'max_length is {max_length}; a row of two texts has {MIN_LENGTH} tokens '
      'at least'
    )
  if task.kind == 'span':
    if form != 'bert':
      raise ValueError(
        f'task {task.name}: the form of {form} has no answer as a span of the '
        'text; use a BERT'
      )
    return span_windows.encode(
      examples, tokenizer, symbols, max_length, doc_stride, max_query
    )
  if task.kind == 'tagging':
    features = word_windows.encode(
      task,
      examples,
      tokenizer,
      symbols,
      max_length,
      at_last=form == 'gpt' if at_last is None else at_last,
      document_context=document_context,
    )
  else:
    encode_rows = _encode_choices if task.kind == 'choice' else _encode_texts
    features = encode_rows(task, examples, tokenizer, symbols, max_length, form)
  if form == 'elmo':
    return dataclasses.replace(features, characters=words.characters())
  return features


def symbols_of(tokenizer: Tokenizer, form: str) -> Symbols:
  """Returns the ids of what stands round texts.

  Raises:
    ValueError: if the form is unknown, or not that of the tokenizer.
  """
  if form not in FORMS:
    raise ValueError(f'form {form!r}: expected one of {", ".join(FORMS)}')
  if form == 'bert' and isinstance(tokenizer, WordPiece):
    return Symbols(tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id)
  if form == 'gpt' and isinstance(tokenizer, BPE):
    return Symbols(
      tokenizer.start_id, tokenizer.delimiter_id, tokenizer.classify_id
    )
  if form == 'gpt' and isinstance(tokenizer, ByteBPE):
    return Symbols(*[tokenizer.end_of_text_id] * 3)
  expected = {'bert': 'WordPiece', 'gpt': 'a byte-pair encoding'}[form]
  raise ValueError(
    f'inputs of the form of {form} take {expected}, this tokenizer is '
    f'{tokenizer.description}'
  )


def _encode_texts(
  task: Task,
  examples: Sequence[TextExample],
  tokenizer: Tokenizer,
  symbols: Symbols,
  max_length: int,
  form: str,
) -> Features:
  """Frames one text or two, with a class or a score."""
  ids = encode_distinct(tokenizer, (text for e in examples for text in e.texts))
  both_orders = form == 'gpt' and task.symmetric and task.num_texts == 2
  rows, lost = _Rows(symbols, form), np.zeros(len(examples), np.int64)
  for number, example in enumerate(examples):
    texts = [ids[text] for text in example.texts]
    cut = _cut(texts, max_length, form)
    lost[number] = sum(map(len, texts)) - sum(map(len, cut))
    rows.add(*cut)
    if both_orders:
      rows.add(*reversed(cut))
  if task.kind == 'regression':
    labels = np.array([e.label or 0.0 for e in examples], np.float32)
  else:
    numbers = {label: number for number, label in enumerate(task.labels)}
    labels = [
      0 if e.label is None else _number(numbers, e.label, e.id)
      for e in examples
    ]
    labels = np.array(labels, np.int32)
  return rows.features(task.kind, 1 + both_orders, examples, labels, lost)


def _encode_choices(
  task: Task,
  examples: Sequence[ChoiceExample],
  tokenizer: Tokenizer,
  symbols: Symbols,
  max_length: int,
  form: str,
) -> Features:
  """Frames a context with each of several choices."""
  for example in examples:
    if len(example.choices) != task.num_choices:
      raise ValueError(
        f'example {example.id}: found {len(example.choices)} choices, expected '
        f'{task.num_choices}'
      )
  frame = _after_context if form == 'gpt' else _after_question
  framed = [[frame(e, choice) for choice in e.choices] for e in examples]
  ids = encode_distinct(
    tokenizer, (text for e in framed for c in e for text in c)
  )
  rows, lost = _Rows(symbols, form), np.zeros(len(examples), np.int64)
  for number, choices in enumerate(framed):
    for texts in choices:
      texts = [ids[text] for text in texts]
      if form == 'gpt':
        cut = _cut_context(*texts, room=max_length - 3)
      else:
        cut = _cut(texts, max_length, form)
      lost[number] += sum(map(len, texts)) - sum(map(len, cut))
      rows.add(*cut)
  labels = np.array([e.label or 0 for e in examples], np.int32)
  return rows.features(task.kind, task.num_choices, examples, labels, lost)


def _after_question(example: ChoiceExample, choice: str) -> tuple[str, str]:
  question = example.question
  return example.context, f'{question} {choice}' if question else choice


def _after_context(example: ChoiceExample, choice: str) -> tuple[str, str, str]:
  # The space is the first piece's own in a byte-level BPE, nothing elsewhere.
  question = example.question and f' {example.question}'
  return example.context, question, choice


def _cut(
  texts: Sequence[np.ndarray], max_length: int, form: str
) -> Sequence[np.ndarray]:
  """Cuts one text or two so that a row holds them with their symbols."""
  room = max_length - len(texts) - 1
  if form == 'gpt':
    # 254 at 512 (finetune-transformer-lm, train.py); one text alone may have
    # the whole row.
    return [text[: room // len(texts)] for text in texts]
  if len(texts) == 1:
    return [texts[0][:room]]
  first, second = longest_first(*map(len, texts), room)
  return [texts[0][:first], texts[1][:second]]


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
  """Returns what is left of two lengths when the longer one always yields.

  Of two that must both be cut to an odd sum the longer one keeps the token
  more, the second if they are equal, as Hugging Face's tokenizers have it; the
  release leaves it to the first text always.
  """
  if first + second <= room:
    return first, second
  shorter = min(first, second, room // 2)
  if first > second:
    return room - shorter, shorter
  return shorter, room - shorter


def _cut_context(
  context: np.ndarray, question: np.ndarray, choice: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray]:
  """Cuts the context so that question and choice stay."""
  choice = choice[: room // 2]
  question = question[: room - len(choice)]
  context = context[: room - len(choice) - len(question)]
  return np.concatenate([context, question]), choice


def _number(numbers: dict[str, int], label: object, example: str) -> int:
  try:
    return numbers[label]
  except KeyError:
    raise ValueError(
      f'example {example}: found label {label!r}, expected one of '
      f'{", ".join(numbers)}'
    ) from None


class _Rows:
  """Rows as they come to be, one after the other."""

  def __init__(self, symbols: Symbols, form: str) -> None:
    self._symbols = [np.array([i], np.int32) for i in symbols]
    self._has_types = form == 'bert'
    self._rows: list[tuple[np.ndarray, ...]] = []
    self._second_starts: list[int] = []

  def add(self, a: np.ndarray, b: np.ndarray | None = None) -> None:
    first, between, last = self._symbols
    if b is None:
      self._rows.append((first, a, last))
    else:
      self._rows.append((first, a, between, b, last))
    end = sum(map(len, self._rows[-1]))
    two = b is not None and self._has_types
    self._second_starts.append(len(a) + 2 if two else end)

  def features(
    self,
    kind: str,
    num_rows: int,
    examples: Sequence[Example],
    labels: np.ndarray,
    lost: np.ndarray,
  ) -> Features:
    tokens, offsets = flatten(self._rows)
    return Features(
      kind=kind,
      num_rows=num_rows,
      tokens=tokens,
      offsets=offsets,
      second_starts=np.array(self._second_starts, np.int32),
      labels=labels,
      label_mask=np.array([e.label is not None for e in examples], bool),
      examples=np.arange(len(examples), dtype=np.int32),
      truncated=int(np.count_nonzero(lost)),
      tokens_lost=int(lost.sum()),
    )
