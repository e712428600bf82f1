"""The attention of BERT, GPT and GPT-2 to texts: weights, queries and keys.

Shapes: B text, T query position, S key position, L layer, N head, H head
dimension. Q is query, key and value.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from etils import epath
from flax import linen as nn

from data.inputs import framing
from data.vocabulary.bpe import BPE, END_OF_WORD
from data.vocabulary.byte_bpe import ByteBPE, ByteLevel
from data.vocabulary.tokenizer import Tokenizer
from data.vocabulary.wordpiece import PREFIX
from models.layers import Params
from models.pretrained.weights import Weights
from train.architectures import families
from train.params import opened
from train.vectors import length_batches
from train.vectors.trained_model import TrainedModel
from train.views.attention_texts import ShownText

BATCH_BYTES = 128_000_000  # of the weights of a batch
SPACE, LINE_END = '\u2423', '\u23ce'  # shown in place of white space


class AttentionRow(NamedTuple):
  """The tokens that a model reads of a text or a pair.

  Attributes:
    ids: T ids, symbols included.
    segments: T numbers, 0 in the first text, 1 in the second.
    symbols: T truths, True at [CLS] and [SEP].
  """

  ids: list[int]
  segments: list[int]
  symbols: list[bool]

  @classmethod
  def of(
    cls,
    parts: Sequence[list[int]],
    begin: list[int],
    end: list[int],
    separators: int = 1,
  ) -> 'AttentionRow':
    """Returns the ids of one or two texts with the symbols around them.

    Between two texts `end` stands `separators` times.
    """
    row = cls([], [], [])
    for segment, ids in enumerate(parts):
      before = [] if segment else begin
      after = end if segment == len(parts) - 1 else end * separators
      row.ids.extend([*before, *ids, *after])
      symbols = [True] * len(before), [False] * len(ids), [True] * len(after)
      row.symbols.extend(itertools.chain(*symbols))
      row.segments.extend([segment] * (len(row.ids) - len(row.segments)))
    return row


class Attention(NamedTuple):
  """The attention of each head of each layer in a text.

  Attributes:
    pieces: T tokens for people.
    words: the word of each of the T tokens, in lower case.
    weights_LNTS: float32, probabilities; rows sum to 1, to less with a null
      key. Zero where a left-to-right model does not look.
    query_LTNH: float32, not scaled.
    key_LSNH: float32; a weight is the softmax of query . key / sqrt(H).
  """

  text: ShownText
  row: AttentionRow
  pieces: list[str]
  words: list[str]
  weights_LNTS: np.ndarray
  query_LTNH: np.ndarray
  key_LSNH: np.ndarray


def open_model(
  weights: epath.PathLike | Weights, tokenizer: epath.PathLike | None = None
) -> TrainedModel:
  """Opens a model with attention, to compute in float32, without heads.

  For the arguments see `opened.open_weights`. Raises ValueError if the weights
  are damaged, or of a family without attention.
  """
  found = opened.open_weights(weights, tokenizer)
  expected = families.names_for('embed')
  if found.name not in expected:
    family = families.ARCHITECTURES.get(found.name)
    without, hint = '', ''
    if family is not None:
      without = ', which has no attention'
    if families.is_for(found.name, 'tasks'):
      without += ': its layers are LSTMs'
      hint = '; python -m train.probe shows what the layers of either kind hold'
    raise ValueError(
      f'{found.folder} holds a model of the kind {found.name}{without}.'
      f' Expected {", ".join(expected)}{hint}'
    )
  return TrainedModel(found, dtype='float32')


def frame(
  found: TrainedModel, texts: Sequence[ShownText], named: str = 'text'
) -> list[AttentionRow]:
  """Returns the tokens of texts as the model reads them.

  BERT reads [CLS] A [SEP] or [CLS] A [SEP] B [SEP]; a GPT reads A, or A and B
  one after the other. Raises ValueError, with the text's number behind `named`,
  for a text without tokens or with more than the model has positions.
  """
  begin, end = found.family.frame(found.tokenizer)
  rows = []
  for number, text in enumerate(texts, start=1):
    parts = [text.first]
    if text.second is not None:
      spaced = isinstance(found.tokenizer, ByteBPE)
      parts.append(f' {text.second}' if spaced else text.second)
    encoded = found.encode(parts)
    for part, ids in zip(parts, encoded, strict=True):
      if not ids:
        raise ValueError(
          f'{named} {number} has no token of {found.folder}: {part!r}'
        )
    row = AttentionRow.of(encoded, begin, end, found.tokenizer.separators)
    if len(row.ids) > found.model.max_length:
      raise ValueError(
        f'{named} {number} has {len(row.ids):,} tokens, symbols included, and'
        f' the model {found.model.max_length:,} positions: give a shorter text'
      )
    rows.append(row)
  return rows


def attend(
  found: TrainedModel, texts: Sequence[ShownText], named: str = 'text'
) -> Iterator[Attention]:
  """Loads weights of `open_model`, and yields the attention of each text.

  Raises ValueError as `frame` does, and for damage.
  """
  rows = frame(found, texts, named)
  (model, params), texts = found.prepared(), iter(texts)
  for part, inputs in batches(found, rows):
    weights_LBNTS, qkv_LBTQNH = jax.device_get(compute(model, params, *inputs))
    for b, row in enumerate(part):
      T = len(row.ids)
      pieces, words = show(found.tokenizer, row.ids)
      query_LTNH, key_LSNH = (qkv_LBTQNH[:, b, :T, q] for q in (0, 1))
      yield Attention(
        next(texts),
        row,
        pieces,
        words,
        weights_LBNTS[:, b, :, :T, :T],
        query_LTNH,
        key_LSNH,
      )


def batches(
  found: TrainedModel, rows: Sequence[AttentionRow]
) -> Iterator[tuple[Sequence[AttentionRow], tuple[np.ndarray, ...]]]:
  """Yields the rows of each batch, and the model's inputs, each [B, T].

  All have the same shape; the last may have rows of padding at its end.
  """
  longest = max(len(row.ids) for row in rows)
  length = min(length_batches.round_length(longest), found.model.max_length)
  heads = found.model.num_layers * found.model.num_heads
  count = int(np.clip(BATCH_BYTES // (4 * heads * length**2), 1, 64))
  count = min(count, len(rows))
  for first in range(0, len(rows), count):
    part = rows[first : first + count]
    yield part, pad(found, part, count, length)


def pad(
  found: TrainedModel, rows: Sequence[AttentionRow], num_rows: int, length: int
) -> tuple[np.ndarray, ...]:
  """Returns the model's inputs, each [B, T]: `num_rows` rows of `length`."""
  family = found.family
  tokens_BT, lengths_B = length_batches.pad(
    [row.ids for row in rows], num_rows, length
  )
  places_BT = np.broadcast_to(
    np.arange(length, dtype=np.int32), tokens_BT.shape
  )
  mask_BT = places_BT < lengths_B[:, None]
  inputs = list(family.text_inputs(tokens_BT, mask_BT, places_BT))
  if framing.FORMS[family.form].token_types:
    inputs[2], _ = length_batches.pad(
      [row.segments for row in rows], num_rows, length
    )
  return tuple(inputs)


@functools.partial(jax.jit, static_argnames='model')
def compute(
  model: nn.Module, params: Params, *inputs: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Returns probabilities [L, B, N, T, S], and [L, B, T, 3, N, H].

  The second has queries, keys and values, as their projection gives them.
  """

  def is_projection(module: nn.Module, method: str) -> bool:
    return module.name == 'qkv' and method == '__call__'

  _, found = model.apply(
    {'params': params},
    *inputs,
    train=False,
    mutable=['intermediates'],
    capture_intermediates=is_projection,
  )
  attention = found['intermediates']['layers']['attention']
  return attention['attention'][0], attention['qkv']['__call__'][0]


def show(
  tokenizer: Tokenizer, ids: Sequence[int]
) -> tuple[list[str], list[str]]:
  """Returns each token for people, and the whole word that it belongs to.

  Pieces of WordPiece keep their ##. A token of bytes that is a part of a
  character is shown as the character of replacement. Words are in lower case.
  """
  shown = parts = [tokenizer.pieces[i] for i in ids]
  if isinstance(tokenizer, BPE):
    ends = [piece.endswith(END_OF_WORD) for piece in parts]
    shown = parts = [piece.removesuffix(END_OF_WORD) for piece in parts]
    starts = [True, *ends[:-1]]
  elif isinstance(tokenizer, ByteLevel):
    parts = [tokenizer.decode([i]) for i in ids]
    shown = [part.strip(' ') or SPACE for part in parts]
    starts = [True, *itertools.starmap(_begins, itertools.pairwise(parts))]
  else:
    starts = [not piece.startswith(PREFIX) for piece in shown]
    parts = [piece.removeprefix(PREFIX) for piece in shown]
  numbers = [number - 1 for number in itertools.accumulate(map(int, starts))]
  words: dict[int, str] = {}
  for number, part in zip(numbers, parts, strict=True):
    words[number] = words.get(number, '') + part
  return (
    [text.replace('\n', LINE_END) for text in shown],
    [words[number].strip().casefold() for number in numbers],
  )


def _begins(before: str, text: str) -> bool:
  """Whether a token of bytes begins a word: after a space, or at a sign."""
  if before.endswith(' ') or not before:
    return text.startswith(' ')
  return not (text[:1].isalnum() and before[-1].isalnum())
