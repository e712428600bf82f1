"""Examples as Hugging Face's models read them, and the models' answers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data.tasks.examples import (
  Prediction,
  SpanExample,
  TaggedExample,
  Task,
  TextExample,
)

Example = TextExample | TaggedExample | SpanExample
Row = dict[str, Any]  # of one input, as Trainer's collators take it

IGNORED = -100  # a label that Hugging Face's losses leave out
EVAL_BATCH = 64
# Of span tasks, as in our configs.
STRIDE = 128  # tokens from one window to the next
MAX_ANSWER = 30  # tokens
N_BEST = 20  # starts and ends to choose from


class Window(NamedTuple):
  """The part of a question's text that a row shows.

  Attributes:
    example: number of the question.
    characters: (first, end) of each token's characters; None outside the text.
  """

  example: int
  characters: list[tuple[int, int] | None]


def encode(
  task: Task,
  examples: Sequence[Example],
  tokenizer: Any,
  max_length: int,
) -> Iterator[tuple[Row, Window | None]]:
  """Yields rows; rows of a span task with their windows.

  Args:
    task: of a kind in `tuning.MODEL_OF_KIND`.
    examples: with labels.
    tokenizer: of the weights.
    max_length: tokens of a row, symbols included.
  """
  if task.kind == 'span':
    for number, example in enumerate(examples):
      yield from _encode_question(number, example, tokenizer, max_length)
    return
  make = _encode_words if task.kind == 'tagging' else _encode_texts
  for example in examples:
    yield make(task, example, tokenizer, max_length), None


def _encode_texts(
  task: Task, example: TextExample, tokenizer: Any, max_length: int
) -> Row:
  row = tokenizer(
    *example.texts, truncation='longest_first', max_length=max_length
  )
  label = example.label
  if task.kind == 'classification':
    label = task.labels.index(label)
  return {**row, 'labels': label}


def _encode_words(
  task: Task, example: TaggedExample, tokenizer: Any, max_length: int
) -> Row:
  """Returns a row in which a word's first piece has its tag."""
  row = tokenizer(
    list(example.words),
    is_split_into_words=True,
    truncation=True,
    max_length=max_length,
  )
  words = row.word_ids()
  labels = [
    IGNORED
    if word is None or word == before
    else task.labels.index(example.tags[word])
    for before, word in zip([None, *words], words, strict=False)
  ]
  return {**row, 'labels': labels}


def _encode_question(
  number: int, example: SpanExample, tokenizer: Any, max_length: int
) -> Iterator[tuple[Row, Window]]:
  """Yields each window's row; its answer is [CLS] where it shows none."""
  question = tokenizer(example.question, add_special_tokens=False)
  room = max_length - 3 - len(question['input_ids'])
  found = tokenizer(
    example.question,
    example.context,
    truncation='only_second',
    max_length=max_length,
    stride=room - STRIDE,  # what two windows share
    return_overflowing_tokens=True,
    return_offsets_mapping=True,
  )
  for window, offsets in enumerate(found['offset_mapping']):
    characters = [
      offset if sequence == 1 else None
      for sequence, offset in zip(
        found.sequence_ids(window), offsets, strict=True
      )
    ]
    row = {
      name: found[name][window]
      for name in ('input_ids', 'token_type_ids', 'attention_mask')
    }
    first, last = _answer_tokens(example, characters)
    row |= {'start_positions': first, 'end_positions': last}
    yield row, Window(number, characters)


def _answer_tokens(
  example: SpanExample, characters: Sequence[tuple[int, int] | None]
) -> tuple[int, int]:
  """Returns the first answer's tokens; (0, 0) if a part of it is not shown."""
  shown = [place for place, found in enumerate(characters) if found is not None]
  if not example.answers or not shown:
    return 0, 0
  text, start = example.answers[0]
  end = start + len(text)
  if characters[shown[0]][0] > start or characters[shown[-1]][1] < end:
    return 0, 0
  first = max(place for place in shown if characters[place][0] <= start)
  last = min(place for place in shown if characters[place][1] >= end)
  return first, last


def is_labelled(example: Example) -> bool:
  """Whether an example has an answer."""
  if isinstance(example, SpanExample):
    return example.is_labelled
  if isinstance(example, TaggedExample):
    return example.tags is not None
  return example.label is not None


def predict(
  trainer: Any, task: Task, examples: Sequence[Example], max_length: int
) -> list[Prediction]:
  """Returns the model's answers.

  Args:
    trainer: a Trainer after training.
    task: see `encode`.
    examples: with labels.
    max_length: tokens of a row.
  """
  tokenizer = trainer.processing_class
  encoded = list(encode(task, examples, tokenizer, max_length))
  if task.kind == 'span':
    answers = _predict_spans(trainer.model, tokenizer, examples, encoded)
    return [
      Prediction(example.id, answer)
      for example, answer in zip(examples, answers, strict=True)
    ]
  outputs = trainer.predict([row for row, _ in encoded])
  logits = outputs.predictions
  if task.kind == 'regression':
    answers = logits[:, 0].tolist()
  elif task.kind == 'classification':
    answers = [task.labels[best] for best in logits.argmax(-1)]
  else:
    answers = []
    for best, labels, example in zip(
      logits.argmax(-1), outputs.label_ids, examples, strict=True
    ):
      tags = [task.labels[tag] for tag in best[labels != IGNORED]]
      # Words that were cut off, or have no pieces.
      tags += ['O'] * (len(example.words) - len(tags))
      answers.append(tuple(tags))
  return [
    Prediction(example.id, answer)
    for example, answer in zip(examples, answers, strict=True)
  ]


def _predict_spans(
  model: Any,
  tokenizer: Any,
  examples: Sequence[SpanExample],
  encoded: Sequence[tuple[Row, Window]],
) -> list[str]:
  """Returns the text between the best start and end of each question."""
  import torch

  best: list[tuple[float, str]] = [(-np.inf, '')] * len(examples)
  encoded = sorted(encoded, key=lambda item: len(item[0]['input_ids']))
  names = ('input_ids', 'token_type_ids', 'attention_mask')
  model.eval()
  for first in range(0, len(encoded), EVAL_BATCH):
    part = encoded[first : first + EVAL_BATCH]
    rows = [{name: row[name] for name in names} for row, _ in part]
    with torch.inference_mode():
      outputs = model(**tokenizer.pad(rows, return_tensors='pt'))
    for (_, window), starts, ends in zip(
      part,
      outputs.start_logits.numpy(),
      outputs.end_logits.numpy(),
      strict=True,
    ):
      score, start, end = _best_span(starts, ends, window.characters)
      if score > best[window.example][0]:
        text = examples[window.example].context[start:end]
        best[window.example] = score, text
  return [text for _, text in best]


def _best_span(
  starts: np.ndarray,
  ends: np.ndarray,
  characters: Sequence[tuple[int, int] | None],
) -> tuple[float, int, int]:
  """Returns the best span: its score, first character and end."""
  found = (-np.inf, 0, 0)
  count = len(characters)
  for first in np.argsort(starts)[::-1][:N_BEST]:
    for last in np.argsort(ends)[::-1][:N_BEST]:
      if not first <= last < min(count, first + MAX_ANSWER):
        continue
      if characters[first] is None or characters[last] is None:
        continue
      score = float(starts[first] + ends[last])
      if score > found[0]:
        found = score, characters[first][0], characters[last][1]
  return found
