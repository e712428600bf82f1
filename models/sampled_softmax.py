"""A word softmax, whole or over a few sampled words (Jean et al. 2015).

Shapes: K towers, B batch, T position, P projection, V vocabulary, padded to a
multiple of 128, S samples.

Words are numbered by falling frequency, and word k is drawn with probability
log((k + 2) / (k + 1)) / log(V + 1), close to Zipf's law. Draws are independent,
for static shapes, and repeated words count once: word k is among the samples
with probability 1 - (1 - p(k))^S. The released program (TensorFlow's
log_uniform_candidate_sampler with unique=True) draws until S words differ and
estimates this probability; ours has fewer distinct words.
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import layers

Array = jax.Array
Dtype = jax.typing.DTypeLike

_LOWEST = jnp.finfo(jnp.float32).min
_PARTS = 2**12  # of the words' range, on a logarithmic scale


class Softmax(nn.Module):
  """The output layer, not tied to the input (bilm-tf, training.py).

  The table is sharded by rows and never gathered. Padding rows beyond
  `vocab_size` are zero and get no gradient. Logits and losses are float32.
  """

  vocab_size: int
  projection_dim: int
  dtype: Dtype = jnp.float32

  def setup(self):
    """Creates W [V, P] and b [V]."""
    P = self.projection_dim
    padded = layers.pad_vocab(self.vocab_size)

    def init(rng: Array, shape: tuple[int, ...]) -> Array:
      table_VP = jax.random.normal(rng, (self.vocab_size, P)) / math.sqrt(P)
      return jnp.pad(table_VP, ((0, shape[0] - self.vocab_size), (0, 0)))

    self.kernel_VP = self.param(
      'kernel', layers.named(init, ('words', 'embed_out')), (padded, P)
    )
    self.bias_V = self.param(
      'bias', layers.named(nn.initializers.zeros, ('words',)), (padded,)
    )

  def create(self) -> None:
    """Makes `setup` create the parameters, without computing anything."""

  def __call__(self, hidden: Array) -> Array:
    """Returns float32 logits [..., V padded], the lowest float32 at padding."""
    logits = jnp.einsum(
      '...P,VP->...V',
      hidden.astype(self.dtype),
      self.kernel_VP.astype(self.dtype),
      preferred_element_type=jnp.float32,
    )
    return layers.mask_padding(logits + self.bias_V, self.vocab_size)

  def losses(self, hidden_KBTP: Array, targets_KBT: Array) -> Array:
    """Returns the losses over all words, float32 [K, B, T] in nats."""

    # To save memory, logits exist for one position of each row at a time.
    @jax.checkpoint
    def score(position: tuple[Array, Array]) -> Array:
      hidden_KBP, targets_KB = position
      logits_KBV = nn.with_logical_constraint(
        self(hidden_KBP), (None, 'activation_rows', 'activation_words')
      )
      # A sum over the shards, where an indexed read would gather them.
      chosen_KBV = jnp.arange(logits_KBV.shape[-1]) == targets_KB[..., None]
      target_KB = jnp.where(chosen_KBV, logits_KBV, 0).sum(axis=-1)
      return jax.nn.logsumexp(logits_KBV, axis=-1) - target_KB

    losses_TKB = lax.map(
      score, (jnp.moveaxis(hidden_KBTP, 2, 0), jnp.moveaxis(targets_KBT, 2, 0))
    )
    return jnp.moveaxis(losses_TKB, 0, 2)

  def sampled_losses(
    self, hidden_KBTP: Array, targets_KBT: Array, samples_KS: Array
  ) -> Array:
    """Returns the losses over target and samples, float32 [K, B, T] in nats.

    Logits are corrected by the log-probability that the word is among the
    samples, so many samples approach `losses`. Repeated samples count once,
    samples equal to the target never. `samples_KS` come from `draw_words`.
    """
    num_targets, num_samples = targets_KBT.size, samples_KS.shape[-1]
    samples_KS = jnp.sort(samples_KS)
    again_KS = jnp.pad(
      samples_KS[:, 1:] == samples_KS[:, :-1], ((0, 0), (1, 0))
    )
    ids = jnp.concatenate([targets_KBT.reshape(-1), samples_KS.reshape(-1)])
    kernel = take_rows(self.kernel_VP, ids).astype(self.dtype)
    # The bias, and the correction of the logit.
    bias = take_rows(self.bias_V, ids) - inclusion_log_probs(
      ids, num_samples, self.vocab_size
    )
    target_KBTP = kernel[:num_targets].reshape(hidden_KBTP.shape)
    sample_KSP = kernel[num_targets:].reshape(*samples_KS.shape, -1)
    hidden_KBTP = hidden_KBTP.astype(self.dtype)
    target_KBT = jnp.einsum(
      'KBTP,KBTP->KBT',
      hidden_KBTP,
      target_KBTP,
      preferred_element_type=jnp.float32,
    ) + bias[:num_targets].reshape(targets_KBT.shape)
    logits_KBTS = jnp.einsum(
      'KBTP,KSP->KBTS',
      hidden_KBTP,
      sample_KSP,
      preferred_element_type=jnp.float32,
    ) + bias[num_targets:].reshape(-1, 1, 1, num_samples)
    hit_KBTS = samples_KS[:, None, None] == targets_KBT[..., None]
    # Counting repeats would make the loss favour overrating frequent words.
    masked_KBTS = hit_KBTS | again_KS[:, None, None]
    logits_KBTS = nn.with_logical_constraint(
      jnp.where(masked_KBTS, _LOWEST, logits_KBTS),
      (None, 'batch', 'activation_length', 'activation_vocab'),
    )
    # log(1 + exp(others - target))
    return jax.nn.softplus(jax.nn.logsumexp(logits_KBTS, -1) - target_KBT)


def draw_words(rng: Array, shape: tuple[int, ...], vocab_size: int) -> Array:
  """Draws int32 words below V with replacement, close to Zipf's law."""
  first, second = jax.random.uniform(rng, (2, *shape))
  # One draw picks a part of [0, log(V + 1)), another a place in it: a single
  # float32 draw would err by whole words in a vocabulary of a million.
  scale = math.log(vocab_size + 1)
  start = jnp.exp(jnp.floor(first * _PARTS) / _PARTS * scale)
  drawn = start + start * jnp.expm1(second / _PARTS * scale)
  return jnp.clip(drawn.astype(jnp.int32) - 1, 0, vocab_size - 1)


def inclusion_log_probs(ids: Array, num_samples: int, vocab_size: int) -> Array:
  """Returns log(1 - (1 - p(k))^S), that each word is among S samples."""
  share = jnp.log1p(1 / (ids.astype(jnp.float32) + 1))
  missed = num_samples * jnp.log1p(-share / math.log(vocab_size + 1))
  return jnp.log(-jnp.expm1(missed))


@jax.custom_vjp
def take_rows(table: Array, ids: Array) -> Array:
  """Returns rows [N, ...] of a table sharded by 'words', for N ids below V."""
  return _replicated(jnp.take(table, _replicated(ids), axis=0, mode='clip'))


def _take_rows(table: Array, ids: Array) -> tuple[Array, tuple]:
  return take_rows(table, ids), (ids, table)


def _add_rows(saved: tuple, gradient: Array) -> tuple[Array, None]:
  ids, table = saved
  zeros = _in_shards(jnp.zeros_like(table))
  total = zeros.at[_replicated(ids)].add(_replicated(gradient), mode='drop')
  return _in_shards(total), None


take_rows.defvjp(_take_rows, _add_rows)


def _replicated(array: Array) -> Array:
  return nn.with_logical_constraint(array, (None,) * array.ndim)


def _in_shards(table: Array) -> Array:
  names = ('words', 'embed_out')[: table.ndim]
  return nn.with_logical_constraint(table, names)
