"""Ends a run that hangs, or has numbers that are not finite."""

import contextlib
import faulthandler
import io
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jax
import numpy as np
from etils import epath
from jax.sharding import Mesh

from models.layers import Params
from train.engine import sharding, steps
from train.engine.state import TrainState
from train.host import processes
from train.run.checkpoint import Checkpoints

# A compiler gives no sign of life: it may take so many limits of the watchdog,
# or so many seconds if they are longer.
_COMPILE_LIMITS, _COMPILE_SECONDS = 4, 3600

_CURE = (
  'A smaller optim.learning_rate or a longer warm-up is the usual cure; use'
  ' another --workdir with it'
)


class Watchdog:
  """Ends a process that hangs, and would hang all others; a context manager.

  After `minutes` without `feed` it prints all threads' stacks and exits.
  """

  def __init__(self, minutes: float):
    """Begins to watch when entered."""
    self._seconds = 60 * minutes
    self._watching = False

  def feed(self) -> None:
    """Gives a sign of life."""
    self._allow(self._seconds)

  @contextlib.contextmanager
  def compiling(self) -> Iterator[None]:
    """Allows the block, which compiles a program, a longer time."""
    self._allow(max(_COMPILE_LIMITS * self._seconds, _COMPILE_SECONDS))
    try:
      yield
    finally:
      self.feed()

  def _allow(self, seconds: float) -> None:
    if self._watching:
      # Where standard error was closed, its number is the null device's.
      to = sys.__stderr__ or 2
      faulthandler.dump_traceback_later(seconds, exit=True, file=to)

  def __enter__(self) -> 'Watchdog':
    self._watching = True
    self.feed()
    return self

  def __exit__(self, *error: Any) -> None:
    self._watching = False
    faulthandler.cancel_dump_traceback_later()


def kept(checkpoints: Checkpoints, models: Checkpoints | None = None) -> str:
  """Returns a sentence on the checkpoints and best model of a failed run."""
  said = 'There is no checkpoint yet.'
  checkpoints.finish()
  step = checkpoints.latest()
  if step is not None:
    said = f'The checkpoint of step {step} is kept.'
  model = None if models is None else models.latest()
  if model is not None:
    said += f' The best model so far, of step {model}, is kept.'
  return said


def check_finite(
  params: Params,
  step: int,
  checkpoints: Checkpoints,
  models: Checkpoints | None = None,
) -> None:
  """Checks that parameters to save are finite, else FloatingPointError."""
  if not steps.all_finite(params):
    raise FloatingPointError(
      f'parameters are not finite after step {step}: its update overflowed.'
      f' {kept(checkpoints, models)} {_CURE}'
    )


def stop_nonfinite(
  step: int,
  state: TrainState,
  gradient_norms: steps.GradientNorms,
  host_batch: Mapping[str, np.ndarray],
  workdir: epath.Path,
  checkpoints: Checkpoints,
  mesh: Mesh,
  models: Checkpoints | None = None,
) -> NoReturn:
  """Saves the bad batch; raises FloatingPointError with losses, gradient norms.

  `step` counts the steps before the bad one; `host_batch` is its global batch.
  """
  path = workdir / f'nonfinite-step-{step}.npz'
  content = io.BytesIO()
  np.savez(content, **host_batch)
  if processes.is_first():
    path.write_bytes(content.getvalue())
  rows = sharding.local_rows(mesh, len(next(iter(host_batch.values()))))
  local = {name: array[rows] for name, array in host_batch.items()}
  try:
    losses, norms = jax.device_get(
      gradient_norms(
        state.params, sharding.put_batch(local, mesh), state.carry, step
      )
    )
  except jax.errors.JaxRuntimeError:  # no memory for the whole batch
    losses, norms = {}, {}
  named = {
    jax.tree_util.keystr(where, simple=True, separator='/'): float(norm)
    for where, norm in jax.tree_util.tree_flatten_with_path(norms)[0]
  }
  worst = sorted(
    named.items(),
    key=lambda item: (np.isfinite(item[1]), -np.nan_to_num(item[1])),
  )
  lines = [f'  {norm:12.5g}  {where}' for where, norm in worst[:10]]
  of = ', '.join(f'{name} {float(value):.5g}' for name, value in losses.items())
  documents = ''
  if 'document_ids' in host_batch:
    numbers = sorted(set(host_batch['document_ids'].tolist()))
    documents = f'\nDocuments of the batch: {numbers}'
  raise FloatingPointError(
    f'the loss or a gradient was not finite in step {step + 1}.\n'
    f'Losses without dropout: {of}. Largest gradient norms without dropout:\n'
    + '\n'.join(lines)
    + documents
    + f'\nThe batch is in {path}. {kept(checkpoints, models)} {_CURE}'
  )
