"""The processes of a run, one a host, all started with the same command."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

# The hosts of a cold pod start minutes apart; JAX's own limit is 300 s.
START_TIMEOUT_SECONDS = 1800


def join(
  platform: str,
  coordinator: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
) -> None:
  """Joins the other processes of a run; call it before JAX meets a device.

  On Cloud TPU and under Slurm everything is found out; elsewhere the arguments
  say it. Without either the process stays alone.

  Args:
    platform: 'tpu' looks for the other hosts of a slice.
    coordinator: HOST:PORT of process 0, the same on all.
    num_processes: how many there are.
    process_id: which of them this is, from 0.

  Raises:
    ValueError: if only some of the arguments are given, or they make no sense.
  """
  given = (coordinator, num_processes, process_id)
  if any(value is not None for value in given):
    if None in given or not 0 <= process_id < num_processes:
      raise ValueError(
        f'--coordinator={coordinator} --num_processes={num_processes}'
        f' --process_id={process_id}: give all three, the last from 0 to'
        ' num_processes - 1'
      )
  elif platform != 'tpu' and int(os.environ.get('SLURM_NTASKS', 1)) == 1:
    return
  # SIGTERM on any of them leads all to one common last step.
  jax.config.update('jax_enable_preemption_service', True)
  try:
    jax.distributed.initialize(
      coordinator,
      num_processes,
      process_id,
      initialization_timeout=START_TIMEOUT_SECONDS,
    )
  except ValueError as error:
    # JAX found neither a slice nor Slurm; that no TPU is there is told later.
    if coordinator or 'coordinator_address' not in str(error):
      raise


def is_first() -> bool:
  """Whether this process is the one that writes what all share."""
  return jax.process_index() == 0


def wait_for_all(name: str) -> None:
  """Returns once every process came here; `name` is the same on all."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)


def check_equal(what: str, value: int) -> None:
  """Checks that all processes found the same.

  Raises:
    ValueError: with what each of them found.
  """
  if jax.process_count() == 1:
    return
  values = multihost_utils.process_allgather(np.int64(value)).tolist()
  if len(set(values)) > 1:
    raise ValueError(
      f'the processes found different values of {what}: {values}, by process.'
      ' They need the same command, and a workdir and a token store on storage'
      ' that all hosts share'
    )


def to_host(array: Any) -> np.ndarray:
  """Returns a whole array, wherever its shards are; all processes call it."""
  if isinstance(array, jax.Array) and not (
    array.is_fully_addressable or array.is_fully_replicated
  ):
    return multihost_utils.process_allgather(array, tiled=True)
  return np.asarray(jax.device_get(array))


def wait_for(ready: Callable[[], bool], message: str) -> None:
  """Waits without a time-out, and says so every minute."""
  from train.reporting import CONSOLE

  said = -60.0
  while not ready():
    if time.monotonic() - said >= 60:
      said = time.monotonic()
      CONSOLE.print(f'process {jax.process_index()}: {message}', markup=False)
    time.sleep(1)


class Preempted(Exception):
  """The run was asked to end early, and its state is saved."""


class Preemption:
  """Notices SIGTERM, on this host or another; a context manager."""

  def __init__(self) -> None:
    self._noticed = False

  def __enter__(self) -> 'Preemption':
    if jax.process_count() == 1:
      self._before = signal.signal(signal.SIGTERM, self._notice)
    return self

  def __exit__(self, *error: Any) -> None:
    if jax.process_count() == 1:
      signal.signal(signal.SIGTERM, self._before)

  def _notice(self, *_: Any) -> None:
    self._noticed = True

  def is_due(self, step: int) -> bool:
    """Whether to save after this step and end; the same step on all."""
    if jax.process_count() == 1:
      return self._noticed
    return multihost_utils.reached_preemption_sync_point(step)
