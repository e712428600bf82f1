r"""Highway LSTMs of semantic roles: training steps of ours and of PyTorch's.

Eight layers of 300 read batches of equally long sentences in turns: ours,
AllenNLP 0.9.0's StackedAlternatingLstm, and the same cell written for
torch.compile. All are in float32, with AllenNLP's dropout of 0.1; a step is a
forward and a backward pass. Prints JSON: the steps in a second and how many
times as fast ours is.

  python tests/bench/srl/stack.py [--batch 80] [--length 40] [--threads 2]
"""

# ruff: noqa: E402
import argparse
import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

# As pytest finds the helpers of tests.
sys.path.append(str(pathlib.Path(__file__).parents[2] / 'helpers' / 'models'))

import numpy as np

from train.benches import timing
from train.benches.timing import Program

# He et al. 2017: words of 100 features and 100 of the predicate.
INPUTS, LSTM_DIM, NUM_LAYERS, DROPOUT_RATE = 200, 300, 8, 0.1


def _take_cores(count: int) -> None:
  """Keeps this process to the last cores; XLA has a thread for each."""
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])


def make_input(batch: int, length: int) -> np.ndarray:
  """Returns vectors of words, float32 [batch, length, INPUTS]."""
  rng = np.random.default_rng(0)
  return rng.normal(size=(batch, length, INPUTS)).astype(np.float32)


def ours(*, batch: int, length: int, threads: int) -> Program:
  """Makes our training step, one compiled program."""
  _take_cores(threads)
  import jax
  import jax.numpy as jnp
  from flax import linen as nn

  from configs import base
  from models.elmo_tasks import highway_lstm
  from train.engine import sharding
  from train.host import device

  device.enable_compilation_cache()
  model = highway_lstm.AlternatingHighwayLstm(
    NUM_LAYERS, LSTM_DIM, DROPOUT_RATE
  )
  x = jnp.asarray(make_input(batch, length))
  mask = jnp.ones(x.shape[:2], bool)
  init = jax.jit(lambda rng: nn.unbox(model.init(rng, x, mask, train=False)))
  params = init(jax.random.key(0))

  def loss_of(params: Any, x: jax.Array, rng: jax.Array) -> jax.Array:
    y = model.apply(params, x, mask_of(x), train=True, rngs={'dropout': rng})
    return jnp.square(y).mean()

  def mask_of(x: jax.Array) -> jax.Array:
    return x[:, :, 0] < jnp.inf  # no constant, as in training

  mesh = sharding.make_mesh(base.get_config().mesh, jax.devices()[:1])
  step = jax.jit(
    jax.grad(loss_of), compiler_options=device.compiler_options(mesh)
  )
  rng = jax.random.key(0)
  return lambda: jax.block_until_ready(step(params, x, rng)), 0.0


def _make_torch_step(
  stack: Any, run: Callable, batch: int, length: int
) -> Callable[[], object]:
  import torch

  x = torch.tensor(make_input(batch, length))

  def step() -> None:
    stack.zero_grad()
    run(x).square().mean().backward()

  return step


def allennlp(*, batch: int, length: int, threads: int) -> Program:
  """Makes AllenNLP's training step, on packed sequences."""
  _take_cores(threads)
  import allennlp_reference as reference
  import torch

  torch.set_num_threads(threads)
  theirs = reference.load('modules.stacked_alternating_lstm')
  stack = theirs.stacked_alternating_lstm.StackedAlternatingLstm(
    INPUTS, LSTM_DIM, NUM_LAYERS, DROPOUT_RATE
  )
  lengths = torch.full((batch,), length)

  def run(x: Any) -> Any:
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, True)
    return stack(packed)[0].data

  return _make_torch_step(stack, run, batch, length), 0.0


def make_stack(inputs: int, lstm_dim: int, num_layers: int) -> Any:
  """Returns layers for `read_layer`, with the parameters of AllenNLP's."""
  import torch

  layers = []
  for i in range(num_layers):
    layer = torch.nn.Module()
    layer.blocks = torch.nn.Linear(lstm_dim if i else inputs, 6 * lstm_dim)
    layer.recurrent = torch.nn.Linear(lstm_dim, 5 * lstm_dim, bias=False)
    layers.append(layer)
  return torch.nn.ModuleList(layers)


def read_cell(
  gates: Any, k: Any, hidden: Any, cell: Any, keep: Any, recurrent: Any
) -> tuple[Any, Any]:
  """Returns hidden state and cell after a position, each [batch, cells]."""
  import torch

  gates = torch.addmm(gates, hidden * keep, recurrent)
  write, forget, candidate, output, transform = gates.chunk(5, 1)
  cell = forget.sigmoid() * cell + write.sigmoid() * candidate.tanh()
  out = output.sigmoid() * cell.tanh()
  return transform.sigmoid() * (out - k) + k, cell


def read_stack(stack: Any, x: Any, rate: float, read_cell: Callable) -> Any:
  """Returns outputs [length, batch, cells] of unpadded x, positions first.

  Written for speed on a CPU: all products of the input are one before the
  loop, and no sequence is masked.
  """
  import torch

  for i, layer in enumerate(stack):
    F = layer.recurrent.in_features
    # The forget gate's 1 is its bias.
    gates, k = layer.blocks(x).split([5 * F, F], dim=-1)
    hidden = cell = x.new_zeros(x.shape[1], F)
    keep = (torch.rand(x.shape[1], F) >= rate).float() / (1 - rate)
    recurrent = layer.recurrent.weight.t()
    outputs = []
    steps = [*zip(gates.unbind(0), k.unbind(0), strict=True)]
    for inputs in reversed(steps) if i % 2 else steps:
      hidden, cell = read_cell(*inputs, hidden, cell, keep, recurrent)
      outputs.append(hidden)
    x = torch.stack(outputs[::-1] if i % 2 else outputs)
  return x


def compiled(*, batch: int, length: int, threads: int) -> Program:
  """Makes the training step of PyTorch with a compiled cell."""
  _take_cores(threads)
  import torch

  torch.set_num_threads(threads)
  stack = make_stack(INPUTS, LSTM_DIM, NUM_LAYERS)
  cell = torch.compile(read_cell)

  def run(x: Any) -> Any:
    return read_stack(stack, x.transpose(0, 1), DROPOUT_RATE, cell)

  return _make_torch_step(stack, run, batch, length), 0.0


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--batch', type=int, default=80, help='Sentences.')
  parser.add_argument('--length', type=int, default=40, help='Words of each.')
  parser.add_argument('--threads', type=int, default=2, help='Of a program.')
  parser.add_argument('--repeats', type=int, default=timing.REPEATS)
  options = vars(parser.parse_args())
  repeats = options.pop('repeats')
  rivals = {'allennlp': (allennlp, {}), 'compiled': (compiled, {})}
  figures = timing.compare(
    ours, options, rivals, counts={'steps': 1}, repeats=repeats
  )
  print(json.dumps(options | figures, indent=2))


if __name__ == '__main__':
  main()
