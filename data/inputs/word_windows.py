"""Sentences whose words have tags, as rows of tokens.

Every word of every sentence has one labelled token in one row, however long the
sentence is.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from data.inputs.features import Features, Symbols, flatten
from data.tasks.examples import TaggedExample, Task
from data.vocabulary.tokenization import ByteBPE, Tokenizer


def encode(
  task: Task,
  examples: Sequence[TaggedExample],
  tokenizer: Tokenizer,
  symbols: Symbols,
  max_length: int,
  *,
  at_last: bool,
  document_context: bool,
) -> Features:
  """Returns the rows of all sentences; see `framing.encode`.

  Args:
    task: with the tags.
    examples: sentences; those of a document one after the other.
    tokenizer: of the model.
    symbols: what stands at the ends of a row.
    max_length: tokens of a row.
    at_last: label a word's last piece, not its first.
    document_context: see there.

  Raises:
    ValueError: if a tag is not the task's; names the example.
  """
  room = max_length - 2
  numbers = {tag: number for number, tag in enumerate(task.labels)}
  unknown = (
    tokenizer.end_of_text_id
    if isinstance(tokenizer, ByteBPE)
    else tokenizer.unk_id
  )
  first, _, last = (np.array([i], np.int32) for i in symbols)
  none = np.array([-1], np.int32)
  rows, indices, labels, owners = [], [], [], []
  truncated = tokens_lost = 0
  number = 0
  for group in _groups(examples, document_context):
    encoded = tokenizer.encode_words([example.words for example in group])
    text = _Text([word or [unknown] for words in encoded for word in words])
    word = 0
    for example in group:
      tags = _numbers(numbers, example)
      own = word, word + len(example.words)
      reach = (0, text.num_words) if document_context else own
      lost_before = tokens_lost
      for begin, end in text.chunks(*own, room):
        ids, words, lost = text.row(begin, end, *reach, room, at_last)
        is_own = (words >= begin) & (words < end)
        words = np.where(is_own, words - own[0], -1)
        rows.append((first, ids, last))
        indices.append((none, words, none))
        labels.append((none, np.where(is_own, tags[words], -1), none))
        owners.append(number)
        tokens_lost += lost
      truncated += tokens_lost > lost_before
      word, number = own[1], number + 1
  tokens, offsets = flatten(rows)
  told = np.array([e.tags is not None for e in examples], bool)
  return Features(
    kind='tagging',
    num_rows=1,
    tokens=tokens,
    offsets=offsets,
    second_starts=np.diff(offsets).astype(np.int32),
    labels=flatten(labels)[0],
    label_mask=told[owners],
    examples=np.array(owners, np.int32),
    word_index=flatten(indices)[0],
    truncated=truncated,
    tokens_lost=tokens_lost,
  )


def _groups(
  examples: Sequence[TaggedExample], by_document: bool
) -> list[list[TaggedExample]]:
  """Sentences to encode together: documents, or any thousand."""
  if by_document:
    documents = itertools.groupby(examples, lambda example: example.document)
    return [list(sentences) for _, sentences in documents]
  return [list(examples[i : i + 1000]) for i in range(0, len(examples), 1000)]


def _numbers(numbers: dict[str, int], example: TaggedExample) -> np.ndarray:
  """Returns the numbers of a sentence's tags, -1 where they are not told."""
  if example.tags is None:
    return np.full(len(example.words), -1, np.int32)
  wrong = set(example.tags) - numbers.keys()
  if wrong:
    raise ValueError(
      f'example {example.id}: found tag {min(wrong)!r}, expected one of '
      f'{", ".join(numbers)}'
    )
  return np.array([numbers[tag] for tag in example.tags], np.int32)


class _Text:
  """Words one after the other: `bounds` [W + 1] are places in `ids`."""

  def __init__(self, words: Sequence[Sequence[int]]) -> None:
    lengths = [len(word) for word in words]
    self.num_words = len(words)
    self.ids = np.array(list(itertools.chain(*words)), np.int32)
    self.bounds = np.concatenate([[0], np.cumsum(lengths)])
    self.word_of = np.repeat(np.arange(len(words)), lengths)

  def chunks(self, begin: int, end: int, room: int) -> list[tuple[int, int]]:
    """Cuts a sentence into stretches of words that rows have room for.

    One that does not fit is cut into stretches of half a row, so that both
    neighbours' words have room beside each. A longer word stands alone.
    """
    bounds = self.bounds
    if bounds[end] - bounds[begin] <= room:
      return [(begin, end)]
    stretches = []
    while begin < end:
      fitting = np.searchsorted(bounds, bounds[begin] + room // 2, 'right') - 1
      stop = min(max(int(fitting), begin + 1), end)
      stretches.append((begin, stop))
      begin = stop
    return stretches

  def row(
    self,
    begin: int,
    end: int,
    first: int,
    last: int,
    room: int,
    at_last: bool,
  ) -> tuple[np.ndarray, np.ndarray, int]:
    """Fills a row with a stretch of words, and whole words on both its sides.

    Args:
      begin: the stretch's first word.
      end: the one after its last.
      first: the first word that may stand beside it.
      last: the one after the last.
      room: tokens of the row.
      at_last: see `encode`.

    Returns:
      Ids [T]; words, int32 [T], -1 at pieces that stand for none; and how many
      pieces of the stretch found no room.
    """
    bounds = self.bounds
    start, stop = bounds[begin], bounds[end]
    lost = max(0, stop - start - room)
    if lost:  # one word: its end gives way
      words = np.full(room, -1, np.int32)
      words[-1 if at_last else 0] = begin
      return self.ids[start : start + room], words, int(lost)
    free = room - (stop - start)
    before, after = start - bounds[first], bounds[last] - stop
    # Half of what is free to each side, and what one side leaves to the other.
    left = min(before, max(free // 2, free - after))
    right = min(after, free - left)
    words = np.searchsorted(bounds, start - left, 'left')
    start = bounds[words]
    stop = bounds[np.searchsorted(bounds, stop + right, 'right') - 1]
    words = self.word_of[start:stop].astype(np.int32)
    pieces = np.arange(start, stop)
    labelled = bounds[words + 1] - 1 if at_last else bounds[words]
    return self.ids[start:stop], np.where(pieces == labelled, words, -1), 0
