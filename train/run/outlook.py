"""Estimates the time, disk and memory of a run before it begins."""

import math
import shutil
from collections.abc import Sequence

import jax
import numpy as np
from etils import epath

from data import storage
from train.engine import memory
from train.host import console, device
from train.run.job import Job

_SAMPLES = 4  # steps whose FLOPs are counted, evenly spaced


def print_outlook(
  job: Job,
  workdir: epath.PathLike,
  needed: memory.Plan,
  done: int,
  peak: float | None,
) -> None:
  """Prints what the steps after `done` take.

  `peak` is the TFLOP/s of a device, None if unknown: then there is no time.
  """
  of = '' if needed.host else ' of each device'
  rows = [
    ('time', _describe_time(job, done, peak)),
    ('disk', _describe_disk(job, epath.Path(workdir))),
    ('memory', memory.in_all(needed) + of),
  ]
  console.table(rows, 'It will take about')


def _describe_time(job: Job, done: int, peak: float | None) -> str:
  left = job.total_steps - done
  if left <= 0:
    return 'nothing: all steps are done'
  measured = 'the first log line has the measured time'
  if peak is None:
    return f'unknown for {jax.devices()[0].device_kind}; {measured}'
  peak *= job.mesh.size
  seconds = total_flops(job, done) / (peak * 1e12 * job.usual_mfu)
  return (
    f'{describe_seconds(seconds)} for {left:,} steps, if these reach'
    f' {100 * job.usual_mfu:g}% of {peak:,.3g} TFLOP/s ({device.describe()}),'
    f' with neither compiling nor scores; {measured}'
  )


def total_flops(job: Job, done: int) -> float:
  """Returns the model FLOPs of the steps after `done`, by some of them."""
  left = job.total_steps - done
  picked = np.unique(
    np.linspace(done, job.total_steps - 1, _SAMPLES).astype(int)
  )
  found = [job.work(int(s), job.batch(int(s), True))[1] for s in picked]
  return float(np.mean(found)) * left


def describe_seconds(seconds: float) -> str:
  """Returns a duration in the unit in which people would tell it."""
  units = (
    (90, 1, 'seconds'),
    (90 * 60, 60, 'minutes'),
    (48 * 3600, 3600, 'hours'),
    (math.inf, 86400, 'days'),
  )
  unit, name = next(part[1:] for part in units if seconds < part[0])
  return f'{max(1, round(seconds / unit)):,} {name}'


def _describe_disk(job: Job, workdir: epath.Path) -> str:
  size = bytes_of(jax.tree.leaves(job.shapes))
  kept = min(job.keep_checkpoints, -(-job.total_steps // job.save_every))
  total = (kept + 1) * size
  count = '1 checkpoint' if kept == 1 else f'{kept} checkpoints'
  text = f'{count} of {memory.gib(size)} and one being written'
  if job.keep is not None:
    total += bytes_of(jax.tree.leaves(job.shapes.params))
    text += ', and the model that is kept'
  text = f'{memory.gib(total)}: {text}'
  if storage.is_remote(workdir):
    return text
  folder = workdir.expanduser().resolve()
  while not folder.exists():
    folder = folder.parent
  return f'{text}; {memory.gib(shutil.disk_usage(folder).free)} are free'


def bytes_of(leaves: Sequence[jax.ShapeDtypeStruct]) -> int:
  """Returns the bytes of arrays, of all devices together."""
  return sum(
    leaf.size * leaf.dtype.itemsize
    for leaf in leaves
    if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
  )
