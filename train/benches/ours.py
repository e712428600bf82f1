"""Our steps and decoding, to be timed beside other programs'."""

from collections.abc import Callable
from typing import Any

import numpy as np


def synthetic_stream(
  batch: int, length: int, vocab_size: int
) -> dict[str, np.ndarray]:
  """Returns a host batch of random tokens for a left-to-right model."""
  rng = np.random.default_rng(0)
  return {
    'window': rng.integers(0, vocab_size, (batch, length + 1), dtype=np.int32),
    'lengths': np.full(batch, length + 1, np.int32),
    'example_ids': np.arange(batch, dtype=np.int32),
    'example_mask': np.ones(batch, bool),
  }


def synthetic_pairs(
  batch: int, length: int, vocab_size: int, seed: int = 0
) -> dict[str, np.ndarray]:
  """Returns a host batch of random tokens in sentences of about 20."""
  from data.examples import windows

  rng = np.random.default_rng(seed)
  width = windows.window_width(length)
  result: dict[str, np.ndarray] = {}
  for window, starts, lengths, ids in (
    ('window', 'sentence_starts', 'lengths', 'document_ids'),
    ('other_window', 'other_starts', 'other_lengths', 'other_document_ids'),
  ):
    result[window] = rng.integers(5, vocab_size, (batch, width), dtype=np.int32)
    result[starts] = rng.random((batch, width)) < 0.05
    result[lengths] = np.full(batch, width, np.int32)
    result[ids] = np.arange(batch, dtype=np.int32)
  result['example_ids'] = np.arange(batch, dtype=np.int32)
  result['example_mask'] = np.ones(batch, bool)
  return result


def compiled_step(
  size: str, *, batch: int, length: int, vocab_size: int, **model: Any
) -> tuple[Callable, Any, Any, float]:
  """Returns our compiled step, a state, a batch, and the FLOPs of a step."""
  import jax

  from configs import base, variants
  from train.architectures import architecture
  from train.engine import sharding
  from train.host import device
  from train.pretrain import assemble
  from train.run import training_phases

  device.enable_compilation_cache()
  config = base.get_config()
  if size in variants.BERT:
    config.model.update(variants.BERT[size])
  else:
    config.model.update(variants.GPT2[size], name='gpt2', max_length=1024)
    config.train.objective = 'lm'
    config.optim.name = 'adamw'
  config.model.update(model)
  phase = training_phases.Phase(1_000_000, length, batch, 'continue')
  mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
  job = assemble.build_job(
    config, (phase,), architecture.Vocabulary.of_size(vocab_size), mesh
  )
  synthetic = synthetic_pairs if size in variants.BERT else synthetic_stream
  host_batch = synthetic(batch, length, vocab_size)
  with sharding.scope(mesh, config.mesh.rules):
    state = job.create_state()
    on_device = sharding.put_batch(host_batch, mesh)
    step = job.train_step(length).lower(state, on_device).compile()
  return step, state, on_device, job.step_flops(phase)


def our_step(size: str, **options: Any) -> tuple[Callable[[], None], float]:
  """Returns what trains a step of ours, and its FLOPs; see `compiled_step`."""
  import jax

  step, *current, batch, flops = compiled_step(size, **options)

  def run() -> None:
    current[0], report = step(current[0], batch)
    jax.block_until_ready(report)

  return run, flops


PROMPT_TOKENS = 16  # of a prompt that is gone on from


def our_decoding(
  size: str, *, batch: int, new_tokens: int, dtype: str = 'float32'
) -> tuple[Callable[[], None], float]:
  """Returns what decodes greedily by our GPT-2, parameters random; no FLOPs."""
  import jax
  import jax.numpy as jnp
  from flax import linen as nn

  from configs import variants
  from models import decoding, gpt
  from train.host import device

  device.enable_compilation_cache()
  model = gpt.Gpt(
    vocab_size=50_257,
    max_length=1024,
    pre_norm=True,
    dtype=jnp.dtype(dtype),
    **variants.GPT2[size],
  )
  zeros = jnp.zeros((1, 8), jnp.int32)
  params = nn.unbox(
    jax.jit(lambda rng: model.init(rng, zeros, zeros == 0, zeros, train=False))(
      jax.random.key(0)
    )
  )['params']
  model, params = gpt.prepare_decoding(model, params)
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, 50_257, (batch, PROMPT_TOKENS))

  def run() -> None:
    for _ in decoding.generate(
      model,
      params,
      tokens,
      np.full(batch, PROMPT_TOKENS),
      max_new_tokens=new_tokens,
      rngs=jax.random.split(jax.random.key(0), batch),
    ):
      pass

  return run, 0.0


# The products of a BERT-Base layer's MLP at 8 x 128 tokens.
PRODUCT = ((1024, 768), (768, 3072))


PRODUCT_FLOPS = 2 * 1024 * 768 * 3072


PRODUCTS = 20  # a step


def jax_products() -> tuple[Callable[[], None], float]:
  """Returns what multiplies matrices by JAX, and its FLOPs."""
  import jax
  import jax.numpy as jnp

  a, b = (jnp.ones(shape) for shape in PRODUCT)
  product = jax.jit(jnp.matmul)

  def run() -> None:
    for _ in range(PRODUCTS):
      product(a, b).block_until_ready()

  return run, PRODUCTS * PRODUCT_FLOPS
