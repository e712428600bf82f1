"""Examples as rows of tokens, each row as long as its text.

Letters of shapes: N features, K rows of a feature (its choices, or both orders
of a pair), R = N x K rows, S tokens of all rows one after the other, W words.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from data.vocabulary.tokenization import Tokenizer

_CHUNK = 10_000  # texts whose ids are Python's integers at one time


class Symbols(NamedTuple):
  """Ids of the symbols `first` A `last`, or `first` A `between` B `last`.

  [CLS] and twice [SEP] of BERT, three times of RoBERTa; start, delimiter and
  classify of GPT; <S> and twice </S> of ELMo.
  """

  first: int
  between: tuple[int, ...]
  last: int

  @property
  def ids(self) -> tuple[int, ...]:
    """All of them, in the order of a row of two texts."""
    return self.first, *self.between, self.last

  def arrays(self) -> list[np.ndarray]:
    """Returns the three parts, each int32 [symbols]."""
    parts = [self.first], self.between, [self.last]
    return [np.array(part, np.int32) for part in parts]


class Form(NamedTuple):
  """The form of a family's rows; see `framing.encode`.

  Attributes:
    name: as in `framing.FORMS`.
    left_to_right: the last token of a row has seen all others, as in GPT.
    token_types: a row tells its second text from its first, as in BERT.
    apart: each text of an example is a row of its own, without symbols.
  """

  name: str
  left_to_right: bool = False
  token_types: bool = False
  apart: bool = False


class Framing(NamedTuple):
  """Settings of the rows of tokens; see `framing.encode`."""

  tokenizer: Tokenizer
  symbols: Symbols
  form: Form
  max_length: int
  at_last: bool
  document_context: bool
  doc_stride: int
  max_query: int
  bioul: bool
  long_text: str


@dataclasses.dataclass(frozen=True)
class Features:
  """The rows of a labelled set, with labels and the places in the text.

  Attributes:
    num_rows: K.
    tokens: int32 [S].
    offsets: int64 [R + 1]: begin of each row in `tokens`, and the end of all.
    second_starts: int32 [R]: first place of B in the row, where token types
      become 1; the row's length without B.
    labels: classes and choices: int32 [N], scores: float32 [N]; tags: int32
      [S], -1 at unlabelled tokens; spans: int32 [N, 2], places in the row of
      the answer's first and last token, (0, 0) without answer in the row.
    label_mask: bool [N]; False where the label is unknown.
    examples: int32 [N], numbers of the examples. A long sentence, a question
      about a long text, and a long text in windows have several features, one
      after the other.
    token_spans: spans only, int32 [S, 2]: first character in the context and
      the one after the last; -1 at other tokens.
    max_context: spans only, bool [S]: no other window shows more of it.
    word_index: tags only, int32 [S]: number of the word in its sentence at the
      labelled token, -1 at other tokens.
    tag_labels: names of the labels if the tags are in another scheme than the
      task's; else None.
    token_types: int8 [S], where `second_starts` does not give them; else None.
    words: whole words by their numbers in `tokens`; None for ids of a
      vocabulary.
    characters: int16 [W, 50], of whole words; None if no model reads them.
    truncated: number of examples that lost tokens.
    most_lost: how many tokens a row lost at most.
  """

  num_rows: int
  tokens: np.ndarray
  offsets: np.ndarray
  second_starts: np.ndarray
  labels: np.ndarray
  label_mask: np.ndarray
  examples: np.ndarray
  token_spans: np.ndarray | None = None
  max_context: np.ndarray | None = None
  word_index: np.ndarray | None = None
  tag_labels: tuple[str, ...] | None = None
  token_types: np.ndarray | None = None
  words: tuple[str, ...] | None = None
  characters: np.ndarray | None = None
  truncated: int = 0
  most_lost: int = 0

  def __len__(self) -> int:
    return len(self.examples)

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    """int64 [N]: tokens of each feature's longest row."""
    return np.diff(self.offsets).reshape(-1, self.num_rows).max(axis=1)

  def place(self, i: int, row: int = 0) -> slice:
    """Returns the place of a feature's row in the arrays of S."""
    row += i * self.num_rows
    return slice(int(self.offsets[row]), int(self.offsets[row + 1]))


def encode_distinct(
  tokenizer: Tokenizer, texts: Iterable[str]
) -> dict[str, np.ndarray]:
  """Returns text -> ids, int32, of the distinct texts."""
  texts = list(dict.fromkeys(texts))
  encoded = {}
  for first in range(0, len(texts), _CHUNK):
    chunk = texts[first : first + _CHUNK]
    for text, ids in zip(chunk, tokenizer.encode_batch(chunk), strict=True):
      encoded[text] = np.array(ids, np.int32)
  return encoded


def label_numbers(
  numbers: dict[str, int], labels: Sequence[str], example: str
) -> list[int]:
  """Returns the numbers of an example's labels; refuses unknown labels."""
  unknown = [label for label in labels if label not in numbers]
  if unknown:
    raise ValueError(
      f'example {example}: found the label {unknown[0]!r}, expected one of '
      f'{", ".join(numbers)}'
    )
  return [numbers[label] for label in labels]


def flatten(
  rows: Sequence[Sequence[np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
  """Joins the parts of rows to [S, ...]; also returns `Features.offsets`."""
  lengths = [sum(map(len, parts)) for parts in rows]
  offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
  parts = [part for parts in rows for part in parts]
  return np.concatenate(parts) if parts else np.zeros(0, np.int32), offsets
