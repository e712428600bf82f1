r"""Hugging Face's Flax BERT under the TPU's compiler, as preflight has ours.

Transformers 4.56 is the last line with Flax; it needs its own versions of two
packages, which a folder of their own keeps from the environment's. PyTorch is
not needed, the compiler is (`pip install -e '.[tpu]'`).

  pip install --target RIVAL --no-deps transformers==4.56.2 \
    'huggingface_hub<1' 'tokenizers>=0.22,<0.23'
  python tests/bench/compiled_rival.py RIVAL \
    [--size base] [--topology v5e:4x4] [--rows 16] [--length 128]

It trains as its run_mlm_flax.py does: the loss over all positions, AdamW with a
clipped gradient; in bfloat16, dropout 0.1, every device with rows of its own.
Prints JSON: the program's cycles, and the MFU of the FLOPs that the model
needs, by our count.
"""

# ruff: noqa: E402
from train.slices import without_hardware

if __name__ == '__main__':
  without_hardware.prepare()

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from configs import variants
from train.host import device
from train.run import settings
from train.slices import cycles, fit, topology

Array = jax.Array


def make_step(
  size: str, length: int
) -> tuple[Callable, Callable, optax.GradientTransformation]:
  """Returns the step, a function that draws parameters, and the optimiser."""
  from transformers import BertConfig, FlaxBertForPreTraining

  sizes = variants.BERT[f'bert-{size}']
  config = BertConfig(
    num_hidden_layers=sizes['num_layers'],
    hidden_size=sizes['embed_dim'],
    num_attention_heads=sizes['num_heads'],
    intermediate_size=sizes['mlp_dim'],
  )
  module = FlaxBertForPreTraining(
    config, dtype=jnp.bfloat16, _do_init=False
  ).module
  optimizer = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(
      optax.linear_schedule(0.0, 1e-4, 10_000), eps=1e-6, weight_decay=0.01
    ),
  )

  def draw(rng: Array) -> Any:
    ids = jnp.zeros((1, length), jnp.int32)
    rngs = {'params': rng, 'dropout': rng}
    return module.init(rngs, ids, ids, ids, ids, None, return_dict=False)

  def loss_of(params: Any, batch: dict[str, Array], rng: Array) -> Array:
    names = ('tokens', 'mask', 'types', 'positions')
    logits, following, *_ = module.apply(
      params,
      *(batch[name] for name in names),
      None,
      deterministic=False,
      return_dict=False,
      rngs={'dropout': rng},
    )
    labels = jax.nn.one_hot(batch['labels'], config.vocab_size)
    losses = optax.softmax_cross_entropy(logits, labels) * batch['weights']
    pairs = optax.softmax_cross_entropy_with_integer_labels(
      following.astype(jnp.float32), batch['following']
    )
    return losses.sum() / batch['weights'].sum() + pairs.mean()

  def step(
    params: Any, moments: Any, batch: dict[str, Array], rng: Array
  ) -> tuple[Any, Any, Array]:
    loss, gradients = jax.value_and_grad(loss_of)(params, batch, rng)
    updates, moments = optimizer.update(gradients, moments, params)
    return optax.apply_updates(params, updates), moments, loss

  return step, draw, optimizer


def compile_step(size: str, rows: int, length: int, devices: list[Any]) -> str:
  """Returns the text of the compiled step of `rows` on each device."""
  step, draw, optimizer = make_step(size, length)
  mesh = Mesh(np.array(devices), ('data',))

  def place(tree: Any, *axes: str) -> Any:
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=sharding
      ),
      tree,
    )

  B = rows * len(devices)
  tokens = jax.ShapeDtypeStruct((B, length), jnp.int32)
  batch = dict.fromkeys(
    ('tokens', 'mask', 'types', 'positions', 'labels'), tokens
  )
  batch['weights'] = jax.ShapeDtypeStruct((B, length), jnp.float32)
  batch['following'] = jax.ShapeDtypeStruct((B,), jnp.int32)
  rng = jax.eval_shape(lambda: jax.random.key(0))
  params = jax.eval_shape(draw, rng)
  moments = jax.eval_shape(optimizer.init, params)
  jitted = jax.jit(step, donate_argnums=(0, 1))
  lowered = jitted.lower(
    place(params), place(moments), place(batch, 'data'), place(rng)
  )
  return lowered.compile().as_text()


def model_flops(
  size: str, rows: int, length: int, tpu: topology.Slice
) -> float:
  """Returns the FLOPs of a step by our count, with predictions at 15 %."""
  batch = rows * len(tpu.devices)
  config = settings.with_overrides(
    settings.load_config(f'bert_{size}'),
    {
      'train.phases': ((1000, length, batch, 'continue'),),
      'eval.global_batch': batch,
    },
  )
  parts = fit.plan_parts(config, tpu)
  return parts.step_flops(parts.phases[0])


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('rival', help='The folder of transformers 4.56.')
  parser.add_argument('--size', default='base', choices=('base', 'large'))
  parser.add_argument('--topology', default='v5e:4x4', help='A slice.')
  parser.add_argument('--rows', type=int, default=16, help='Of each device.')
  parser.add_argument(
    '--length', type=int, default=128, help='Tokens of a row.'
  )
  options = parser.parse_args()
  sys.path.insert(0, options.rival)
  tpu = topology.find(options.topology)
  size, rows, length = options.size, options.rows, options.length
  began = time.monotonic()
  text = compile_step(size, rows, length, tpu.devices)
  seconds = time.monotonic() - began
  found = cycles.estimate(text)
  flops = model_flops(size, rows, length, tpu)
  step_seconds = found.cycles / (tpu.chip.clock_ghz * 1e9)
  peak = device.peak_of(tpu.devices[0].device_kind)
  mfu = device.model_flops_utilisation(
    flops, step_seconds, peak, len(tpu.devices)
  )
  report = {
    **vars(options),
    'compile_seconds': round(seconds),
    'cycles': found.cycles,
    'milliseconds': 1e3 * step_seconds,
    'mfu': mfu,
    'left_out': found.left_out,
  }
  print(json.dumps(report, indent=2))


if __name__ == '__main__':
  main()
