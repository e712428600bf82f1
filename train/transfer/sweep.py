"""Several seeds and settings of one fine-tuning."""

# ruff: noqa: D301, E402
import ast
import itertools
import json
import re
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_collections
from etils import epath

from configs.tables import base
from train.engine import sharding
from train.host import console, files, processes
from train.host.console import say
from train.run import checkpoint, settings, training, workdirs
from train.transfer import finetune, task_job, task_plan

SUMMARY_FILE = 'summary.json'


def run(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  *,
  seeds: Sequence[int] = (0,),
  grid: Mapping[str, Sequence[Any]] | None = None,
  keep_all: bool = False,
) -> dict[str, Any]:
  """Runs every combination of settings and seeds that is not finished yet.

  Args:
    config: of a task.
    workdir: a folder of a run each, and at the end summary.json.
    seeds: of the runs.
    grid: 'section.key' -> values to try.
    keep_all: keep every run's model; otherwise the best one's alone. What runs
      predicted and scored stays always.

  Returns:
    What summary.json holds: `task`, `runs` (each with `seed`, `settings`,
    `metrics` as 'split/metric', `seconds`, `folder`), `mean` and `std` (sample
    standard deviation, 0 of one run) over the seeds of the best settings,
    `settings` (those, by their mean on dev), `best` (the best run on dev),
    `train_size`, `device`, `revision`, `weights`, `config`.

  Raises:
    ValueError, OSError: bad input.
  """
  workdir = epath.Path(workdir)
  grid = grid or {}
  combinations = [
    dict(zip(grid, values, strict=True))
    for values in itertools.product(*grid.values())
  ]
  planned = [
    [
      (workdir / _folder_name(changes, seed), seeded)
      for seed, seeded in _with_seeds(config, changes, seeds)
    ]
    for changes in combinations
  ]
  for of_seeds in planned:  # before any is begun
    for folder, seeded in of_seeds:
      _check(folder, seeded)
    new = [seeded for folder, seeded in of_seeds if not _is_begun(folder)]
    if new:
      task_job.check(new[0])
  runs = []
  for changes, of_seeds in zip(combinations, planned, strict=True):
    # One plan, with its compiled steps, for all seeds that are not finished.
    job = None
    for folder, seeded in of_seeds:
      results = workdirs.read_results(folder)
      if results is None:
        say(f'\n{folder}')
        if job is None and checkpoint.latest_step(folder) is None:
          job = task_job.plan(seeded, sharding.make_mesh(seeded.mesh))
        planned_run = finetune.make(seeded, folder, shared=job)
        results = training.train(planned_run, folder)
      _drop(folder / checkpoint.FOLDER)
      runs.append(_entry(results, changes, folder))
      _keep_best(runs, keep_all)
    del job
  summary = _summary(runs, combinations, results)
  if processes.is_first():
    files.write_atomically(
      workdir / SUMMARY_FILE, json.dumps(summary, indent=2) + '\n'
    )
  return summary


def parse_grid(text: str) -> dict[str, list[Any]]:
  """Returns {'section.key': values} of 'KEY=VALUE,VALUE;KEY=VALUE'.

  Raises:
    ValueError: if it is not like that.
  """
  if text == 'paper':
    return {key: list(values) for key, values in base.PAPER_GRID.items()}
  grid = {}
  for part in filter(None, text.split(';')):
    key, equals, values = part.partition('=')
    if not (equals and key.strip() and all(values.split(','))) or (
      key.strip() in grid
    ):
      raise ValueError(
        f'--grid={text}: expected KEY=VALUE,VALUE with ; between different'
        f' keys, found {part!r}'
      )
    grid[key.strip()] = _values(values)
  return grid


def _values(text: str) -> list[Any]:
  """Returns Python's values, or else texts, that commas set apart."""
  try:
    return list(ast.literal_eval(f'({text},)'))
  except (ValueError, SyntaxError):
    return [_value(part.strip()) for part in text.split(',')]


def _value(text: str) -> Any:
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


def _folder_name(changes: Mapping[str, Any], seed: int) -> str:
  parts = [f'{key.rpartition(".")[2]}={changes[key]}' for key in changes]
  return re.sub(r'[^\w.,=+-]+', '_', ','.join([*parts, f'seed={seed}']))


def _with_seeds(
  config: ml_collections.ConfigDict,
  changes: Mapping[str, Any],
  seeds: Sequence[int],
) -> Iterator[tuple[int, ml_collections.ConfigDict]]:
  """Yields each seed and the config of its run.

  Raises:
    ValueError: if a key or a value cannot be.
  """
  if 'train.seed' in changes:
    raise ValueError('--grid: train.seed is set by --seeds, from its value on')
  for seed in seeds:
    try:
      changed = settings.with_overrides(config, {**changes, 'train.seed': seed})
    except TypeError as error:
      raise ValueError(f'--grid: {dict(changes)}: {error}') from error
    yield seed, changed.lock()


def _check(folder: epath.Path, config: ml_collections.ConfigDict) -> None:
  """Refuses what makes no sense, and a finished run of another config.

  Raises:
    ValueError: naming what differs.
  """
  mesh = sharding.make_mesh(config.mesh)
  task_plan.check(config)
  task_plan.check_batches(config, mesh)
  results = workdirs.read_results(folder)
  if results is None:
    return
  # The model's sizes are those of the weights.
  there, here = (
    {key: value for key, value in flat.items() if not key.startswith('model.')}
    for flat in (results['config'], settings.flatten(config))
  )
  differing = task_plan.differing_keys(there, here)
  if differing:
    raise ValueError(
      f'{folder} holds a finished run of another config:'
      f' {", ".join(differing)} differ: remove it, or pass another --workdir'
    )


def _is_begun(folder: epath.Path) -> bool:
  """Whether a run needs its weights no more."""
  return (
    workdirs.read_results(folder) is not None
    or checkpoint.latest_step(folder) is not None
  )


def _entry(
  results: Mapping[str, Any], changes: Mapping[str, Any], folder: epath.Path
) -> dict[str, Any]:
  task = results['config']['task.name']
  prefix = f'eval/{task}/'
  figures = {}
  for name, value in results['metrics'].items():
    rest = name.removeprefix(prefix)
    figures[rest if '/' in rest else f'dev/{rest}'] = value
  return {
    'seed': results['seed'],
    'settings': dict(changes),
    'metrics': figures,
    'seconds': results['seconds'],
    'folder': folder.name,
    'workdir': str(folder),
  }


def _main_value(entry: Mapping[str, Any]) -> float:
  """Returns the score on dev that decides; it is the first one."""
  return next(
    value for name, value in entry['metrics'].items() if name.startswith('dev/')
  )


def _keep_best(runs: Sequence[Mapping[str, Any]], keep_all: bool) -> None:
  if keep_all:
    return
  best = max(runs, key=_main_value)
  for entry in runs:
    if entry is not best:
      _drop(epath.Path(entry['workdir']) / training.MODEL_FOLDER)


def _drop(folder: epath.Path) -> None:
  if processes.is_first() and folder.exists():
    if '://' in str(folder):
      folder.rmtree()
    else:
      shutil.rmtree(folder)


def _summary(
  runs: Sequence[dict[str, Any]],
  combinations: Sequence[Mapping[str, Any]],
  results: Mapping[str, Any],
) -> dict[str, Any]:
  def of(changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in runs if entry['settings'] == changes]

  chosen = max(
    combinations,
    key=lambda changes: statistics.fmean(map(_main_value, of(changes))),
  )
  values = {
    name: [entry['metrics'][name] for entry in of(chosen)]
    for name in of(chosen)[0]['metrics']
  }
  best = max(runs, key=_main_value)
  return {
    'task': results['config']['task.name'],
    'runs': list(runs),
    'settings': dict(chosen),
    'mean': {name: statistics.fmean(some) for name, some in values.items()},
    'std': {
      name: statistics.stdev(some) if len(some) > 1 else 0.0
      for name, some in values.items()
    },
    'best': best,
    'train_size': results['train_size'],
    'device': results['device'],
    'revision': results['revision'],
    'weights': results['config']['init.weights'],
    'config': results['config'],
  }


def print_summary(summary: Mapping[str, Any], workdir: epath.PathLike) -> None:
  """Prints mean, deviation and best of the runs."""
  best = summary['best']['metrics']
  seeds = [
    entry['seed']
    for entry in summary['runs']
    if entry['settings'] == summary['settings']
  ]
  rows = [
    (
      name,
      f'{mean:.4f} ± {summary["std"][name]:.4f}   best on dev {best[name]:.4f}',
    )
    for name, mean in summary['mean'].items()
  ]
  what = ', '.join(f'{key}={v}' for key, v in summary['settings'].items())
  title = f'{summary["task"]}, {len(seeds)} seeds'
  console.table(rows, title + (f', best settings {what}' if what else ''))
  say(
    f'The best model is in {summary["best"]["workdir"]}; all figures in'
    f' {epath.Path(workdir) / SUMMARY_FILE}'
  )
