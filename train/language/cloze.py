"""The likeliest pieces in place of masks."""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.text import text_files
from data.vocabulary import wordpiece
from models import bert
from train.params import trained
from train.vectors import length_batches

MASK = '[MASK]'
BATCH_TOKENS = 4096
# A prompt may spell any symbol, as it may elsewhere.
_SYMBOLS = re.compile('|'.join(map(re.escape, wordpiece.SPECIALS)))


class Guess(NamedTuple):
  """A piece that may stand where a mask is.

  Attributes:
    piece: as the vocabulary has it.
    id: its number there.
    probability: of it, among all pieces.
  """

  piece: str
  id: int
  probability: float


def encode_prompt(tokenizer: wordpiece.WordPiece, prompt: str) -> list[int]:
  """Returns a prompt's ids between [CLS] and [SEP], symbols in it as such."""
  symbol_ids = {
    '[PAD]': tokenizer.pad_id,
    '[UNK]': tokenizer.unk_id,
    '[CLS]': tokenizer.cls_id,
    '[SEP]': tokenizer.sep_id,
    MASK: tokenizer.mask_id,
  }
  ids = [tokenizer.cls_id]
  parts = tokenizer.encode_batch(_SYMBOLS.split(prompt))
  symbols = [*_SYMBOLS.findall(prompt), '[SEP]']
  for part, symbol in zip(parts, symbols, strict=True):
    ids += [*part, symbol_ids[symbol]]
  return ids


def check_prompts(prompts: Sequence[str], *, top_k: int) -> None:
  """Refuses, before a model is loaded, what cannot be filled.

  Raises:
    ValueError: naming the prompts without a mask; or the number.
  """
  if top_k < 1:
    raise ValueError(f'--top_k={top_k}: expected 1 or more')
  if not prompts:
    raise ValueError('there is no prompt: give one, or more by --input')
  without = [
    f'prompt {number}: {prompt[:60]!r}'
    for number, prompt in enumerate(prompts, start=1)
    if MASK not in prompt
  ]
  if without:
    raise ValueError(
      '\n  '.join([f'expected {MASK} in each prompt, found none in', *without])
    )


def check_model(model: bert.Bert) -> None:
  """Refuses a model that does not predict masked pieces.

  Raises:
    ValueError: if so.
  """
  if model.left_to_right:
    raise ValueError(
      'these weights read from left to right and have never seen a mask: give'
      ' those of a BERT that reads both ways'
    )
  if 'mlm' not in model.heads:
    raise ValueError(
      'these weights have no head for masked pieces (mlm), found'
      f' {", ".join(model.heads) or "the encoder alone"}: give those of a BERT'
      ' as it was pre-trained'
    )


def fill(
  found: trained.Trained, prompts: Sequence[str], *, top_k: int = 5
) -> list[list[list[Guess]]]:
  """Returns the likeliest pieces of every mask of every prompt.

  The masks of a prompt are each filled while the others are masks.

  Args:
    found: a BERT with its head for masked pieces.
    prompts: texts, each with [MASK] in it at least once.
    top_k: how many pieces, of the vocabulary's at most.

  Returns:
    For each prompt, for each mask of it, the pieces, the likeliest first.

  Raises:
    ValueError: if the model has no such head, or a prompt makes no sense.
  """
  check_prompts(prompts, top_k=top_k)
  model, tokenizer = found.model, found.tokenizer
  check_model(model)
  if top_k > tokenizer.vocab_size:
    raise ValueError(
      f'--top_k={top_k}: expected 1 to {tokenizer.vocab_size:,}, the vocabulary'
    )
  encoded = [encode_prompt(tokenizer, prompt) for prompt in prompts]
  too_long = [
    f'prompt {number}: {len(ids):,}'
    for number, ids in enumerate(encoded, start=1)
    if len(ids) > model.max_length
  ]
  if too_long:
    raise ValueError(
      '\n  '.join(
        [
          f'expected {model.max_length:,} pieces at most, [CLS] and [SEP]'
          ' included, the positions of the model; shorten',
          *too_long,
        ]
      )
    )
  guesses: list[Any] = [None] * len(prompts)
  for batch in length_batches.batches_by_length(
    enumerate(encoded), BATCH_TOKENS, added=0, longest=model.max_length
  ):
    for number, rows in zip(
      batch.numbers, _fill_batch(found, batch, top_k), strict=True
    ):
      guesses[number] = rows
  return guesses


def _fill_batch(
  found: trained.Trained, batch: length_batches.Batch, top_k: int
) -> Iterator[list[list[Guess]]]:
  mask_id, pieces = found.tokenizer.mask_id, found.tokenizer.pieces
  tokens = np.zeros((batch.rows, batch.length), np.int32)
  lengths = np.zeros(batch.rows, np.int32)
  for row, ids in enumerate(batch.texts):
    tokens[row, : len(ids)] = ids
    lengths[row] = len(ids)
  masks = [np.flatnonzero(np.array(ids) == mask_id) for ids in batch.texts]
  masks += [np.zeros(0, np.int32)] * (batch.rows - len(masks))
  most = 1 << (max(map(len, masks)) - 1).bit_length()  # few programs
  places = np.zeros((batch.rows, most), np.int32)
  for row, found_masks in zip(places, masks, strict=True):
    row[: len(found_masks)] = found_masks
  probabilities, ids = map(
    np.asarray,
    _likeliest(found.model, found.params, tokens, lengths, places, top_k=top_k),
  )
  for row in range(len(batch.texts)):
    yield [
      [
        Guess(pieces[i], int(i), float(probability))
        for i, probability in zip(
          ids[row, mask], probabilities[row, mask], strict=True
        )
      ]
      for mask in range(len(masks[row]))
    ]


@functools.partial(jax.jit, static_argnames=('model', 'top_k'))
def _likeliest(
  model: nn.Module,
  params: Any,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  places_BP: jax.Array,
  *,
  top_k: int,
) -> tuple[jax.Array, jax.Array]:
  """Returns the largest probabilities [B, P, top_k] at places, and whose."""
  positions_BT = jnp.broadcast_to(
    jnp.arange(tokens_BT.shape[1]), tokens_BT.shape
  )
  outputs = model.apply(
    {'params': params},
    tokens_BT,
    positions_BT < lengths_B[:, None],
    jnp.zeros_like(tokens_BT),
    positions_BT,
    places_BP,
    train=False,
  )
  return jax.lax.top_k(jax.nn.softmax(outputs['mlm_logits']), top_k)


def read_prompts(path: str) -> list[str]:
  """Returns the lines of a file that are not blank; '-': standard input.

  Raises:
    ValueError: if it is no text in UTF-8, or holds none.
    OSError: if it cannot be read.
  """
  prompts = [
    line for line in text_files.read_text(path).split('\n') if line.strip()
  ]
  if not prompts:
    raise ValueError(f'{path}: is empty, expected a prompt with {MASK} a line')
  return prompts
