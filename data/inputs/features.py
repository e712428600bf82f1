"""Examples as rows of tokens, each as long as it is.

Letters of shapes: N features, K rows of one (its choices, or both orders of a
pair), R = N x K rows, S tokens of all rows one after the other, W words.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from data.vocabulary.tokenization import Tokenizer

_CHUNK = 10_000  # texts whose ids are Python's integers at one time


class Symbols(NamedTuple):
  """Ids of what stands round texts.

  `first` A `last`, or `first` A `between` B `last`: [CLS] and twice [SEP] of
  BERT; start, delimiter and classify of GPT; <S> and twice </S> of ELMo.
  """

  first: int
  between: int
  last: int


@dataclasses.dataclass(frozen=True)
class Features:
  """The rows of a labelled set, with labels and the way back to the text.

  Attributes:
    kind: see `examples.KINDS`.
    num_rows: K.
    tokens: int32 [S].
    offsets: int64 [R + 1]: where each row begins in `tokens`, and its end.
    second_starts: int32 [R]: token types are 1 from this place in the row on;
      its length where there is no B.
    labels: classification, choice: int32 [N], regression: float32 [N];
      tagging: int32 [S], -1 where there is none; span: int32 [N, 2], places in
      the row of the answer's first and last token, (0, 0) for none in it.
    label_mask: bool [N]; False where the label is not told.
    examples: int32 [N], numbers of the examples. A long sentence, or a question
      of a long text, has several features, one after the other.
    token_spans: int32 [S, 2]: first character and the one after the last in the
      context; -1 at tokens of anything else. Spans only.
    max_context: bool [S]: tokens that no window shows more of both sides of.
      Spans only.
    word_index: int32 [S]: number of the word in its sentence at its labelled
      token, -1 at all others. Tagging only.
    characters: int16 [W, 50]: those of the words whose numbers `tokens` are;
      None where they are ids of a vocabulary.
    truncated: how many examples lost tokens.
    tokens_lost: how many.
    inexact: answers that are not from a token's first character to a token's
      last. Spans only.
  """

  kind: str
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
  characters: np.ndarray | None = None
  truncated: int = 0
  tokens_lost: int = 0
  inexact: int = 0

  def __len__(self) -> int:
    return len(self.examples)

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    """int64 [N]: tokens of each feature's longest row."""
    return np.diff(self.offsets).reshape(-1, self.num_rows).max(axis=1)

  def length(self, i: int) -> int:
    """Returns the tokens of a feature's longest row."""
    return int(self.lengths[i])

  def place(self, i: int, row: int = 0) -> slice:
    """Returns where a feature's row lies in the arrays of S."""
    row += i * self.num_rows
    return slice(int(self.offsets[row]), int(self.offsets[row + 1]))


def encode_distinct(
  tokenizer: Tokenizer, texts: Iterable[str]
) -> dict[str, np.ndarray]:
  """Returns the ids of each different text, int32."""
  texts = list(dict.fromkeys(texts))
  encoded = {}
  for first in range(0, len(texts), _CHUNK):
    chunk = texts[first : first + _CHUNK]
    for text, ids in zip(chunk, tokenizer.encode_batch(chunk), strict=True):
      encoded[text] = np.array(ids, np.int32)
  return encoded


def flatten(
  rows: Sequence[Sequence[np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
  """Joins rows that are given in parts.

  Args:
    rows: of each row the parts that it consists of, [., ...] of one dtype.

  Returns:
    [S, ...], and int64 [R + 1] as `offsets` are.
  """
  lengths = [sum(map(len, parts)) for parts in rows]
  offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
  parts = [part for parts in rows for part in parts]
  return np.concatenate(parts) if parts else np.zeros(0, np.int32), offsets
