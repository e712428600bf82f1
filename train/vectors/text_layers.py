"""All layers of framed texts, in batches, for every use of their vectors.

Shapes: B batch, T position, L layer with the embeddings, D embed.
"""

from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models import features
from models.layers import Params
from train.architectures.architecture import Architecture
from train.vectors import length_batches
from train.vectors.length_batches import TextBatch
from train.vectors.text_plan import TextPlan
from train.vectors.token_windows import Window


def batches(
  plan: TextPlan,
  items: Iterable[tuple[int | tuple[int, Window], Sequence[int]]],
  batch_tokens: int | None = None,
) -> Iterator[tuple[TextBatch, tuple[np.ndarray, np.ndarray]]]:
  """Yields (batch, (ids [B, T], lengths [B])) of framed texts, longest first.

  `items` are (number of a text, ids) or ((number, window), ids), without the
  frame; with the frame, the ids are no longer than the plan's window.
  `batch_tokens` is rows times length; None stands for the device's default.
  """
  if batch_tokens is None:
    batch_tokens = length_batches.default_tokens()
  for batch in length_batches.batches_by_length(
    items, batch_tokens, added=plan.added, longest=plan.window
  ):
    framed = [[*plan.begin, *ids, *plan.end] for ids in batch.texts]
    yield batch, length_batches.pad(framed, batch.rows, batch.length)


def hidden_layers(
  model: nn.Module,
  params: Params,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  shift: jax.Array | int = 0,
  *,
  family: Architecture,
) -> jax.Array:
  """Returns the layers of texts, float32 [L, B, T, D]; call it in a jit.

  `model` and `params` are of `TrainedModel.prepared`, tokens and lengths of
  `batches`. The position ids of all texts begin at `shift`.
  """
  places_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
  mask_BT = places_BT < lengths_B[:, None]
  inputs = family.text_inputs(tokens_BT, mask_BT, places_BT + shift)
  layers_LBTD = features.hidden_layers(model, params, *inputs)
  return layers_LBTD.astype(jnp.float32)
