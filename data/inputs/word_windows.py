"""Sentences with tagged words, as rows of tokens.

Every word has one labelled token in one row, however long its sentence is.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from data.inputs.features import Features, Framing, flatten, label_numbers
from data.tasks.examples import TaggedExample, Task
from data.vocabulary import tag_schemes
from data.vocabulary.tokenization import ByteBPE


def encode(
  task: Task, examples: Sequence[TaggedExample], framing: Framing
) -> Features:
  """Returns the rows of all sentences; see `framing.encode`."""
  tokenizer, num_symbols = framing.tokenizer, 0 if framing.form.apart else 1
  room = framing.max_length - 2 * num_symbols
  names = task.labels
  if framing.bioul:
    names = tag_schemes.bioul_labels(names)
  numbers = {tag: number for number, tag in enumerate(names)}
  unknown = (
    tokenizer.end_of_text_id
    if isinstance(tokenizer, ByteBPE)
    else tokenizer.unk_id
  )
  first, _, last = (
    np.full(num_symbols, symbol, np.int32) for symbol in framing.symbols
  )
  none = np.full(num_symbols, -1, np.int32)
  rows, indices, labels, owners = [], [], [], []
  truncated = number = 0
  for group in _groups(examples, framing.document_context):
    encoded = tokenizer.encode_words([example.words for example in group])
    text = _Text([word or [unknown] for words in encoded for word in words])
    word = 0
    for example in group:
      tags = np.full(len(example.words), -1, np.int32)
      if example.tags is not None:
        found = example.tags
        if framing.bioul:
          found = tag_schemes.to_bioul(found)
        tags[:] = label_numbers(numbers, found, example.id)
      own = word, word + len(example.words)
      reach = (0, text.num_words) if framing.document_context else own
      is_cut = False
      for begin, end in text.chunks(*own, room):
        ids, words, cut = text.row(begin, end, *reach, room, framing.at_last)
        is_own = (words >= begin) & (words < end)
        words = np.where(is_own, words - own[0], -1)
        rows.append((first, ids, last))
        indices.append((none, words, none))
        labels.append((none, np.where(is_own, tags[words], -1), none))
        owners.append(number)
        is_cut |= cut
      truncated += is_cut
      word, number = own[1], number + 1
  tokens, offsets = flatten(rows)
  labelled = np.array([e.is_labelled for e in examples], bool)
  return Features(
    num_rows=1,
    tokens=tokens,
    offsets=offsets,
    second_starts=np.diff(offsets).astype(np.int32),
    labels=flatten(labels)[0],
    label_mask=labelled[owners],
    examples=np.array(owners, np.int32),
    word_index=flatten(indices)[0],
    tag_labels=names if framing.bioul else None,
    truncated=truncated,
  )


def _groups(
  examples: Sequence[TaggedExample], by_document: bool
) -> list[list[TaggedExample]]:
  if by_document:
    documents = itertools.groupby(examples, lambda example: example.document)
    return [list(sentences) for _, sentences in documents]
  return [list(examples[i : i + 1000]) for i in range(0, len(examples), 1000)]


class _Text:
  """Words one after the other: `bounds` [W + 1] are their places in `ids`."""

  def __init__(self, words: Sequence[Sequence[int]]) -> None:
    lengths = [len(word) for word in words]
    self.num_words = len(words)
    self.ids = np.array(list(itertools.chain(*words)), np.int32)
    self.bounds = np.concatenate([[0], np.cumsum(lengths)])
    self.word_of = np.repeat(np.arange(len(words)), lengths)

  def chunks(self, begin: int, end: int, room: int) -> list[tuple[int, int]]:
    """Cuts a sentence into chunks of whole words, half a row each if long."""
    bounds = self.bounds
    if bounds[end] - bounds[begin] <= room:
      return [(begin, end)]
    chunks = []
    while begin < end:
      fitting = np.searchsorted(bounds, bounds[begin] + room // 2, 'right') - 1
      stop = min(max(int(fitting), begin + 1), end)
      chunks.append((begin, stop))
      begin = stop
    return chunks

  def row(
    self, begin: int, end: int, first: int, last: int, room: int, at_last: bool
  ) -> tuple[np.ndarray, np.ndarray, bool]:
    """Fills a row of `room` pieces with the words [begin, end) and context.

    The context is whole words of [first, last). A word's label is at its last
    piece with `at_last`, else at its first. Returns ids [T]; words, int32 [T],
    -1 at unlabelled pieces; and whether a piece of the chunk found no room.
    """
    bounds = self.bounds
    start, stop = bounds[begin], bounds[end]
    if stop - start > room:  # one word: its end is cut
      words = np.full(room, -1, np.int32)
      words[-1 if at_last else 0] = begin
      return self.ids[start : start + room], words, True
    free = room - (stop - start)
    before, after = start - bounds[first], bounds[last] - stop
    # Half of the free room for each side, and the rest of one for the other.
    left = min(before, max(free // 2, free - after))
    right = min(after, free - left)
    words = np.searchsorted(bounds, start - left, 'left')
    start = bounds[words]
    stop = bounds[np.searchsorted(bounds, stop + right, 'right') - 1]
    words = self.word_of[start:stop].astype(np.int32)
    pieces = np.arange(start, stop)
    labelled = bounds[words + 1] - 1 if at_last else bounds[words]
    return self.ids[start:stop], np.where(pieces == labelled, words, -1), False
