"""The report of a run whose loss or gradient stopped being finite."""

import io
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jax
import numpy as np
from etils import epath

from train import sharding
from train.checkpoint import Checkpoints


def kept(checkpoints: Checkpoints) -> str:
  """Returns a sentence on what a failed run can continue from."""
  checkpoints.finish()
  step = checkpoints.latest()
  if step is None:
    return 'There is no checkpoint yet.'
  return f'The checkpoint of step {step} is kept.'


def stop_nonfinite(
  step: int,
  params: Any,
  gradient_norms: Callable[[Any, Any, Any], tuple[Any, Any]],
  host_batch: Mapping[str, np.ndarray],
  workdir: epath.Path,
  checkpoints: Checkpoints,
  mesh: Any,
) -> NoReturn:
  """Saves the batch, and raises an error that says what went wrong where.

  Args:
    step: the steps done before the bad one.
    params: the parameters that met the bad batch; a bad step changes nothing.
    gradient_norms: as `steps.make_gradient_norms` returns it.
    host_batch: the batch of that step.
    workdir: where the batch is written.
    checkpoints: of the run, to say which is kept.
    mesh: the mesh.

  Raises:
    FloatingPointError: always.
  """
  path = workdir / f'nonfinite-step-{step}.npz'
  content = io.BytesIO()
  np.savez(content, **host_batch)
  path.write_bytes(content.getvalue())
  try:
    losses, norms = jax.device_get(
      gradient_norms(params, sharding.put_batch(host_batch, mesh), step)
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
  documents = sorted(set(host_batch['document_ids'].tolist()))
  raise FloatingPointError(
    f'the loss or a gradient was not finite in step {step + 1}.\n'
    f'Losses without dropout: {of}. Largest gradient norms without dropout:\n'
    + '\n'.join(lines)
    + f'\nDocuments of the batch: {documents}'
    f'\nThe batch is in {path}. {kept(checkpoints)}'
    ' A smaller optim.learning_rate or a longer warm-up is the usual cure;'
    ' use another --workdir with it'
  )
