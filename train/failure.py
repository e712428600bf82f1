"""The report of a run whose loss or gradient stopped being finite."""

import faulthandler
import io
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jax
import numpy as np
from etils import epath

from train import processes, sharding
from train.checkpoint import Checkpoints


class Watchdog:
  """Ends a process that is stuck; a context manager.

  A host that hangs, alive, would hang all others for ever. Without a sign of
  life for so long, all threads' stacks are printed and the process exits.
  """

  def __init__(self, minutes: float):
    """Begins to watch when entered; `minutes` without `feed` are the limit."""
    self._seconds = 60 * minutes

  def feed(self) -> None:
    """Gives a sign of life."""
    faulthandler.dump_traceback_later(
      self._seconds, exit=True, file=sys.__stderr__
    )

  def __enter__(self) -> 'Watchdog':
    self.feed()
    return self

  def __exit__(self, *error: Any) -> None:
    faulthandler.cancel_dump_traceback_later()


def kept(checkpoints: Checkpoints) -> str:
  """Returns a sentence on what a failed run can continue from."""
  checkpoints.finish()
  step = checkpoints.latest()
  if step is None:
    return 'There is no checkpoint yet.'
  return f'The checkpoint of step {step} is kept.'


def stop_nonfinite(
  step: int,
  state: Any,
  gradient_norms: Callable[[Any, Any, Any, Any], tuple[Any, Any]],
  host_batch: Mapping[str, np.ndarray],
  rows: np.ndarray,
  workdir: epath.Path,
  checkpoints: Checkpoints,
  mesh: Any,
) -> NoReturn:
  """Saves the batch, and raises an error that says what went wrong where.

  Args:
    step: the steps done before the bad one.
    state: the one that met the bad batch; a bad step changes nothing.
    gradient_norms: as `steps.make_gradient_norms` returns it.
    host_batch: the global batch of that step.
    rows: those of it that this process feeds.
    workdir: where the batch is written.
    checkpoints: of the run, to say which is kept.
    mesh: the mesh.

  Raises:
    FloatingPointError: always.
  """
  path = workdir / f'nonfinite-step-{step}.npz'
  content = io.BytesIO()
  np.savez(content, **host_batch)
  if processes.is_first():
    path.write_bytes(content.getvalue())
  local = {name: array[rows] for name, array in host_batch.items()}
  try:
    losses, norms = jax.device_get(
      gradient_norms(
        state.params, sharding.put_batch(local, mesh), state.carry, step
      )
    )
  except jax.errors.JaxRuntimeError:  # no room for a batch without parts
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
    + f'\nThe batch is in {path}. {kept(checkpoints)}'
    ' A smaller optim.learning_rate or a longer warm-up is the usual cure;'
    ' use another --workdir with it'
  )
