"""Ragged batches for ELMo's task models, and their losses with gradients."""

import dataclasses
import functools

import jax
import numpy as np
import optax
from flax import linen as nn

D, E, F = 5, 3, 4
# Words of the first and the second text of each example.
LENGTHS = np.array([[6, 2], [1, 5], [4, 4], [3, 1]])
T = 7


@dataclasses.dataclass(frozen=True)
class Batch:
  """Vectors of words, noise at padding; vectors to add, or None."""

  x: np.ndarray
  mask: np.ndarray
  added: np.ndarray | None

  @property
  def inputs(self):
    return self.x, self.mask, self.added

  def with_an_empty_text(self):
    """Returns the batch with an empty text, and with NaN at padding."""
    mask = self.mask.copy()
    mask[0, -1] = False

    def fill(x):
      return None if x is None else np.where(mask[..., None], x, np.nan)

    return Batch(fill(self.x), mask, fill(self.added))


def make_batch(num_texts, with_added=True):
  rng = np.random.default_rng(0)
  lengths = LENGTHS[:, :num_texts]
  shape = (*lengths.shape, T)
  x, added = (rng.normal(size=(*shape, width)).astype('f4') for width in (D, E))
  mask = np.arange(T) < lengths[..., None]
  return Batch(x, mask, added if with_added else None)


LABELS = np.array([2, 0, 1, 1])


def cross_entropy(logits):
  """The loss of a classifier of 3 classes."""
  return optax.softmax_cross_entropy_with_integer_labels(logits, LABELS).mean()


def make_params(model, batch):
  """Parameters drawn without compiling, none of them 0."""
  shapes = jax.eval_shape(
    functools.partial(model.init, train=False), jax.random.key(0), *batch.inputs
  )['params']
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda p: rng.normal(0, 0.4, p.shape).astype('f4'), nn.unbox(shapes)
  )


def make_step(model, loss=cross_entropy):
  """Returns (params, batch) -> loss, logits, gradients of all arrays."""

  def compute(params, x, added, mask):
    logits = model.apply({'params': params}, x, mask, added, train=False)
    return loss(logits), logits

  step = jax.jit(jax.value_and_grad(compute, argnums=(0, 1, 2), has_aux=True))

  def run(params, batch):
    (total, logits), gradients = step(params, batch.x, batch.added, batch.mask)
    return float(total), np.asarray(logits), jax.device_get(gradients)

  return run


def assert_equal_trees(found, expected, tolerance):
  """Checks arrays at equal paths, absolutely; None has no arrays."""
  found, expected = (
    {
      jax.tree_util.keystr(path): leaf
      for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    for tree in (found, expected)
  )
  assert found.keys() == expected.keys()
  for path, leaf in expected.items():
    np.testing.assert_allclose(
      found[path], leaf, rtol=0, atol=tolerance, err_msg=path
    )


def is_finite(tree):
  # As float32: NumPy does not know bfloat16.
  return all(
    np.isfinite(np.float32(leaf)).all() for leaf in jax.tree.leaves(tree)
  )


def axes_of(model, batch):
  """Returns the names of all parameters' logical axes."""
  specs = nn.get_partition_spec(
    jax.eval_shape(
      functools.partial(model.init, train=False),
      jax.random.key(0),
      *batch.inputs,
    )
  )
  return {axis for spec in jax.tree.leaves(specs) for axis in spec or ()}


def drop_twice(model, params, batch):
  """Returns logits in training with two keys, as one program."""

  @jax.jit
  def run(params):
    return [
      model.apply(
        {'params': params},
        *batch.inputs,
        train=True,
        rngs={'dropout': jax.random.key(seed)},
      )
      for seed in range(2)
    ]

  return run(params)
