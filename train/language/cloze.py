"""The likeliest word pieces in place of masks."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.vocabulary.encoder_tokenizer import MaskingTokenizer
from models import bert
from models.layers import Params
from train.architectures.architecture import Architecture
from train.language.inputs import check_masked
from train.vectors import length_batches
from train.vectors.trained_model import TrainedModel

BATCH_TOKENS = 4096


class Guess(NamedTuple):
  """A word piece for a mask, and its probability among all pieces."""

  piece: str
  id: int
  probability: float


def encode_prompt(tokenizer: MaskingTokenizer, prompt: str) -> list[int]:
  """Returns ids of [CLS], a prompt with its special tokens, and [SEP]."""
  inside = tokenizer.encode_prompt(prompt)
  return [tokenizer.cls_id, *inside, tokenizer.sep_id]


def check_model(model: bert.Bert) -> None:
  """Checks that a BERT predicts masked pieces."""
  if model.left_to_right:
    raise ValueError(
      'these weights read from left to right and have never seen a mask: give'
      ' those of a BERT that reads both ways'
    )
  check_head(model)


def check_head(model: bert.Bert) -> None:
  """Checks that a BERT predicts pieces, masked ones or, to the right, next."""
  if 'mlm' not in model.heads:
    raise ValueError(
      'these weights have no head for masked pieces (mlm), found'
      f' {", ".join(model.heads) or "the encoder alone"}: give those of a BERT'
      ' as it was pre-trained, a workdir of train.main --config bert_base or'
      " Hugging Face's BertForMaskedLM or BertForPreTraining, such as"
      ' google-bert/bert-base-uncased'
    )


def fill(
  found: TrainedModel, prompts: Sequence[str], *, top_k: int = 5
) -> list[list[list[Guess]]]:
  """Returns the `top_k` likeliest pieces for each mask of each prompt.

  Each mask is filled while the prompt's other masks stay. Raises ValueError if
  the model has no MLM head, or a prompt no mask or too many pieces.
  """
  model, tokenizer = found.model, found.tokenizer
  check_masked(prompts, tokenizer.mask)
  check_model(model)
  if not 1 <= top_k <= tokenizer.vocab_size:
    raise ValueError(
      f'--top_k={top_k}: expected 1 to {tokenizer.vocab_size:,}, the vocabulary'
    )
  encoded = [encode_prompt(tokenizer, prompt) for prompt in prompts]
  too_long = [
    f'text {number}: {len(ids):,}'
    for number, ids in enumerate(encoded, start=1)
    if len(ids) > model.max_length
  ]
  if too_long:
    expected = (
      f'expected {model.max_length:,} pieces at most, [CLS] and [SEP] included,'
      ' the positions of the model; shorten'
    )
    raise ValueError('\n  '.join([expected, *too_long]))
  guesses: dict[int, list[list[Guess]]] = {}
  for batch in length_batches.batches_by_length(
    enumerate(encoded), BATCH_TOKENS, added=0, longest=model.max_length
  ):
    filled = _fill_batch(found, batch, top_k)
    guesses |= zip(batch.numbers, filled, strict=True)
  return [guesses[number] for number in range(len(prompts))]


def _fill_batch(
  found: TrainedModel, batch: length_batches.TextBatch, top_k: int
) -> Iterator[list[list[Guess]]]:
  """Yields the guesses for each prompt of a batch."""
  mask_id, pieces = found.tokenizer.mask_id, found.tokenizer.pieces
  tokens, lengths = length_batches.pad(batch.texts, batch.rows, batch.length)
  masks = [np.flatnonzero(np.array(ids) == mask_id) for ids in batch.texts]
  most = 1 << (max(map(len, masks)) - 1).bit_length()  # few programs
  places, _ = length_batches.pad(masks, batch.rows, most)
  family = found.family
  inputs = found.model, found.params, tokens, lengths, places
  likeliest = _likeliest(*inputs, family=family, top_k=top_k)
  for row in zip(masks, *map(np.asarray, likeliest), strict=False):
    yield [
      [Guess(pieces[i], int(i), float(p)) for i, p in zip(*top, strict=True)]
      for _, *top in zip(*row, strict=False)
    ]


@functools.partial(jax.jit, static_argnames=('model', 'family', 'top_k'))
def _likeliest(
  model: nn.Module,
  params: Params,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  masks_BP: jax.Array,
  *,
  family: Architecture,
  top_k: int,
) -> tuple[jax.Array, jax.Array]:
  """Returns token ids [B, P, top_k] and their probabilities, for each mask."""
  places_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
  mask_BT = places_BT < lengths_B[:, None]
  inputs = family.text_inputs(tokens_BT, mask_BT, places_BT)
  outputs = model.apply({'params': params}, *inputs, masks_BP, train=False)
  probabilities = jax.nn.softmax(outputs['mlm_logits'])
  return jax.lax.top_k(probabilities, top_k)[::-1]
