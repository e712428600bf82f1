"""Checkpoints by orbax: asynchronous, atomic, the newest few kept.

Each holds checksums of its arrays: the storage libraries miss flipped bits.
"""

import asyncio
import concurrent.futures
import contextlib
import errno
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from data import storage
from data.text import text_files
from models.layers import Params
from train.engine import state
from train.host import console, processes
from train.host.files import Json

FOLDER = 'checkpoints'
# Orbax writes it last, for a step and for its arrays. It marks them complete
# where renaming does not: on object stores and mounted buckets.
COMMIT_FILE = 'commit_success.txt'
METADATA_FILE = '_CHECKPOINT_METADATA'  # JSON, of a step
ITEM = 'default'  # orbax's name of a checkpoint's only item
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def checkpoint_folder(workdir: epath.PathLike) -> epath.Path:
  """Returns a workdir's checkpoint folder as an absolute path, for orbax.

  Raises ValueError for a path with wildcards: orbax lists its own folders by
  patterns, and would save what nobody can read.
  """
  folder = epath.Path(workdir) / FOLDER
  if not storage.is_remote(folder):
    folder = epath.Path(os.path.abspath(folder))
  if found := sorted({*'*?['} & {*str(folder)}):
    raise ValueError(
      f'{folder}: no checkpoint can lie below a folder with'
      f' {" or ".join(found)} in its name: rename it, or pass another --workdir'
    )
  return folder


class _Names(ocp.path.step.NameFormat):
  """Orbax's names of checkpoints; of all steps in one request, not several."""

  def build_name(self, step: int) -> str:
    return str(step)

  def find_all(
    self, base_path: epath.PathLike
  ) -> Iterator[ocp.path.step.Metadata]:
    for step in complete_steps(base_path):
      yield ocp.path.step.Metadata(step, epath.Path(base_path) / str(step))

  def find_step(
    self, base_path: epath.PathLike, step: int
  ) -> ocp.path.step.Metadata:
    return ocp.path.step.Metadata(step, epath.Path(base_path) / str(step))


def complete_steps(folder: epath.PathLike) -> list[int]:
  """Returns the steps of a folder's complete checkpoints, the newest last."""
  folder = epath.Path(folder)
  if storage.is_remote(folder):
    names = [path.parent.name for path in folder.glob(f'*/{COMMIT_FILE}')]
  else:  # a local one gets its name when it is complete
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
  return sorted(int(name) for name in names if name.isdigit())


class Checkpoints:
  """A workdir's checkpoints, in folders STEP of `folder`; a context manager."""

  def __init__(self, workdir: epath.PathLike, *, keep: int):
    self.folder = checkpoint_folder(workdir)
    remote = storage.is_remote(self.folder)
    # Orbax removes old ones by TensorFlow, which loses its way where an answer
    # was lost, and ends the run.
    self._removes = keep if remote and processes.is_first() else None
    self._remover = concurrent.futures.ThreadPoolExecutor(1)
    self._loops = contextlib.ExitStack()
    self._removing: concurrent.futures.Future | None = None
    if self._removes:
      self._remove(unfinished=True)
    self._manager = ocp.CheckpointManager(
      self.folder,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=None if remote else keep,
        create=True,
        enable_async_checkpointing=True,
        # In a bucket they take a second or more. Where no local folder can be
        # made, threads would wait for it for minutes.
        async_options=ocp.AsyncOptions(
          create_directories_asynchronously=remote
        ),
        # A run saves its best model while a checkpoint is being written: under
        # the same names, processes would wait for each other's other save.
        multiprocessing_options=ocp.options.MultiprocessingOptions(
          barrier_sync_key_prefix=self.folder.parent.name
        ),
        step_name_format=_Names(),
        lightweight_initialize=True,
      ),
    )

  def _remove(self, unfinished: bool = False) -> None:
    """Removes old checkpoints from a bucket, or what killed ones had begun."""
    steps = complete_steps(self.folder)
    old = steps[: -self._removes]
    if unfinished and self.folder.exists():
      names = (path.name for path in self.folder.iterdir())
      old += [int(n) for n in names if n.isdigit() and int(n) not in steps]
    for step in old:
      storage.remove_folder(self.folder / str(step), first=COMMIT_FILE)

  def latest(self) -> int | None:
    """Returns the step of the newest complete checkpoint, or None."""
    # Believe storage, not memory.
    return max(complete_steps(self.folder), default=None)

  def save(
    self, step: int, train_state: Any, notes: Mapping[str, Json] | None = None
  ) -> None:
    """Begins to save; returns once the arrays are copied off the devices.

    `train_state` is any tree of arrays. `notes` are kept beside the arrays; the
    method `notes` returns them.
    Raises OSError if this save or the one before could not be written.
    """
    try:
      self._manager.check_for_errors()
      if storage.is_remote(self.folder) and processes.is_first():
        storage.await_bucket(self.folder)
      self._manager.save(
        step,
        args=ocp.args.StandardSave(train_state),
        custom_metadata={
          'checksums': state.checksums(train_state),
          'notes': dict(notes or {}),
        },
      )
    except Exception as error:
      raise self._explained(error) from error
    if self._removes:
      self._removing = self._remover.submit(self._remove)

  def restore(
    self,
    shapes: Any,
    *,
    parts: Sequence[str] | None = None,
    cure: str = 'Mend them',
  ) -> tuple[int, Any]:
    """Returns (step, state) of the newest sound checkpoint, on all processes.

    Newer, damaged checkpoints are renamed and reported. Raises ValueError if no
    checkpoint is sound, and then renames none.

    Args:
      shapes: tree of ShapeDtypeStructs with the shardings to restore to.
      parts: attributes of `shapes` to restore into a dict; None restores all.
      cure: the user's remedy where none is sound, for the error.
    """
    if parts is not None:
      shapes = {name: getattr(shapes, name) for name in parts}
    damaged = {}
    for step in reversed(complete_steps(self.folder)):
      restored, fault = _restore_step(
        self.folder, step, shapes, partial=parts is not None
      )
      if fault is None:
        break
      damaged[step] = fault
    else:
      raise ValueError(
        f'no checkpoint in {self.folder} can be restored:\n'
        + '\n'.join(f'  step {step}: {why}' for step, why in damaged.items())
        + f'\n{cure}, or begin anew with another --workdir'
      )
    for bad, fault in damaged.items():
      aside = self._set_aside(bad)
      console.say(
        f'The checkpoint of step {bad} is damaged: {fault}. It is kept as'
        f' {aside}, and the sound one of step {step} is used.'
      )
    processes.wait_for_all('damaged checkpoints are set aside')
    if damaged:
      self._manager.reload()
    return step, restored

  def _set_aside(self, step: int) -> epath.Path:
    """Renames the folder of a step, so that it no longer counts."""
    aside = self.folder / f'damaged-{step}'
    if processes.is_first():
      number = 1
      while aside.exists():  # damaged before
        number += 1
        aside = self.folder / f'damaged-{step}-{number}'
      (self.folder / str(step)).rename(aside)
    return aside

  def notes(self, step: int) -> dict[str, Json]:
    """Returns the notes that were saved with the checkpoint of a step."""
    return _read_metadata(self.folder / str(step)).get('notes', {})

  def delete(self, step: int) -> None:
    """Removes the checkpoint of a step; all processes call it."""
    if not storage.is_remote(self.folder):
      self._manager.delete(step)
      return
    if processes.is_first():
      storage.remove_folder(self.folder / str(step), first=COMMIT_FILE)
    processes.wait_for_all('a checkpoint is removed')
    self._manager.reload()

  def finish(self) -> None:
    """Waits until all saves are on disk; OSError if one cannot be written."""
    try:
      self._manager.wait_until_finished()
      self._manager.check_for_errors()
      if self._removing is not None:
        concurrent.futures.wait([self._removing])
        with contextlib.suppress(Exception):  # the next one removes them
          self._remove()
    except Exception as error:
      raise self._explained(error) from error

  def __enter__(self) -> 'Checkpoints':
    self._loops.enter_context(_patient_loops())
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    with self._loops:
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
    except Exception:  # the storage is broken: report the first error
      complete = None
    kept = (
      'no complete checkpoint is there'
      if complete is None
      else f'the complete checkpoint of step {complete} is kept'
    )
    return OSError(
      f'a checkpoint in {self.folder} could not be written; {kept}.'
      f' {_cure(error)} and run the same command again. Cause:'
      f' {storage.explain(error) or error}'
    )


def _cure(error: Exception) -> str:
  text = str(error)
  if any(os.strerror(code) in text for code in _FULL):
    return 'Make room'
  return 'Mend the cause'


def latest_step(workdir: epath.PathLike) -> int | None:
  """Returns the step of a workdir's newest complete checkpoint, or None."""
  return max(complete_steps(checkpoint_folder(workdir)), default=None)


def find_step(
  workdir: epath.PathLike, step: int | None = None
) -> tuple[epath.Path, int]:
  """Returns the folder of checkpoints and a kept step; by default the newest.

  Raises FileNotFoundError if there is no complete checkpoint of it.
  """
  folder = checkpoint_folder(workdir)
  steps = complete_steps(folder)
  if not steps:
    raise FileNotFoundError(f'{folder}: holds no complete checkpoint')
  if step is not None and step not in steps:
    raise FileNotFoundError(
      f'{folder}: holds no complete checkpoint of step {step}, but of'
      f' {", ".join(map(str, steps))}'
    )
  return folder, steps[-1] if step is None else step


def params_shapes(
  workdir: epath.PathLike, step: int | None = None
) -> dict[str, tuple[int, ...]]:
  """Returns 'path/of/parameter' -> saved shape of a workdir; reads no array."""
  folder, step = find_step(workdir, step)
  try:
    with _patient_loops():
      handler = ocp.PyTreeCheckpointHandler()
      metadata = handler.metadata(folder / str(step) / ITEM)
    return _shapes_of(metadata.tree['params'])
  except Exception as error:  # damage shows in many ways
    raise ValueError(
      f'{folder}: the checkpoint of step {step} cannot be read'
      f' ({type(error).__name__}: {error})'
    ) from error


def restore_params(
  workdir: epath.PathLike, params_shapes: Params, step: int | None = None
) -> Params:
  """Returns only the parameters of a workdir's checkpoint, of the newest step.

  `params_shapes` is a tree of ShapeDtypeStructs, with shardings for several
  devices. Raises FileNotFoundError without a checkpoint, ValueError for damage.
  """
  folder, step = find_step(workdir, step)
  restored, fault = _restore_step(
    folder, step, {'params': params_shapes}, partial=True
  )
  if fault is not None:
    raise ValueError(f'{folder}: the checkpoint of step {step}: {fault}')
  return restored['params']


def _restore_step(
  folder: epath.Path, step: int, shapes: Any, *, partial: bool = False
) -> tuple[Any, str | None]:
  """Returns (tree, None) or (None, fault), the same on all processes."""
  try:
    checksums = _read_checksums(folder / str(step))
    # Orbax's manager would wait for all processes, for ever if one failed.
    with _patient_loops():
      _check_shapes(folder / str(step) / ITEM, shapes)
      restored = ocp.PyTreeCheckpointHandler().restore(
        folder / str(step) / ITEM,
        args=ocp.args.PyTreeRestore(
          item=shapes,
          restore_args=ocp.checkpoint_utils.construct_restore_args(shapes),
          partial_restore=partial,
        ),
      )
    fault = ''
  except Exception as error:  # damage shows in many ways
    cause = ' '.join(str(error).partition('See full TensorStore')[0].split())
    fault = f'it cannot be read ({type(error).__name__}: {cause[:300]})'
  faults = {
    process: text
    for process, text in enumerate(processes.gather(fault))
    if text
  }
  if faults:
    (process, text), *_ = faults.items()
    return None, text + (f' on process {process}' if process else '')
  for path, found in state.checksums(restored).items():
    if checksums.get(path) != found:
      return None, (
        f'{path} has the checksum {found}, saved with {checksums.get(path)}'
      )
  return restored, None


def _check_shapes(folder: epath.Path, shapes: Any) -> None:
  """Names the first array that was saved in another shape; orbax does not."""
  saved = ocp.PyTreeCheckpointHandler().metadata(folder).tree
  saved, asked = map(_shapes_of, (saved, shapes))
  for path, shape in asked.items():
    if saved.get(path, shape) != shape:
      raise ValueError(f'{path} is {saved[path]}, expected {shape}')


def _shapes_of(tree: Any) -> dict[str, tuple[int, ...]]:
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf.shape
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


class _PatientLoop(asyncio.SelectorEventLoop):
  """An event loop that ends its tasks before it closes."""

  def close(self) -> None:
    if not self.is_closed() and (left := asyncio.all_tasks(self)):
      self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    super().close()


class _PatientLoops(asyncio.DefaultEventLoopPolicy):
  def new_event_loop(self) -> asyncio.AbstractEventLoop:
    return _PatientLoop()


@contextlib.contextmanager
def _patient_loops() -> Iterator[None]:
  """Lets orbax's other reads and writes end before a failed one ends them all.

  Else each prints a page of errors.
  """
  policy = asyncio.get_event_loop_policy()
  asyncio.set_event_loop_policy(_PatientLoops())
  try:
    yield
  finally:
    asyncio.set_event_loop_policy(policy)


def _read_checksums(folder: epath.Path) -> dict[str, int]:
  """Returns the saved checksums of a step's arrays, if it was finished."""
  for marker in (folder / COMMIT_FILE, folder / ITEM / COMMIT_FILE):
    if not marker.exists():
      raise FileNotFoundError(f'{marker} is missing: it was not finished')
  return _read_metadata(folder)['checksums']


def _read_metadata(folder: epath.Path) -> dict[str, Json]:
  """Returns the checksums and notes that a step saved beside its arrays."""
  return text_files.read_json(folder / METADATA_FILE)['custom_metadata']
