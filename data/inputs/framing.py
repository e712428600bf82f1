"""The rows of tokens that a model reads of an example.

BERT's rows are from run_classifier.py, run_squad.py and Devlin et al. 2018,
sections 4 and 5.3; GPT's from Radford et al. 2018, figure 1, cut as in
finetune-transformer-lm. ELMo reads BERT's rows in whole words, and ELMo's task
models read each text alone.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from data.inputs import windows
from data.inputs.features import (
  Features,
  Form,
  Framing,
  Symbols,
  encode_distinct,
  flatten,
  label_numbers,
)
from data.inputs.word_numbers import WordNumbers
from data.tasks.examples import ChoiceExample, Example, Task, TextExample
from data.vocabulary.tokenization import EncoderTokenizer, Tokenizer

FORMS = {
  'bert': Form('bert', token_types=True),
  'gpt': Form('gpt', left_to_right=True),
  'elmo': Form('elmo'),
  'words': Form('words', apart=True),
}
# Symbols of a pair of most tokenizers, and a token of each text.
MIN_LENGTH = 5
# What is kept of a text that is too long for a row.
LONG_TEXTS = ('head', 'tail', 'both', 'windows')
_LONG_KINDS = ('classification', 'regression')
_HEAD_SHARE = 128 / 510  # Sun et al. 2019, section 5.3.1
Texts = Sequence[np.ndarray]  # ids of the texts of a row
# (task, examples, framing) -> rows, for one kind of task.
Frame = Callable[[Task, Sequence[Example], Framing], Features]


def encode(
  frame: Frame,
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
  split: str = 'marks',
  bioul: bool = False,
  long_text: str = 'head',
) -> Features:
  """Turns examples into rows of at most `max_length` tokens, symbols included.

  'bert': [CLS] A [SEP], or [CLS] A [SEP] B [SEP], of some tokenizers with two
  [SEP] between. A pair that is too long loses
  tokens from the end of the longer text. Of a choice A is the context, B
  question and choice. A word's tag is at its first piece. Of a span A is the
  question, B a window of the context.

  'gpt': start A classify, or start A delimiter B classify; a pair of a
  symmetric task has a row for each order. A text that is too long loses its
  end: each of two may have half of the row. Of a choice A is the context and
  the question, B the choice, which may have half; the context's end makes room
  for question and choice. A word's tag is at its last piece, the first to see
  the whole word. There are no spans.

  'elmo': as 'bert', of whole words: <S> A </S>, or <S> A </S> B </S>. There are
  no spans.

  'words': each text is a row of whole words, without symbols: A, B; of choices
  the context and the first choice, the context and the second, and so on.
  Of a span the question, and a window of the context. `split` says how words of
  a text are found, see `words.split_words`.

  The row of a predicate, whose roles are tags, also shows the predicate's word,
  at most half of the row, in the pieces that it has in the sentence: in 'bert'
  (Shi and Lin 2019) and 'elmo' as B, [CLS] sentence [SEP] predicate [SEP]; in
  'gpt' as A, start predicate delimiter sentence classify, as no word sees a
  later one. The sentence alone has tags. Token types, of 'bert' and 'words',
  are 1 at the predicate in the sentence, which may hold an equal word, and in
  B. There is no `document_context`.

  Of a text with a class or a score that is too long, `long_text` keeps the
  'head'; the 'tail'; of 'both' 128 / 510 of the row from the head and the rest
  from the tail (Sun et al. 2019); or all of it, in 'windows' that start every
  `doc_stride` tokens, each a row with the label of the text.

  `tokenizer` is an encoder's for 'bert'; BPE or ByteBPE, with one symbol for
  all three, for 'gpt'; None for 'elmo' and 'words'. A text without tokens
  leaves its place empty; a word without tokens is unknown. `at_last` puts a
  word's tag at its last piece; None: as above. `document_context`, for tags,
  fills a sentence's row with the words around it in its document; a sentence
  too long for a row always has several rows, with context on both sides. For
  spans, windows start every `doc_stride` tokens, and a question has at most
  `max_query`. `bioul` turns tags into that scheme, see `tag_schemes`.

  Raises ValueError, naming the example, if a label is not the task's; and if
  tokenizer, form and task do not fit together, or `max_length` leaves no room.
  """
  if form not in FORMS:
    raise ValueError(f'form {form!r}: expected one of {", ".join(FORMS)}')
  check_long_text(task, long_text)
  chosen = FORMS[form]
  words = None
  if not (chosen.token_types or chosen.left_to_right):
    tokenizer = words = WordNumbers(split)
    symbols = Symbols(words.begin_id, (words.end_id,), words.end_id)
  else:
    symbols = symbols_of(tokenizer, chosen)
  # Of two texts, a token of each.
  least = max(MIN_LENGTH, len(symbols.ids) + 2)
  if max_length < least:
    raise ValueError(
      f'max_length is {max_length}; a row of two texts has {least} tokens at '
      'least'
    )
  features = frame(
    task,
    examples,
    Framing(
      tokenizer,
      symbols,
      chosen,
      max_length,
      chosen.left_to_right if at_last is None else at_last,
      document_context,
      doc_stride,
      max_query,
      bioul,
      long_text,
    ),
  )
  if words is None:
    return features
  return dataclasses.replace(
    features, words=words.words, characters=words.characters()
  )


def check_long_text(task: Task, long_text: str) -> None:
  """Raises ValueError if a task cannot keep that of its long texts."""
  wrong = f'task.long_text={long_text!r}: task {task.name}'
  if long_text not in LONG_TEXTS:
    raise ValueError(f'{wrong}: expected one of {", ".join(LONG_TEXTS)}')
  if long_text != 'head' and task.kind not in _LONG_KINDS:
    raise ValueError(
      f"{wrong} is of kind {task.kind}, expected 'head': the others are for"
      f' texts of {" and ".join(_LONG_KINDS)}'
    )
  if long_text == 'windows' and task.num_texts > 1:
    raise ValueError(
      f'{wrong} has {task.num_texts} texts, expected one; head, tail and both'
      ' are for pairs, too'
    )


def symbols_of(tokenizer: Tokenizer, form: Form) -> Symbols:
  """Returns the ids of the symbols around texts.

  Raises:
    ValueError: if the form does not fit the tokenizer.
  """
  if isinstance(tokenizer, EncoderTokenizer) and (
    form.token_types or form.left_to_right
  ):
    between = (tokenizer.sep_id,) * tokenizer.separators
    return Symbols(tokenizer.cls_id, between, tokenizer.sep_id)
  if form.left_to_right:
    from data.vocabulary import bpe, byte_bpe  # an encoder reads neither

    if isinstance(tokenizer, bpe.BPE):
      return Symbols(
        tokenizer.start_id, (tokenizer.delimiter_id,), tokenizer.classify_id
      )
    if isinstance(tokenizer, byte_bpe.ByteBPE):
      end = tokenizer.end_of_text_id
      return Symbols(end, (end,), end)
  expected = 'pieces: WordPiece or a byte-pair encoding'
  if form.token_types:
    expected = 'a vocabulary with [CLS] and [MASK]'
  raise ValueError(
    f'inputs of the form of {form.name} take {expected}, this tokenizer is '
    f'{tokenizer.description}'
  )


def classes(
  task: Task, examples: Sequence[TextExample], framing: Framing
) -> Features:
  """Frames one text or two with a class."""
  numbers = {label: number for number, label in enumerate(task.labels)}
  labels = [
    0 if e.label is None else label_numbers(numbers, [e.label], e.id)[0]
    for e in examples
  ]
  return _texts(task, examples, framing, np.array(labels, np.int32))


def scores(
  task: Task, examples: Sequence[TextExample], framing: Framing
) -> Features:
  """Frames one text or two with a score."""
  labels = np.array([e.label or 0.0 for e in examples], np.float32)
  return _texts(task, examples, framing, labels)


def _texts(
  task: Task,
  examples: Sequence[TextExample],
  framing: Framing,
  labels: np.ndarray,
) -> Features:
  both = framing.form.left_to_right and task.symmetric and task.num_texts == 2
  rows = [[e.texts] for e in examples]
  cut = _windows if framing.long_text == 'windows' else _cut
  return _encode_rows(examples, rows, cut, framing, labels, both_orders=both)


def choices(
  task: Task, examples: Sequence[ChoiceExample], framing: Framing
) -> Features:
  """Frames a context with each of several choices."""
  for example in examples:
    if len(example.choices) != task.num_choices:
      raise ValueError(
        f'example {example.id}: found {len(example.choices)} choices, expected '
        f'{task.num_choices}'
      )

  def texts_of(example: ChoiceExample, choice: str) -> tuple[str, ...]:
    question = example.question
    if not framing.form.left_to_right:
      return example.context, f'{question} {choice}' if question else choice
    # In a byte-level BPE the space belongs to the first piece.
    return example.context, question and f' {question}', choice

  rows = [[texts_of(e, choice) for choice in e.choices] for e in examples]
  labels = np.array([e.label or 0 for e in examples], np.int32)
  cut = _cut_context if framing.form.left_to_right else _cut
  return _encode_rows(examples, rows, cut, framing, labels, task.num_choices)


def _encode_rows(
  examples: Sequence[Example],
  rows_of: Sequence[Sequence[Sequence[str]]],
  cut: Callable[[Sequence[np.ndarray], Framing], Sequence[Texts]],
  framing: Framing,
  labels: np.ndarray,
  num_rows: int = 1,
  *,
  both_orders: bool = False,
) -> Features:
  """Encodes each example's rows.

  `cut` fits the ids of the texts of a row into one or more.
  """
  ids = encode_distinct(
    framing.tokenizer, (t for rows in rows_of for texts in rows for t in texts)
  )
  if framing.form.apart and rows_of:
    num_rows *= len(rows_of[0][0])
  first, between, last = framing.symbols.arrays()
  framed, second_starts, numbers = [], [], []
  lost = {}
  for number, rows in enumerate(rows_of):
    for texts in rows:
      texts = [ids[text] for text in texts]
      parts = cut(texts, framing)
      left = sum(len(t) for kept in parts for t in kept)
      if left < (full := sum(map(len, texts))):
        lost[number] = max(full - left, lost.get(number, 0))
      numbers += [number] * len(parts)
      for kept in parts:
        if framing.form.apart:
          framed += [[text] for text in kept]
          second_starts += map(len, kept)
          continue
        for a, *b in (kept, kept[::-1]) if both_orders else (kept,):
          framed.append((first, a, *((between, *b) if b else ()), last))
          has_types = b and framing.form.token_types
          second_starts.append(
            1 + len(a) + len(between)
            if has_types
            else sum(map(len, framed[-1]))
          )
  tokens, offsets = flatten(framed)
  per_example = len(rows_of[0]) if rows_of else 1
  of_features = np.array(numbers[::per_example], np.int32)
  return Features(
    num_rows=num_rows * (1 + both_orders),
    tokens=tokens,
    offsets=offsets,
    second_starts=np.array(second_starts, np.int32),
    labels=labels[of_features],
    label_mask=np.array([e.is_labelled for e in examples], bool)[of_features],
    examples=of_features,
    truncated=len(lost),
    most_lost=max(lost.values(), default=0),
  )


def _cut(texts: Texts, framing: Framing) -> Sequence[Texts]:
  """Cuts one text or two so that they fit into a row with their symbols."""
  room = _room(texts, framing)
  if framing.form.apart:
    lengths = [room] * len(texts)
  elif framing.form.left_to_right:
    # 254 at 512 (finetune-transformer-lm, train.py); one text alone may have
    # the whole row.
    lengths = [room // len(texts)] * len(texts)
  elif len(texts) == 1:
    lengths = [room]
  else:
    lengths = longest_first(*map(len, texts), room)
  return [
    [
      _keep(text, length, framing.long_text)
      for text, length in zip(texts, lengths, strict=True)
    ]
  ]


def _room(texts: Texts, framing: Framing) -> int:
  """Returns how many tokens the texts of a row may have, or each of them."""
  if framing.form.apart:
    return framing.max_length
  first, between, last = framing.symbols
  return framing.max_length - 2 - (len(texts) - 1) * len(between)


def _keep(text: np.ndarray, length: int, long_text: str) -> np.ndarray:
  """Returns `length` tokens of a text that has more."""
  if len(text) <= length or long_text == 'head':
    return text[:length]
  head = round(length * _HEAD_SHARE) if long_text == 'both' else 0
  tail = len(text) - (length - head)
  return np.concatenate([text[:head], text[tail:]])


def _windows(texts: Texts, framing: Framing) -> Sequence[Texts]:
  """Returns the windows of a text, each of them a row."""
  (text,) = texts
  bounds = windows.cut(len(text), _room(texts, framing), framing.doc_stride)
  return [[text[begin:end]] for begin, end in bounds]


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
  """Returns two lengths that fit, shortening the longer one token by token.

  The longer one keeps an odd token, of equals the second, as in Hugging Face's
  tokenizers; in the release always the first.
  """
  if first + second <= room:
    return first, second
  shorter = min(first, second, room // 2)
  if first > second:
    return room - shorter, shorter
  return shorter, room - shorter


def _cut_context(texts: Texts, framing: Framing) -> Sequence[Texts]:
  """Cuts the context so that question and choice stay."""
  context, question, choice = texts
  room = framing.max_length - 3
  choice = choice[: room // 2]
  question = question[: room - len(choice)]
  context = context[: room - len(choice) - len(question)]
  return [[np.concatenate([context, question]), choice]]
