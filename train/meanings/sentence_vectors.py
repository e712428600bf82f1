"""Sentence vectors of all layers at once, pooled in four ways.

Shapes: N pair, B batch, T position, P pool, L layer with the embeddings, D
embed.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models.layers import Params
from train.architectures.architecture import Architecture
from train.host import console
from train.meanings import geometry
from train.vectors import length_batches, text_layers
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

# The first position, [CLS]; the mean and the largest element over all
# positions; the last one, [SEP] of a BERT. A GPT has neither symbol.
POOLS = ('cls', 'mean', 'max', 'last')
DIGITS = 6  # of cosines
PAIRS_AT_ONCE = 256  # sorted by length; their vectors take 40 MB of BERT-Base


class Cosines(NamedTuple):
  """Similarity of pairs of texts.

  Attributes:
    pools: names of the P pools; without 'cls' for a model whose first position
      sees no other.
    values: float64 [N, P, L], -1 to 1; 0 for a text without tokens. They are
      rounded to 6 digits, as float32 gives no more: the [CLS] of layer 0 is the
      same in every text, and a rank of roundings would mean nothing.
    num_cut: texts that were longer than the model's positions, and lost their
      end.
  """

  pools: tuple[str, ...]
  values: np.ndarray
  num_cut: int


def compare(found: TrainedModel, pairs: Sequence[Sequence[str]]) -> Cosines:
  """Returns the cosines of pairs of texts by every pool of every layer.

  Each text is read alone, framed as in `train.embed`, and may not be longer
  than the model's positions: its end is cut.
  """
  plan = found.plan(Request('token', choice=Choice('all')))
  model, params = found.prepared()
  both_ways = plan.family.reads_both_ways(model)
  pools = POOLS if both_ways else POOLS[1:]
  size = plan.window - plan.added
  num_layers = model.num_layers + 1
  values = np.zeros((len(pairs), len(pools), num_layers))
  num_cut = 0

  def compute(
    texts: Sequence[Sequence[int]],
  ) -> Iterator[tuple[length_batches.TextBatch, jax.Array]]:
    items = [item for item in enumerate(texts) if item[1] or plan.added]
    for batch, inputs in text_layers.batches(plan, items):
      yield batch, _pool(model, params, *inputs, family=plan.family)

  with console.ProgressBar(0, len(pairs)) as bar:
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
      part = pairs[start : start + PAIRS_AT_ONCE]
      texts = found.encode(list(itertools.chain.from_iterable(part)))
      num_cut += sum(len(ids) > size for ids in texts)
      shape = 2 * len(part), len(POOLS), num_layers, model.embed_dim
      vectors = np.zeros(shape, np.float32)
      cut = [ids[:size] for ids in texts]
      for batch, pooled in length_batches.on_host(compute(cut)):
        vectors[list(batch.numbers)] = pooled[: len(batch.numbers)]
      first, second = (
        geometry.unit(vectors[:, -len(pools) :])
        .reshape(len(part), 2, len(pools), num_layers, -1)
        .swapaxes(0, 1)
      )
      values[start : start + len(part)] = np.sum(first * second, axis=-1)
      bar.update(start + len(part), '')
  return Cosines(pools, np.clip(values.round(DIGITS), -1.0, 1.0), num_cut)


@functools.partial(jax.jit, static_argnames=('model', 'family'))
def _pool(
  model: nn.Module,
  params: Params,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  *,
  family: Architecture,
) -> jax.Array:
  """Returns the four `POOLS` of each layer, float32 [B, P, L, D]."""
  layers_LBTD = text_layers.hidden_layers(
    model, params, tokens_BT, lengths_B, family=family
  )
  mask_BT = jnp.arange(tokens_BT.shape[1]) < lengths_B[:, None]
  mask_BT1 = mask_BT[..., None]
  ends_B = jnp.maximum(lengths_B, 1)
  sums_LBD = jnp.where(mask_BT1, layers_LBTD, 0).sum(axis=2)
  last_B11 = (ends_B - 1)[:, None, None]
  pooled_PLBD = jnp.stack(
    [
      layers_LBTD[:, :, 0],
      sums_LBD / ends_B[:, None],
      jnp.where(mask_BT1, layers_LBTD, -jnp.inf).max(axis=2),
      jnp.take_along_axis(layers_LBTD, last_B11[None], axis=2)[:, :, 0],
    ]
  )
  return pooled_PLBD.transpose(2, 0, 1, 3)
