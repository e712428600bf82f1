"""What the bench times in turns: our steps, Hugging Face's, bare products."""

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from train import huge_pages

REPEATS = 5


class Rival(NamedTuple):
  """A program to time: `make(**options)` returns (a step to run, its FLOPs).

  Attributes:
    make: a function of this module.
    options: its arguments.
    allocator: the C library's tunables, as the program's users have them.
  """

  make: Callable[..., tuple[Callable[[], object], float]]
  options: dict[str, Any]
  allocator: str = ''


class Timing(NamedTuple):
  """Median seconds and FLOPs of a step."""

  seconds: float
  flops: float


def rival_times(
  rivals: dict[str, Rival], repeats: int = REPEATS, warm_ups: int = 2
) -> dict[str, Timing]:
  """Times one step of each in turns, each in a process of its own.

  Machines are noisy, so rivals are compared within one stretch of time; and
  they share neither threads nor memory, so each is what its users see.
  """
  context = multiprocessing.get_context('spawn')
  ends, flops = {}, {}
  processes = []
  before = os.environ.pop(huge_pages.VARIABLE, None)
  try:
    for name, rival in rivals.items():
      ends[name], theirs = context.Pipe()
      os.environ[huge_pages.VARIABLE] = rival.allocator
      process = context.Process(target=_serve, args=(theirs, rival, warm_ups))
      process.start()
      processes.append(process)
      theirs.close()
      flops[name] = ends[name].recv()
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(repeats):
      for name, end in ends.items():
        end.send('step')
        times[name].append(end.recv())
  except EOFError as error:
    raise ChildProcessError(f'{name} ended; its error stands above') from error
  finally:
    os.environ.pop(huge_pages.VARIABLE, None)
    if before is not None:
      os.environ[huge_pages.VARIABLE] = before
    for end in ends.values():
      end.close()
    for process in processes:
      process.join(10)
      process.kill()
  return {
    name: Timing(statistics.median(values), flops[name])
    for name, values in times.items()
  }


def _serve(end: Any, rival: Rival, warm_ups: int) -> None:
  """Runs a step, after warm-ups, whenever asked; ends with the asker."""
  run, flops = rival.make(**rival.options)
  for _ in range(warm_ups):
    run()
  end.send(flops)
  with contextlib.suppress(EOFError):
    while end.recv():
      start = time.perf_counter()
      run()
      end.send(time.perf_counter() - start)


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
  from data import windows

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
  from train import architecture, assemble, device, settings, sharding

  device.enable_compilation_cache()
  config = base.get_config()
  if size in variants.BERT:
    config.model.update(variants.BERT[size])
  else:
    config.model.update(variants.GPT2[size], name='gpt2', max_length=1024)
    config.train.objective = 'lm'
    config.optim.name = 'adamw'
  config.model.update(model)
  phase = settings.Phase(1_000_000, length, batch, 'continue')
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


def their_step(
  size: str,
  *,
  batch: int,
  length: int,
  vocab_size: int,
  dropout: float,
  accelerator: bool = False,
) -> tuple[Callable[[], None], float]:
  """Returns what trains a step of Hugging Face's BERT on PyTorch; no FLOPs."""
  import torch
  import transformers

  from configs import variants

  sizes = variants.BERT[size]
  config = transformers.BertConfig(
    vocab_size=vocab_size,
    num_hidden_layers=sizes['num_layers'],
    hidden_size=sizes['embed_dim'],
    num_attention_heads=sizes['num_heads'],
    intermediate_size=sizes['mlp_dim'],
    hidden_dropout_prob=dropout,
    attention_probs_dropout_prob=dropout,
    attn_implementation='sdpa',
  )
  torch.set_num_threads(os.cpu_count())
  where = 'cuda' if accelerator else 'cpu'
  torch.manual_seed(0)
  model = transformers.BertForPreTraining(config).to(where).train()
  optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-4, fused=accelerator or None
  )
  if accelerator:
    torch.set_float32_matmul_precision('high')
    model = torch.compile(model)
  rng = np.random.default_rng(0)
  tokens = torch.tensor(rng.integers(5, vocab_size, (batch, length)))
  labels = torch.where(torch.rand(batch, length) < 0.15, tokens, -100)
  inputs = {
    'input_ids': tokens,
    'attention_mask': torch.ones_like(tokens),
    'token_type_ids': torch.zeros_like(tokens),
    'labels': labels,
    'next_sentence_label': torch.randint(0, 2, (batch,)),
  }
  inputs = {name: value.to(where) for name, value in inputs.items()}

  def run() -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(where, torch.bfloat16, enabled=accelerator):
      loss = model(**inputs).loss
    loss.backward()
    optimizer.step()
    if accelerator:
      torch.cuda.synchronize()

  return run, 0.0


def _their_gpt2(size: str, dropout: float, where: str) -> Any:
  """Returns Hugging Face's GPT-2 of a size, its parameters random."""
  import torch
  import transformers

  from configs import variants

  sizes = variants.GPT2[size]
  torch.set_num_threads(os.cpu_count())
  torch.manual_seed(0)
  config = transformers.GPT2Config(
    n_layer=sizes['num_layers'],
    n_embd=sizes['embed_dim'],
    n_head=sizes['num_heads'],
    resid_pdrop=dropout,
    embd_pdrop=dropout,
    attn_pdrop=dropout,
    attn_implementation='sdpa',
  )
  return transformers.GPT2LMHeadModel(config).to(where)


def their_gpt2_step(
  size: str,
  *,
  batch: int,
  length: int,
  dropout: float,
  accelerator: bool = False,
) -> tuple[Callable[[], None], float]:
  """Returns what trains a step of Hugging Face's GPT-2; no FLOPs."""
  import torch

  where = 'cuda' if accelerator else 'cpu'
  model = _their_gpt2(size, dropout, where).train()
  optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-4, fused=accelerator or None
  )
  if accelerator:
    torch.set_float32_matmul_precision('high')
    model = torch.compile(model)
  tokens = torch.randint(0, 50_257, (batch, length), device=where)

  def run() -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(where, torch.bfloat16, enabled=accelerator):
      loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    if accelerator:
      torch.cuda.synchronize()

  return run, 0.0


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
  from train import device

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


def their_decoding(
  size: str, *, batch: int, new_tokens: int, accelerator: bool = False
) -> tuple[Callable[[], None], float]:
  """Returns what decodes greedily by Hugging Face's GPT-2; no FLOPs."""
  import torch

  where = 'cuda' if accelerator else 'cpu'
  model = _their_gpt2(size, 0.0, where).eval()
  options = {}
  if accelerator:
    model = model.to(torch.bfloat16)
    # Compiled by itself where the cache is static.
    options['cache_implementation'] = 'static'
  tokens = torch.randint(0, 50_257, (batch, PROMPT_TOKENS), device=where)

  def run() -> None:
    model.generate(
      tokens,
      attention_mask=torch.ones_like(tokens),
      do_sample=False,
      max_new_tokens=new_tokens,
      min_new_tokens=new_tokens,
      pad_token_id=0,
      **options,
    )
    if accelerator:
      torch.cuda.synchronize()

  return run, 0.0


# The products of a BERT-Base layer's MLP at 8 x 128 tokens.
_PRODUCT = ((1024, 768), (768, 3072))
_PRODUCT_FLOPS = 2 * 1024 * 768 * 3072
_PRODUCTS = 20  # a step


def jax_products() -> tuple[Callable[[], None], float]:
  """Returns what multiplies matrices by JAX, and its FLOPs."""
  import jax
  import jax.numpy as jnp

  a, b = (jnp.ones(shape) for shape in _PRODUCT)
  product = jax.jit(jnp.matmul)

  def run() -> None:
    for _ in range(_PRODUCTS):
      product(a, b).block_until_ready()

  return run, _PRODUCTS * _PRODUCT_FLOPS


def torch_products() -> tuple[Callable[[], None], float]:
  """Returns what multiplies matrices by PyTorch, and its FLOPs."""
  import torch

  torch.set_num_threads(os.cpu_count())
  a, b = (torch.ones(shape) for shape in _PRODUCT)

  def run() -> None:
    for _ in range(_PRODUCTS):
      torch.matmul(a, b)

  return run, _PRODUCTS * _PRODUCT_FLOPS
