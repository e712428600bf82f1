r"""What each derivative written by hand gains over JAX's own.

  python tests/bench/derivatives.py [--steps 'bert_base v5e-16' ...] \
    [--names models.norms.normalize ...] [--output results/derivatives.json]

Every `jax.custom_vjp` of `models` and of the losses is taken out in turn, in
all modules and tables that hold it: then JAX differentiates the function
itself, or a form of it that JAX can (`plain_forms.py`). The TPU's compiler
estimates the training steps with it and without it, in cycles and bytes of a
device (`pip install -e '.[tpu]'`); a whole step compiles for minutes, one of
`--layers 2` for one, in which what a layer holds weighs less than in the
whole. With `--cpu`, steps such as 'bert_base 128 8' (tokens of a row, rows) run
here, both in turns, and the median of the ratios of their processor's seconds
counts; a fine-tuning reads made-up rows. A derivative that a step does not use
has no row of that step.
"""

# ruff: noqa: E402
import sys

from train.slices import without_hardware

if __name__ == '__main__' and '--cpu' not in sys.argv:
  without_hardware.prepare()

import argparse
import contextlib
import functools
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import ml_collections
from plain_forms import PLAIN

from train.benches import programs
from train.engine import sharding
from train.host import files
from train.run import settings
from train.slices import fit, task_steps, topology

STEPS = ('bert_base v5e-16', 'gpt2 v5e-32', 'elmo_1b v5e-16')
CPU_STEPS = ('bert_base 128 8', 'gpt2 256 4', 'elmo_1b:elmo-small 20 16')
TASK_STEPS = (
  'transfer:task=sst5,model=bcn 40 32',
  'transfer:task=squad1,model=bidaf_plus 100 16',
  'transfer:task=srl_ewt,model=deep_srl 40 40',
  'transfer:task=coref_gum,model=e2e_coref 20 1',
)
NUM_WORDS = 5_000  # of a task model's table, which does not count


def derivatives() -> dict[str, jax.custom_vjp]:
  """Returns the derivatives of all loaded modules of ours, by name."""
  found = {}
  for module, names in _places():
    for name, value in names.items():
      if isinstance(value, jax.custom_vjp) and value not in found.values():
        found[f'{module}.{name}'] = value
  return dict(sorted(found.items()))


def _places() -> Iterator[tuple[str, dict]]:
  """Yields all names of loaded modules with derivatives, and their tables."""
  for module in [*sys.modules]:
    if module.startswith(('models', 'train.engine')):
      names = vars(sys.modules[module])
      yield module, names
      for name, value in [*names.items()]:
        if isinstance(value, dict) and not name.startswith('__'):
          yield f'{module}.{name}', value


@contextlib.contextmanager
def replaced(functions: dict[str, Callable]) -> Iterator[set[str]]:
  """Puts functions in the place of derivatives; yields names once called."""
  known, called, changed = derivatives(), set(), []

  def recorded(name: str, function: Callable) -> Callable:
    def function_of_ours(*arguments):
      called.add(name)
      return function(*arguments)

    return function_of_ours

  for name, function in functions.items():
    place = recorded(name, function)
    for _, names in _places():
      for key, value in [*names.items()]:
        if value is known[name]:
          names[key] = place
          changed.append((names, key, known[name]))
  jax.clear_caches()
  try:
    yield called
  finally:
    for names, key, derivative in changed:
      names[key] = derivative


def without(*names: str) -> contextlib.AbstractContextManager[set[str]]:
  """Lets JAX differentiate in the place of derivatives."""
  known = derivatives()
  return replaced({name: PLAIN.get(name, known[name].fun) for name in names})


def estimate(step: str, layers: int | None = None) -> list[dict]:
  """Returns the compiler's figures of each phase of 'CONFIG SLICE'."""
  name, chips = step.split()
  tpu, config = topology.find(chips), settings.load_config(name)
  if layers:
    config = settings.with_overrides(config, {'model.num_layers': layers})
  steps = fit.plan(config, tpu, task_steps.NUM_WORDS)
  rows = []
  for phase in fit.compile_phases(steps, steps.phases, tpu):
    row = {'length': phase['length'], 'fits': phase['fits']}
    if phase['fits']:
      row['cycles'] = phase['estimate'].get('cycles')
      row['bytes'] = phase['memory']['temporary']
    rows.append(row)
  return rows


def estimates(
  step: str, chosen: list[str], layers: int | None = None
) -> Iterator[dict]:
  """Yields a row of each phase of a step without each derivative."""
  known = derivatives()
  with replaced({name: known[name] for name in chosen}) as used:
    whole = estimate(step, layers)
  for name in sorted(used):
    try:
      with without(name):
        plain = estimate(step, layers)
    except (NotImplementedError, AssertionError) as error:  # of a kernel
      reason = str(error).split('\n')[0] or 'JAX cannot differentiate it'
      yield {'step': step, 'derivative': name, 'needed': reason}
      continue
    for before, after in zip(whole, plain, strict=True):
      yield {
        'step': f'{step}, {before["length"]} tokens',
        'layers': layers or 'all',
        'derivative': name,
        **{
          key: after[key] / before[key] if after['fits'] else None
          for key in ('cycles', 'bytes')
        },
      }


class Here:
  """A training step on this machine, 'CONFIG TOKENS ROWS', with its state."""

  def __init__(self, step: str, layers: int | None = None) -> None:
    name, length, rows = step.split()
    config, self.more = settings.load_config(name), []
    overrides = {'model.dtype': 'float32'}
    if layers:
      overrides['model.num_layers'] = layers
    if 'task' in config:
      overrides |= {
        'task.max_length': int(length),
        'train.global_batch': int(rows),
      }
      self._open_task(settings.with_overrides(config, overrides))
    else:
      self.step, self.state, self.batch, _ = programs.compiled_step(
        name, int(rows), int(length), overrides
      )

  def _open_task(self, config: ml_collections.ConfigDict) -> None:
    job, batch = task_steps.open_job(config, jax.devices()[:1], NUM_WORDS)
    self.more = [jnp.int32(0)]  # the seed
    if config.train.plateau is not None:
      self.more.append(jnp.float32(1))
    with sharding.scope(job.mesh, config.mesh.rules):
      self.state = job.draw(jax.random.key(0))
      self.batch = sharding.put_batch(batch, job.mesh)
      step = job.steps['train'].lower(self.state, self.batch, *self.more)
    self.step = step.compile()

  def seconds(self) -> float:
    """Trains one step more and returns its seconds, of all cores."""
    began = time.process_time()
    self.state, _ = self.step(self.state, self.batch, *self.more)
    jax.block_until_ready(self.state)
    return time.process_time() - began

  @property
  def temporary(self) -> int:
    """The bytes that the step needs beside its arguments and results."""
    return self.step.memory_analysis().temp_size_in_bytes


def timings(
  step: str, chosen: list[str], layers: int | None, rounds: int
) -> Iterator[dict]:
  """Yields a row of a step here without each derivative, both in turns."""
  known = derivatives()
  with replaced({name: known[name] for name in chosen}) as used:
    whole = Here(step, layers)
  for name in sorted(used):
    with without(name):
      plain = Here(step, layers)
    row = {
      'step': step,
      'layers': layers or 'all',
      'derivative': name,
      'bytes': plain.temporary / whole.temporary,
    }
    if rounds:
      whole.seconds(), plain.seconds()  # to warm up
      ratios = sorted(
        1 / whole.seconds() * plain.seconds() for _ in range(rounds)
      )
      row['seconds'] = statistics.median(ratios)
      row['lowest'], row['highest'] = ratios[0], ratios[-1]
    yield row


def main() -> None:
  """Prints what each step takes without each derivative, over with it."""
  parser = argparse.ArgumentParser(
    description=__doc__.split('\n')[0], allow_abbrev=False
  )
  parser.add_argument('--cpu', action='store_true')
  parser.add_argument('--steps', nargs='+')
  parser.add_argument('--layers', type=int, help='of a Transformer')
  parser.add_argument('--names', nargs='+')
  parser.add_argument(
    '--rounds', type=int, default=8, help='timed with --cpu; 0: bytes alone'
  )
  parser.add_argument('--output', type=pathlib.Path)
  flags = parser.parse_args()
  measure = functools.partial(estimates, layers=flags.layers)
  if flags.cpu:
    measure = functools.partial(
      timings, layers=flags.layers, rounds=flags.rounds
    )
  chosen = flags.names or [*derivatives()]
  rows = []
  for step in flags.steps or (CPU_STEPS + TASK_STEPS if flags.cpu else STEPS):
    for row in measure(step, chosen):
      rows.append(row)
      print(row, file=sys.stderr, flush=True)
      if flags.output:
        files.write_atomically(flags.output, json.dumps(rows, indent=1) + '\n')
  for row in rows:
    figures = [
      f'{key} {value:.3f}' if isinstance(value, float) else f'{key} {value}'
      for key, value in row.items()
      if key not in ('step', 'derivative')
    ]
    print(f'{row["step"]}, {row["derivative"]}: {", ".join(figures)}')


if __name__ == '__main__':
  main()
