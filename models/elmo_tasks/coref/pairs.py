"""Scores of pairs of spans, computed in blocks of targets.

Shapes: K kept span, A antecedent, D features of a span, P features of a pair,
F hidden, I target of a block, J span of the block's window.

Memory is bounded in three ways. The first layer on [target; antecedent; product
of both; features] is a sum of four products; those of the antecedent and of the
product are one, a_j (t_i * W_product + W_antecedent), a matrix product of the
window's spans with kernels scaled by each target, so no pair has D features of
its own. Blocks of `BLOCK` targets follow one another in a loop. The backward
pass computes each block again, but for this product: its F values are all that
is kept of a pair.
"""

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from models import dropout
from models.elmo_tasks.coref import scorer, spans
from models.layers import LOWEST

Array = jax.Array

BLOCK = 16  # targets: their scaled kernels are 12 MB at the published sizes
# A window reaches back as far as its block's targets may; blocks are looped
# over in groups of equal windows, the early ones of which are shorter.
NUM_GROUPS = 3

PRODUCTS = 'pair_products'  # their name where a backward pass may keep them


class Features(NamedTuple):
  """Features of pairs of one document's spans.

  Attributes:
    distances: float [10, P'], the table of distances.
    speakers: float [2, P'], the tables' rows of different and of equal speakers
      or None.
    genre: float [P'], or None.
    speaker_K: int32 [K], the speaker of each span.
    are_dropped: whether dropout is of features, too.
  """

  distances: Array
  speakers: Array | None
  genre: Array | None
  speaker_K: Array
  are_dropped: bool = True

  def of_pairs(self, distance: Array, is_same: Array) -> Array:
    """Returns [..., P] for distances in spans and equality of speakers."""
    # A product, as the gradient of a look-up is slow on a CPU.
    bins = jax.nn.one_hot(
      spans.bucket(distance), spans.NUM_DISTANCES, dtype=self.distances.dtype
    )
    found = [bins @ self.distances]
    if self.speakers is not None:
      different, same = self.speakers
      of_speakers = jnp.where(is_same[..., None], same, different)
      found = [
        of_speakers,
        jnp.broadcast_to(self.genre, of_speakers.shape),
        *found,
      ]
    return jnp.concatenate(found, axis=-1)


def nearest_scores(
  weights: scorer.ScorerWeights,
  spans_KD: Array,
  count: Array,
  features: Features,
  num_antecedents: int,
  seeds_K: dropout.Seeds | None,
  rate: float,
) -> Array:
  """Returns scores of each span with those before, float32 [K, A].

  Antecedents are nearest first. Scores are meaningless where there is none.

  Args:
    weights: of the scorer, on [target; antecedent; product; features].
    spans_KD: spans of one document.
    count: how many are real; blocks without real targets are skipped.
    features: of the pairs.
    num_antecedents: A.
    seeds_K: of dropout, or None.
    rate: of dropout.
  """
  K, A = len(spans_KD), num_antecedents
  groups = [*_groups(K, A)]
  before = max(window for *_, window in groups) - BLOCK
  after = -K % BLOCK

  def pad(x: Array) -> Array:
    return jnp.pad(x, [(before, after)] + [(0, 0)] * (x.ndim - 1))

  arrays = jax.tree.map(pad, (spans_KD, features.speaker_K))
  if seeds_K is not None:
    seeds = pad(seeds_K.first), pad(seeds_K.second)
  of_target_KF = pad(spans_KD @ _split(weights, spans_KD.shape[1])[0])

  def score(window: int, b: Array) -> Array:
    # The block's targets are the last spans of their window.
    end = before + (b + 1) * BLOCK

    def of_window(x: Array) -> Array:
      return lax.dynamic_slice_in_dim(x, end - window, window)

    a_JD, speaker_J = map(of_window, arrays)
    t_ID, speaker_I = a_JD[-BLOCK:], speaker_J[-BLOCK:]
    _, Wa_DF, Wp_DF, Wf_PF = _split(weights, spans_KD.shape[1])
    scaled_DIF = t_ID.T[:, :, None] * Wp_DF[:, None] + Wa_DF[:, None]
    hidden_JQ = a_JD @ scaled_DIF.reshape(len(Wa_DF), -1)
    hidden_JIF = checkpoint_name(hidden_JQ, PRODUCTS).reshape(window, BLOCK, -1)
    distance_JI = window - BLOCK + np.arange(BLOCK) - np.arange(window)[:, None]
    x_JIP = features.of_pairs(
      np.maximum(distance_JI, 0), speaker_J[:, None] == speaker_I
    )
    drop = None
    if seeds_K is not None:
      drop = scorer.Drop(
        dropout.Seeds(*map(of_window, seeds), dropout.salt(b)),
        jnp.arange(BLOCK, dtype=jnp.int32),
        rate,
        features.are_dropped,
      )
    x_JIP = scorer.drop_features(drop, x_JIP)
    of_target_IF = lax.dynamic_slice_in_dim(of_target_KF, end - BLOCK, BLOCK)
    hidden_JIF = hidden_JIF + x_JIP @ Wf_PF + of_target_IF
    scores_IJ = scorer.finish(weights, hidden_JIF, drop).T
    # Antecedent o of the block's target i: o + 1 places before it.
    places_IA = window - BLOCK - 1 + np.arange(BLOCK)[:, None] - np.arange(A)
    return jnp.take_along_axis(scores_IJ, np.maximum(places_IA, 0), axis=1)

  found = []
  for first, last, window in groups:
    run = jax.checkpoint(
      functools.partial(score, window),
      policy=jax.checkpoint_policies.save_only_these_names(PRODUCTS),
    )

    def run_real(b: Array, run=run) -> Array:
      return lax.cond(
        b * BLOCK < count, run, lambda b: jnp.zeros((BLOCK, A)), b
      )

    found.append(lax.map(run_real, jnp.arange(first, last)))
  return jnp.concatenate(found).reshape(-1, A)[:K]


def _groups(K: int, A: int) -> Iterator[tuple[int, int, int]]:
  """Yields (first block, last block + 1, spans of a window)."""
  blocks = math.ceil(K / BLOCK)
  longest = min(blocks, math.ceil(A / BLOCK) + 1)
  ends = {math.ceil(longest * g / NUM_GROUPS) for g in range(1, NUM_GROUPS + 1)}
  first = 0
  for end in sorted(ends | {blocks}):
    yield first, end, min(end, longest) * BLOCK
    first = end


def choose(
  coarse_KK: Array, count: Array, num_antecedents: int
) -> tuple[Array, Array]:
  """Returns the best antecedents of each target by coarse scores.

  Args:
    coarse_KK: float32 [target, antecedent].
    count: how many spans are real.
    num_antecedents: A.

  Returns:
    int32 [K, A], nearest first, -1 where there is none; float32 [K, A], their
    coarse scores, the lowest float32 where there is none.
  """
  places_K = jnp.arange(len(coarse_KK))
  is_before_KK = (places_K < places_K[:, None]) & (places_K[:, None] < count)
  coarse_KK = jnp.where(is_before_KK, coarse_KK, LOWEST)
  chosen_KA = lax.top_k(lax.stop_gradient(coarse_KK), num_antecedents)[1]
  is_real_KA = jnp.take_along_axis(is_before_KK, chosen_KA, axis=1)
  chosen_KA = -jnp.sort(-jnp.where(is_real_KA, chosen_KA, -1), axis=1)
  found_KA = jnp.take_along_axis(coarse_KK, jnp.maximum(chosen_KA, 0), axis=1)
  return chosen_KA, jnp.where(chosen_KA >= 0, found_KA, LOWEST)


def chosen_scores(
  weights: scorer.ScorerWeights,
  spans_KD: Array,
  count: Array,
  features: Features,
  antecedents_KA: Array,
  bias_KA: Array,
  seeds_K: dropout.Seeds | None,
  rate: float,
) -> tuple[Array, Array]:
  """Returns scores of chosen pairs, and each target's expected antecedent.

  Args:
    weights: of the scorer, on [target; antecedent; product; features].
    spans_KD: spans of one document.
    count: how many are real; blocks without real targets are skipped.
    features: of the pairs.
    antecedents_KA: int32 [K, A], places of antecedents, -1 where none.
    bias_KA: float32, added to the scores; the lowest where there is none.
    seeds_K: of dropout, or None.
    rate: of dropout.

  Returns:
    float32 [K, A], scores with their biases; float [K, D], the average of the
    antecedents and, for the dummy, of the target itself, by their probability.
  """
  K, D = spans_KD.shape
  A = antecedents_KA.shape[1]
  blocks = math.ceil(K / BLOCK)
  after = -K % BLOCK

  def in_blocks(x: Array) -> Array:
    padded = jnp.pad(x, [(0, after)] + [(0, 0)] * (x.ndim - 1))
    return padded.reshape(blocks, BLOCK, *x.shape[1:])

  Wt_DF, Wa_DF, Wp_DF, Wf_PF = _split(weights, D)
  of_target_KF, of_antecedent_KF = spans_KD @ Wt_DF, spans_KD @ Wa_DF

  @jax.checkpoint
  def score(inputs: tuple) -> tuple[Array, Array]:
    b, t_ID, of_target_IF, places_IA, bias_IA, seeds_I = inputs
    places_IA = jnp.maximum(places_IA, 0)
    targets_I1 = jnp.minimum(b * BLOCK + jnp.arange(BLOCK), K - 1)[:, None]
    a_IAD = spans_KD[places_IA]
    x_IAP = features.of_pairs(
      jnp.maximum(targets_I1 - places_IA, 0),
      features.speaker_K[targets_I1] == features.speaker_K[places_IA],
    )
    drop = None
    if seeds_K is not None:
      drop = scorer.Drop(
        dropout.Seeds(*seeds_I, seeds_K.layer),
        jnp.arange(A, dtype=jnp.int32),
        rate,
        features.are_dropped,
      )
    x_IAP = scorer.drop_features(drop, x_IAP)
    hidden_IAF = (
      (t_ID[:, None] * a_IAD) @ Wp_DF
      + of_antecedent_KF[places_IA]
      + of_target_IF[:, None]
      + x_IAP @ Wf_PF
    )
    scores_IA = scorer.finish(weights, hidden_IAF, drop)
    # The bias alone where there is no antecedent: more would be infinite.
    scores_IA = jnp.where(bias_IA > LOWEST, scores_IA + bias_IA, LOWEST)
    logits_IC = jnp.pad(scores_IA, [(0, 0), (1, 0)])
    weights_IC = jax.nn.softmax(logits_IC, axis=-1).astype(t_ID.dtype)
    expected_ID = weights_IC[:, :1] * t_ID + jnp.einsum(
      'IA,IAD->ID', weights_IC[:, 1:], a_IAD
    )
    return scores_IA, expected_ID

  def score_real(inputs: tuple) -> tuple[Array, Array]:
    nothing = jnp.zeros((BLOCK, A)), jnp.zeros((BLOCK, D), spans_KD.dtype)
    return lax.cond(
      inputs[0] * BLOCK < count, score, lambda inputs: nothing, inputs
    )

  seeds = ()
  if seeds_K is not None:
    seeds = in_blocks(seeds_K.first), in_blocks(seeds_K.second)
  arrays = map(in_blocks, (spans_KD, of_target_KF, antecedents_KA, bias_KA))
  found = lax.map(score_real, (jnp.arange(blocks), *arrays, seeds))
  return tuple(x.reshape(-1, x.shape[-1])[:K] for x in found)


def _split(weights: scorer.ScorerWeights, D: int) -> list[Array]:
  """Returns the first kernel's rows: target, antecedent, product, features."""
  return jnp.split(weights.first_DF, [D, 2 * D, 3 * D])
