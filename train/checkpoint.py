"""Checkpoints by orbax: asynchronous, atomic, the newest few kept."""

import errno
import os
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

FOLDER = 'checkpoints'
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def checkpoint_folder(workdir: epath.PathLike) -> epath.Path:
  """Returns the folder of a workdir's checkpoints; orbax wants it absolute."""
  folder = epath.Path(workdir) / FOLDER
  return folder if '://' in str(folder) else epath.Path(os.path.abspath(folder))


class Checkpoints:
  """The checkpoints of a workdir; a context manager that ends all saving.

  Attributes:
    folder: the one that the folders STEP lie in, local or remote.
  """

  def __init__(self, workdir: epath.PathLike, *, keep: int):
    self.folder = checkpoint_folder(workdir)
    self._manager = ocp.CheckpointManager(
      self.folder,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep, create=True, enable_async_checkpointing=True
      ),
    )

  def latest(self) -> int | None:
    """Returns the step of the newest complete checkpoint, or None."""
    self._manager.reload()  # believe storage, not memory
    return self._manager.latest_step()

  def save(self, step: int, state: Any) -> None:
    """Begins to save; returns once the arrays are copied off the devices.

    Raises:
      OSError: if this or the save before could not be written.
    """
    try:
      self._manager.check_for_errors()
      self._manager.save(step, args=ocp.args.StandardSave(state))
    except Exception as error:
      raise self._explained(error) from error

  def restore(self, step: int, shapes: Any) -> Any:
    """Returns the state of `step`, laid out as `shapes` says.

    Args:
      step: a step that `latest` named.
      shapes: tree of ShapeDtypeStructs with shardings.
    """
    return self._manager.restore(step, args=ocp.args.StandardRestore(shapes))

  def finish(self) -> None:
    """Waits until all that was saved is on disk.

    Raises:
      OSError: if a checkpoint could not be written.
    """
    try:
      self._manager.wait_until_finished()
      self._manager.check_for_errors()
    except Exception as error:
      raise self._explained(error) from error

  def __enter__(self) -> 'Checkpoints':
    return self

  def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
    if error is None:
      self.finish()
    try:
      self._manager.close()
    except Exception:
      if error is None:
        raise

  def _explained(self, error: Exception) -> OSError:
    try:
      complete = self.latest()
    except Exception:  # the storage itself is broken: say the first cause
      complete = None
    kept = (
      'no complete checkpoint is there'
      if complete is None
      else f'the complete checkpoint of step {complete} is kept'
    )
    return OSError(
      f'a checkpoint in {self.folder} could not be written; {kept}.'
      f' {_cure(error)} and run the same command again. Cause: {error}'
    )


def _cure(error: Exception) -> str:
  """Returns what a user can do about an error of the storage."""
  text = str(error)
  if any(os.strerror(code) in text for code in _FULL):
    return 'Make room'
  return 'Mend the cause'


def latest_step(workdir: epath.PathLike) -> int | None:
  """Returns the step of a workdir's newest complete checkpoint, or None."""
  folder = checkpoint_folder(workdir)
  if not folder.exists():
    return None
  with ocp.CheckpointManager(folder) as manager:
    return manager.latest_step()


def restore_params(workdir: epath.PathLike, params_shapes: Any) -> Any:
  """Returns only the parameters of a workdir's newest checkpoint.

  Args:
    workdir: a workdir of a pre-training run.
    params_shapes: tree of ShapeDtypeStructs, with shardings where several
      devices are to hold them.

  Raises:
    FileNotFoundError: if there is no complete checkpoint.
  """
  folder = checkpoint_folder(workdir)
  step = latest_step(workdir)
  if step is None:
    raise FileNotFoundError(f'{folder}: holds no complete checkpoint')
  with ocp.CheckpointManager(folder) as manager:
    restored = ocp.args.PyTreeRestore(
      item={'params': params_shapes},
      restore_args=jax.tree.map(
        lambda leaf: ocp.ArrayRestoreArgs(
          sharding=leaf.sharding, global_shape=leaf.shape, dtype=leaf.dtype
        ),
        {'params': params_shapes},
      ),
      partial_restore=True,
    )
    return manager.restore(step, args=restored)['params']
