"""Counts model FLOPs in a module's traced program; MFU follows from them."""

import dataclasses
import functools
import math

import jax
import jax.extend
from flax import linen as nn

from models.layers import VOCAB_MULTIPLE

STREAMS = ('params', 'dropout', 'samples')  # of random numbers


@functools.cache
def forward(
  model: nn.Module,
  inputs: tuple,
  *,
  vocab_size: int,
  method: str = '__call__',
  **arguments: bool,
) -> int:
  """Returns the FLOPs of a module's forward pass; nothing is computed.

  This is the one definition: the product of an [m, k] and a [k, n] matrix has
  2 m k n FLOPs, and only matrix products count. Attention counts all T x T
  scores, masked ones included. ELMo's character encoder counts each word, as
  published, although the program encodes equal words once. A training step has
  three times these FLOPs; rematerialisation does not count, as usual for MFU
  (Chowdhery et al. 2022, appendix B), nor does what a kernel of attention
  computes again or for padding: the plain attention is counted.

  `inputs` are the ShapeDtypeStructs that `method` takes, `arguments` its
  keywords. `vocab_size` is V without padding; modules without a vocabulary
  ignore it, and 0 leaves out products with the vocabulary.
  """
  model = _with_plain_attention(model)

  def count(vocab_size: int | None) -> int:
    # Initialisation encodes every word, and has no products of its own.
    sized = model if vocab_size is None else model.clone(vocab_size=vocab_size)
    init = functools.partial(sized.init, method=method, **arguments)
    rngs = {name: jax.random.key(0) for name in STREAMS}
    with nn.logical_axis_rules(()):  # on any mesh alike
      return _count_products(jax.make_jaxpr(init)(rngs, *inputs).jaxpr)

  if not hasattr(model, 'vocab_size'):
    return count(None)
  # FLOPs are linear in the vocabulary, and these two sizes have no padding.
  small, large = count(VOCAB_MULTIPLE), count(2 * VOCAB_MULTIPLE)
  per_token = (large - small) // VOCAB_MULTIPLE
  return small + (vocab_size - VOCAB_MULTIPLE) * per_token


def _with_plain_attention(model: nn.Module) -> nn.Module:
  names = {field.name for field in dataclasses.fields(model)}
  return model.clone(attention='plain') if 'attention' in names else model


def _count_products(jaxpr: jax.extend.core.Jaxpr) -> int:
  """Returns the FLOPs of a program's matrix products, loops counted."""
  total = 0
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      (contracted, _), _ = equation.params['dimension_numbers']
      shape = equation.invars[0].aval.shape
      depth = math.prod(shape[axis] for axis in contracted)
      total += 2 * depth * equation.outvars[0].aval.size
    times = 1
    if equation.primitive.name == 'scan':
      times = equation.params['length']
    for inner in jax.extend.core.jaxprs_in_params(equation.params):
      total += times * _count_products(inner)
  return total
