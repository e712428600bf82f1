"""The probability that a text follows another, by BERT's head."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models import bert
from models.layers import Params
from train.vectors import length_batches
from train.vectors.trained_model import TrainedModel

BATCH_TOKENS = 4096
FOLLOWS = 0  # the class of B that is really next (google-research/bert)


def check_model(model: bert.Bert) -> None:
  """Checks that a BERT has learnt next sentences."""
  if 'nsp' not in model.heads:
    raise ValueError(
      'these weights have no head for next sentences (nsp), found'
      f' {", ".join(model.heads) or "the encoder alone"}: give those of a BERT'
      ' as it was pre-trained with them, a workdir of train.main --config'
      " bert_base or Hugging Face's BertForPreTraining, such as"
      ' google-bert/bert-base-uncased'
    )


def probabilities(
  found: TrainedModel, pairs: Sequence[tuple[str, str]]
) -> np.ndarray:
  """Returns float32 [pairs], the probabilities that B follows A.

  Raises ValueError if the model has no such head, or a pair is too long.
  """
  check_model(found.model)
  tokenizer, longest = found.tokenizer, found.model.max_length
  encoded = tokenizer.encode_batch([text for pair in pairs for text in pair])
  rows, firsts = [], []
  for number in range(len(pairs)):
    a, b = encoded[2 * number : 2 * number + 2]
    between = [tokenizer.sep_id] * tokenizer.separators
    ids = [tokenizer.cls_id, *a, *between, *b, tokenizer.sep_id]
    if len(ids) > longest:
      raise ValueError(
        f'pair {number + 1} has {len(ids):,} pieces, [CLS] and both [SEP]'
        f' included; expected {longest:,} at most, the positions of the model'
      )
    rows.append(ids)
    firsts.append(1 + len(a) + len(between))
  result = np.zeros(len(pairs), np.float32)
  for batch in length_batches.batches_by_length(
    enumerate(rows), BATCH_TOKENS, added=0, longest=longest
  ):
    tokens, lengths = length_batches.pad(batch.texts, batch.rows, batch.length)
    of_first = np.zeros(batch.rows, np.int32)
    of_first[: len(batch.numbers)] = [firsts[i] for i in batch.numbers]
    chances = _follows(found.model, found.params, tokens, lengths, of_first)
    numbers = list(batch.numbers)
    result[numbers] = np.asarray(chances)[: len(numbers)]
  return result


@functools.partial(jax.jit, static_argnames='model')
def _follows(
  model: nn.Module,
  params: Params,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  firsts_B: jax.Array,
) -> jax.Array:
  """Returns float32 [B] for ids, lengths, and the pieces of the first texts."""
  places_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
  mask_BT = places_BT < lengths_B[:, None]
  types_BT = ((places_BT >= firsts_B[:, None]) & mask_BT).astype(jnp.int32)
  outputs = model.clone(heads=('pooler', 'nsp')).apply(
    {'params': params}, tokens_BT, mask_BT, types_BT, places_BT, train=False
  )
  return jax.nn.softmax(outputs['nsp_logits'], axis=-1)[:, FOLLOWS]
