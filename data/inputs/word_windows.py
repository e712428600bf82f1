"""Sentences with tagged words, as rows of tokens.

Every word has one labelled token in one row, however long its sentence is.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from data.inputs.features import Features, Framing, flatten, label_numbers
from data.tasks.examples import TaggedExample, Task
from data.vocabulary import tag_schemes


def encode(
  task: Task, examples: Sequence[TaggedExample], framing: Framing
) -> Features:
  """Returns the rows of all sentences; see `framing.encode`.

  Raises ValueError if examples have predicates and `document_context` is set.
  """
  tokenizer = framing.tokenizer
  names = task.labels
  if framing.bioul:
    names = tag_schemes.bioul_labels(names)
  numbers = {tag: number for number, tag in enumerate(names)}
  # A byte-level BPE lacks no text: a word without tokens is its end of text.
  unknown = tokenizer.unk_id
  if unknown is None:
    unknown = framing.symbols.last
  has_predicates = any(e.predicate is not None for e in examples)
  if has_predicates and framing.document_context:
    raise ValueError(
      f'{task.name}: found document_context=True, expected False: the row of a '
      'predicate has words of its own sentence only'
    )
  rows, indices, labels, types, owners, second_starts = [], [], [], [], [], []
  lost, number = [], 0
  for group in _groups(examples, framing.document_context):
    encoded = tokenizer.encode_words([example.words for example in group])
    text = _Text([word or [unknown] for words in encoded for word in words])
    word = 0
    for example in group:
      tags = _numbers_of(example, numbers, framing.bioul)
      own = word, word + len(example.words)
      reach = (0, text.num_words) if framing.document_context else own
      predicate = None
      if example.predicate is not None:
        predicate = word + example.predicate
      before, behind, num_cut = _around(text, predicate, framing)
      none = [np.full(len(part), -1, np.int32) for part in (before, behind)]
      room = framing.max_length - len(before) - len(behind)
      for begin, end in text.chunks(*own, room):
        place, words, cut = text.row(begin, end, *reach, room, framing.at_last)
        is_own = (words >= begin) & (words < end)
        words = np.where(is_own, words - own[0], -1)
        told = np.where(is_own, tags[words], -1)
        rows.append((before, text.ids[place], behind))
        indices.append((none[0], words, none[1]))
        labels.append((none[0], told, none[1]))
        is_predicate = text.word_of[place] == predicate
        # The second text begins after the symbols between the two.
        between = len(framing.symbols.between)
        in_second = np.arange(len(behind)) >= between
        types.append((np.zeros(len(before), bool), is_predicate, in_second))
        second_starts.append(len(before) + len(words) + len(behind[:between]))
        owners.append(number)
        num_cut = max(num_cut, cut)
      lost.append(num_cut)
      word, number = own[1], number + 1
  tokens, offsets = flatten(rows)
  labelled = np.array([e.is_labelled for e in examples], bool)
  has_types = framing.form.token_types or framing.form.apart
  return Features(
    num_rows=1,
    tokens=tokens,
    offsets=offsets,
    second_starts=np.array(second_starts, np.int32)
    if framing.form.token_types
    else np.diff(offsets).astype(np.int32),
    labels=flatten(labels)[0],
    label_mask=labelled[owners],
    examples=np.array(owners, np.int32),
    word_index=flatten(indices)[0],
    tag_labels=names if framing.bioul else None,
    token_types=flatten(types)[0].astype(np.int8)
    if has_predicates and has_types
    else None,
    truncated=np.count_nonzero(lost),
    most_lost=max(lost, default=0),
  )


def _numbers_of(
  example: TaggedExample, numbers: dict[str, int], bioul: bool
) -> np.ndarray:
  """Returns the numbers of a sentence's tags, int32 [W], -1 if unknown."""
  if example.tags is None:
    return np.full(len(example.words), -1, np.int32)
  tags = tag_schemes.to_bioul(example.tags) if bioul else example.tags
  return np.array(label_numbers(numbers, tags, example.id), np.int32)


def _around(
  text: '_Text', predicate: int | None, framing: Framing
) -> tuple[np.ndarray, np.ndarray, int]:
  """Returns the ids before and behind the words of a row.

  They hold the predicate's word, if any, cut to half of the row; the third
  value is how many pieces it lost.
  """
  first, between, last = framing.symbols
  num_cut = 0
  if framing.form.apart:
    before, behind = [], []
  elif predicate is None:
    before, behind = [first], [last]
  else:
    pieces = text.ids[text.bounds[predicate] : text.bounds[predicate + 1]]
    kept = pieces[: (framing.max_length - 2 - len(between)) // 2]
    num_cut = len(pieces) - len(kept)
    if framing.form.left_to_right:
      before, behind = [first, *kept, *between], [last]
    else:
      before, behind = [first], [*between, *kept, last]
  return np.array(before, np.int32), np.array(behind, np.int32), num_cut


def _groups(
  examples: Sequence[TaggedExample], by_document: bool
) -> list[list[TaggedExample]]:
  if by_document:
    documents = itertools.groupby(examples, lambda example: example.document)
    return [list(sentences) for _, sentences in documents]
  return [list(examples[i : i + 1000]) for i in range(0, len(examples), 1000)]


class _Text:
  """Words one after the other: `bounds` [W + 1] are their places in `ids`.

  `word_of` is the word of each piece in `ids`.
  """

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
  ) -> tuple[slice, np.ndarray, int]:
    """Fills a row of `room` pieces with the words [begin, end) and context.

    The context is whole words of [first, last). A word's label is at its last
    piece with `at_last`, else at its first. Returns the row's place in `ids`;
    words, int32 [T], -1 at unlabelled pieces; and how many pieces of the chunk
    found no room.
    """
    bounds = self.bounds
    start, stop = bounds[begin], bounds[end]
    if stop - start > room:  # one word: its end is cut
      words = np.full(room, -1, np.int32)
      words[-1 if at_last else 0] = begin
      return slice(start, start + room), words, int(stop - start - room)
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
    return slice(start, stop), np.where(pieces == labelled, words, -1), 0
