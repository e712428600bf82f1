"""Derivatives written by hand, and JAX's own in their place."""

import derivatives
import jax
import jax.numpy as jnp
import numpy as np

from models import layers, norms  # noqa: F401
from models.transformer import blocks  # noqa: F401


def test_all_are_found_once():
  known = derivatives.derivatives()
  assert {'models.layers.product', 'models.layers.GELUS.tanh'} <= known.keys()
  assert len({id(each) for each in known.values()}) == len(known)


def test_one_is_taken_out_wherever_it_is_called():
  derivative = layers.product
  arrays = [
    jax.random.normal(jax.random.key(i), shape)
    for i, shape in enumerate([(3, 5, 4), (4, 6), (1, 6)])
  ]

  def gradients():
    return jax.grad(
      lambda *arrays: jnp.sin(layers.product(*arrays)).sum(), (0, 1, 2)
    )(*arrays)

  ours = gradients()
  with derivatives.without('models.layers.product') as called:
    assert layers.product is not derivative
    plain = gradients()
  assert called == {'models.layers.product'}
  assert layers.product is derivative
  for a, b in zip(ours, plain, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)
