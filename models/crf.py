"""Linear-chain conditional random field (Lafferty et al. 2001) for tags.

Shapes: B example, T position, K tags. A mask is True at the positions that have
tags, not only the first of a row: the others, such as the later pieces of a
word, are skipped as if absent.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

from models.features import check_name
from models.layers import named

Array = jax.Array
Allowed = tuple[tuple[bool, ...], ...]

# Score of a forbidden transition: AllenNLP 0.9.0, viterbi_tags of
# modules/conditional_random_field.py.
FORBIDDEN = -10_000.0


# What a path of tags adds up beside the scores of its tags, or in their place.
SCORES = ('learned', 'log_probabilities', 'probabilities')


class Crf(nn.Module):
  """The best paths of tags, under scores of transitions or constraints alone.

  There is no score at a row's start and end. As AllenNLP 0.9.0 in its configs
  of NER, training knows no constraints, only the best path obeys them.

  Attributes:
    num_tags: K.
    allowed: whether a tag may follow another, [K + 2, K + 2] (from, to), where
      K is the start and K + 1 the end of a row; None: all may.
    scores: one of `SCORES`. 'learned': a path adds the scores of its tags and
      learned ones of its transitions. Else tags have a softmax each, and a path
      adds their log-probabilities (He et al. 2017) or, as AllenNLP 0.9.0's
      semantic_role_labeler.py, their probabilities.
  """

  num_tags: int
  allowed: Allowed | None = None
  scores: str = 'learned'

  def setup(self):
    """Creates the scores."""
    check_name('scores', self.scores, SCORES)
    if self.scores == 'learned':
      # Xavier normal on [K, K].
      draw = nn.initializers.normal(1 / math.sqrt(self.num_tags))
      self.transitions_KK = self.param(
        'transitions', named(draw, ('classes', None)), (self.num_tags,) * 2
      )

  def __call__(self, logits_BTK: Array, mask_BT: Array) -> Array:
    """Returns the scores of the best paths, see `best_scores`."""
    if self.scores == 'learned':
      added_KK = self.transitions_KK
    else:
      softmax = {
        'log_probabilities': jax.nn.log_softmax,
        'probabilities': jax.nn.softmax,
      }[self.scores]
      logits_BTK = softmax(logits_BTK.astype(jnp.float32))
      added_KK = jnp.zeros((self.num_tags,) * 2)
    return best_scores(logits_BTK, added_KK, self.allowed, mask_BT)

  def outputs(
    self, logits_BTK: Array, mask_BT: Array, *, train: bool
  ) -> dict[str, Array]:
    """Returns a tagger's outputs.

    These are the scores of tags as `emissions`, the learned `transitions`, and
    as `logits` in training the emissions, else the scores of the best paths.
    """
    outputs = {
      'emissions': logits_BTK,
      'logits': logits_BTK if train else self(logits_BTK, mask_BT),
    }
    if self.scores == 'learned':
      outputs['transitions'] = self.transitions_KK
    return outputs


class _Carry(NamedTuple):
  """The state of a scan behind a position.

  Attributes:
    scores: float32 [B, K], of the paths with each tag at the last position read
      where the mask is True.
    begun: bool [B], whether there was such a position.
  """

  scores: Array
  begun: Array


def log_likelihood(
  logits_BTK: Array, transitions_KK: Array, tags_BT: Array, mask_BT: Array
) -> Array:
  """Returns the log-likelihood of each row's tags among all paths.

  Args:
    logits_BTK: scores of tags.
    transitions_KK: scores of a tag (first axis) before another.
    tags_BT: int; any numbers where the mask is False.
    mask_BT: bool.

  Returns:
    float32 [B]; 0 for rows without a True in the mask.
  """
  logits_BTK = _clean(logits_BTK, mask_BT)
  tags_BT = jnp.where(mask_BT, tags_BT, 0)

  def step(carry: _Carry, inputs: tuple[Array, Array]) -> tuple[_Carry, None]:
    logits_BK, mask_B = inputs
    paths_BK = jax.nn.logsumexp(
      carry.scores[:, :, None] + transitions_KK, axis=1
    )
    return _advance(carry, mask_B, paths_BK, 0.0, logits_BK), None

  last, _ = lax.scan(
    step, _begin(logits_BTK), _by_position(logits_BTK, mask_BT)
  )
  partition_B = jax.nn.logsumexp(last.scores, axis=1)

  # The place of the last tag before each position, -1 without one.
  places_BT = jnp.where(mask_BT, jnp.arange(mask_BT.shape[1]), -1)
  before_BT = jnp.pad(
    lax.cummax(places_BT, axis=1)[:, :-1], ((0, 0), (1, 0)), constant_values=-1
  )
  tags_before_BT = jnp.take_along_axis(
    tags_BT, jnp.maximum(before_BT, 0), axis=1
  )
  emitted_BT = jnp.take_along_axis(logits_BTK, tags_BT[:, :, None], axis=2)
  moved_BT = jnp.where(
    before_BT >= 0, transitions_KK[tags_before_BT, tags_BT], 0
  )
  path_B = jnp.where(mask_BT, emitted_BT[:, :, 0] + moved_BT, 0).sum(axis=1)
  return jnp.where(last.begun, path_B - partition_B, 0)


def best_scores(
  logits_BTK: Array,
  transitions_KK: Array,
  allowed: Allowed | None,
  mask_BT: Array,
) -> Array:
  """Returns the score of the best path through each tag at each position.

  Over the tags, the largest lie on the best path of the row (Viterbi 1967),
  unless two paths are equally good.

  Args:
    logits_BTK: scores of tags.
    transitions_KK: scores of a tag (first axis) before another.
    allowed: see `Crf`; each transition that is not costs 10,000.
    mask_BT: bool.

  Returns:
    float32 [B, T, K], the logits where the mask is False.

  Raises:
    ValueError: if `allowed` is not [K + 2, K + 2].
  """
  K = len(transitions_KK)
  allowed = np.ones((K + 2,) * 2, bool) if allowed is None else allowed
  allowed = np.asarray(allowed, bool)
  if allowed.shape != (K + 2, K + 2):
    raise ValueError(
      f'allowed transitions are {allowed.shape}, expected {(K + 2, K + 2)}: of'
      f' {K} tags, the start and the end'
    )
  costs = np.where(allowed, np.float32(0), np.float32(FORBIDDEN))
  start_K, end_K = costs[K, :K], costs[:K, K + 1]
  transitions_KK = transitions_KK + costs[:K, :K]
  unchanged_BTK, logits_BTK = logits_BTK, _clean(logits_BTK, mask_BT)

  def read_on(carry: _Carry, inputs: tuple) -> tuple[_Carry, Array]:
    logits_BK, mask_B = inputs
    paths_BK = (carry.scores[:, :, None] + transitions_KK).max(axis=1)
    carry = _advance(carry, mask_B, paths_BK, start_K, logits_BK)
    return carry, carry.scores

  def read_back(carry: _Carry, inputs: tuple) -> tuple[_Carry, Array]:
    logits_BK, mask_B = inputs
    paths_BK = (carry.scores[:, None] + transitions_KK).max(axis=2)
    after_BK = jnp.where(carry.begun[:, None], paths_BK, end_K)
    return _advance(carry, mask_B, paths_BK, end_K, logits_BK), after_BK

  first = _begin(logits_BTK)
  rows = _by_position(logits_BTK, mask_BT)
  _, until_TBK = lax.scan(read_on, first, rows)
  _, after_TBK = lax.scan(read_back, first, rows, reverse=True)
  scores_BTK = (until_TBK + after_TBK).swapaxes(0, 1)
  return jnp.where(mask_BT[:, :, None], scores_BTK, unchanged_BTK)


def _clean(logits_BTK: Array, mask_BT: Array) -> Array:
  logits_BTK = logits_BTK.astype(jnp.float32)
  return jnp.where(mask_BT[:, :, None], logits_BTK, 0)


def _by_position(logits_BTK: Array, mask_BT: Array) -> tuple[Array, Array]:
  return logits_BTK.swapaxes(0, 1), mask_BT.T


def _begin(logits_BTK: Array) -> _Carry:
  zeros_BK = jnp.zeros_like(logits_BTK[:, 0])
  return _Carry(zeros_BK, jnp.zeros(len(zeros_BK), bool))


def _advance(
  carry: _Carry,
  mask_B: Array,
  paths_BK: Array,
  first_K: Array | float,
  logits_BK: Array,
) -> _Carry:
  """Returns the carry behind a position, unchanged where the mask is False.

  The scores of the paths up to it are `first_K` if it is the first.
  """
  paths_BK = jnp.where(carry.begun[:, None], paths_BK, first_K) + logits_BK
  return _Carry(
    jnp.where(mask_B[:, None], paths_BK, carry.scores), carry.begun | mask_B
  )
