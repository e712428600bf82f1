"""What to run first on a GPU: are the results right, and equal every time?

  python tests/bench/gpu_first.py

Checks the attention kernels beside plain attention in bfloat16, with dropout,
masked keys, causal rows and windows; then trains bert_tiny twice for 20 steps
in bfloat16 with deterministic kernels, and compares the parameters bit by bit.
Prints a line for each check; ends with 1 if one fails. `python
tests/bench/beside.py accelerator` measures the speed.
"""

import functools
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

from models import dropout
from models.transformer import attention, flash_attention, layout
from train.host import device

SHAPES = (
  (4, 512, 12, 64),
  (4, 384, 12, 32),
  (2, 1024, 12, 64),
  (8, 128, 16, 64),
)
TOLERANCE = 0.02  # of the largest value: bfloat16 has 8 bits
STEPS = 20


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(attend, fields, qkv, gradient, mask, seeds):
  context, back = jax.vjp(
    lambda qkv: attend(fields, qkv, mask, seeds, fields.window > 0), qkv
  )
  return context, *back(gradient)


def plain(fields, qkv, mask, seeds, is_local):
  """Attention in plain JAX, with the arguments of the kernels."""
  length = qkv.shape[1]
  query, key, value = jnp.moveaxis(qkv, 2, 0)
  mask = mask[:, None, None] != 0
  if fields.causal:
    mask = mask & attention.causal_mask(length, length, 0)
  if is_local:
    mask = mask & layout.near(length, length, 0, fields.window)
  query = query * jnp.asarray(query.shape[-1] ** -0.5, query.dtype)
  return attention.attend(query, key, value, mask, seeds, fields.rate)


def difference(shape, fields, dtype) -> float:
  """Returns the largest difference of kernels and plain float32 attention.

  It is of contexts and gradients, over the largest value of each.
  """
  rows, length, heads, width = shape
  rng = np.random.default_rng(0)
  qkv = rng.normal(size=(rows, length, 3, heads, width)).astype(dtype)
  gradient = rng.normal(size=shape).astype(dtype)
  lengths = rng.integers(1, length + 1, rows)
  mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
  seeds = None
  if fields.rate:
    seeds = dropout.draw_seeds(jax.random.key(0), (rows,))
  found = _run(flash_attention.attend, fields, qkv, gradient, mask, seeds)
  exact = (array.astype(np.float32) for array in (qkv, gradient))
  expected = _run(plain, fields, *exact, mask, seeds)
  return max(
    float(np.abs(np.float32(a) - b).max() / np.abs(b).max())
    for a, b in zip(found, jax.device_get(expected), strict=True)
  )


def train(workdir: pathlib.Path, store: pathlib.Path) -> None:
  """Trains bert_tiny in a process of its own, kernels deterministic."""
  flags = f'{os.environ.get("XLA_FLAGS", "")} {device.DETERMINISTIC_FLAG}'
  overrides = {
    'train.platform': jax.default_backend(),
    'train.deterministic': True,
    'train.steps': STEPS,
    'train.eval_every': STEPS,
    'train.checkpoint_every': STEPS,
    'model.dtype': 'bfloat16',
    'data.folder': store,
  }
  subprocess.run(
    [sys.executable, '-m', 'train.main', '--config', 'bert_tiny']
    + [f'--workdir={workdir}']
    + [f'--config.{key}={value}' for key, value in overrides.items()],
    env=os.environ
    | {'XLA_FLAGS': flags, 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'},
    check=True,
  )


def main() -> int:
  """Runs all checks and returns how many fail."""
  print(device.describe())
  failed = 0
  for shape in SHAPES:
    for form in (
      (False, 0.1),
      (True, 0.0),
      (True, 0.1),
      (False, 0.0, False, 64),  # windows of a local layer
      (True, 0.1, False, 20),
    ):
      fields = flash_attention.Fields(*form)
      found = difference(shape, fields, jnp.bfloat16)
      good = found < TOLERANCE
      failed += not good
      print(
        f'{"ok" if good else "WRONG"} attention {shape} {fields}: {found:.2g}'
      )
  with tempfile.TemporaryDirectory() as folder:
    found = []
    for name in ('a', 'b'):
      workdir = pathlib.Path(folder, name)
      train(workdir, pathlib.Path(folder, 'store'))
      from train.params import opened

      found.append(jax.device_get(opened.open_weights(workdir).load()))
    good = all(
      np.array_equal(a, b)
      for a, b in zip(*map(jax.tree.leaves, found), strict=True)
    )
    failed += not good
    print(f'{"ok" if good else "WRONG"} two runs agree to the bit')
  return failed


if __name__ == '__main__':
  sys.exit(bool(main()))
