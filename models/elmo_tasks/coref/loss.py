"""The loss of end-to-end coreference, and the links that it predicts.

Shapes: B document, K kept span, A antecedent, M mention.
"""

import jax
import jax.numpy as jnp

from models.layers import LOWEST

Array = jax.Array


def antecedent_losses(outputs: dict[str, Array], mentions_BM3: Array) -> Array:
  """Returns the losses of documents (Lee et al. 2017, section 5), float32 [B].

  It is the sum over kept spans of minus the log of the probability of all
  antecedents in the span's cluster, or of none where there are none.

  Args:
    outputs: of `model.EndToEndCoref`.
    mentions_BM3: int32 (first word, last word, cluster >= 0), -1 at padding.
  """
  starts_BK, ends_BK = outputs['starts'], outputs['ends']
  is_real_BK = starts_BK >= 0
  first_BM, last_BM, cluster_BM = (mentions_BM3[..., i] for i in range(3))
  is_mention_BKM = (
    (starts_BK[..., None] == first_BM[:, None])
    & (ends_BK[..., None] == last_BM[:, None])
    & is_real_BK[..., None]
  )
  # The initial value is the maximum where there are no mentions.
  clusters_BK = jnp.where(is_mention_BKM, cluster_BM[:, None], -1).max(
    axis=-1, initial=-1
  )
  antecedents_BKA = outputs['antecedents']
  theirs_BKA = jax.vmap(lambda clusters_K, places_KA: clusters_K[places_KA])(
    clusters_BK, jnp.maximum(antecedents_BKA, 0)
  )
  is_gold_BKA = (
    (theirs_BKA == clusters_BK[..., None])
    & (clusters_BK >= 0)[..., None]
    & (antecedents_BKA >= 0)
  )
  has_none_BK1 = ~is_gold_BKA.any(axis=-1, keepdims=True)
  is_gold_BKC = jnp.concatenate([has_none_BK1, is_gold_BKA], axis=-1)
  logits_BKC = outputs['logits']
  all_BK = jax.nn.logsumexp(logits_BKC, axis=-1)
  gold_BK = jax.nn.logsumexp(
    jnp.where(is_gold_BKC, logits_BKC, LOWEST), axis=-1
  )
  return jnp.where(is_real_BK, all_BK - gold_BK, 0).sum(axis=1)


def links(outputs: dict[str, Array]) -> Array:
  """Returns int32 [B, K, 3]: first word, last word, antecedent's place or -1.

  The place is among the kept spans, and the best by the logits. Rows of -1 are
  padding.
  """
  best_BK1 = outputs['logits'].argmax(axis=-1, keepdims=True)
  chosen_BK = jnp.take_along_axis(
    jnp.pad(
      outputs['antecedents'], [(0, 0), (0, 0), (1, 0)], constant_values=-1
    ),
    best_BK1,
    axis=-1,
  )[..., 0]
  chosen_BK = jnp.where(outputs['starts'] >= 0, chosen_BK, -1)
  return jnp.stack([outputs['starts'], outputs['ends'], chosen_BK], axis=-1)
