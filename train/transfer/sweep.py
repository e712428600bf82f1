"""Several seeds and settings of one fine-tuning."""

import ast
import itertools
import json
import re
import shutil
import statistics
from collections.abc import Mapping, Sequence

import ml_collections
from etils import epath

from configs import variants
from data import storage
from train.engine import sharding
from train.host import console, files, processes
from train.host.console import say
from train.host.files import Json
from train.run import checkpoint, metrics, settings, training, workdirs
from train.run.settings import FlatConfig, Grid, Value
from train.run.workdirs import Results
from train.transfer import assemble, bodies, finetune, several, task_plan

Entry = Mapping[str, Json]  # a run in `Summary`, see `run`
Summary = Mapping[str, Json]  # content of summary.json, see `run`


def run(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  *,
  seeds: Sequence[int] = (0,),
  grid: Grid | None = None,
  keep_all: bool = False,
) -> Summary:
  """Runs every combination of settings and seeds that is not finished yet.

  `workdir` holds the runs' folders and summary.json; `grid` maps 'section.key'
  to values. Only the best run's model is kept, or with `keep_all` every one;
  predictions and scores always are. After a run that diverges the others go
  on; it is tried again only if its folder is removed.

  Returns:
    The content of summary.json: `task`, `runs` (each with `seed`, `settings`,
    `metrics` as 'split/metric', of several tasks 'task/split/metric' and
    'dev/mean', `main`, the metric that chooses, `seconds`, `folder`), `mean`
    and `std` (sample standard deviation, 0 of one run) over the seeds of the
    best settings, `settings` (best by mean on dev, among those with the fewest
    diverged runs), `best` (the best run on dev), `train_size`, `device`,
    `revision`, `weights`, `config`; `diverged`, the runs that did, each with
    `seed`, `settings`, `error` and `folder`.

  Raises:
    FloatingPointError: if all runs diverged; summary.json tells of them.
    processes.Preempted: if asked to end early; what is finished is kept.
  """
  workdir = epath.Path(workdir)
  grid = grid or {}
  combinations = [
    dict(zip(grid, values, strict=True))
    for values in itertools.product(*grid.values())
  ]
  planned = []
  for changes in combinations:
    planned.append(
      [
        (workdir / _folder_name(changes, seed), _changed(config, changes, seed))
        for seed in seeds
      ]
    )
  for of_seeds in planned:  # all are checked before the first run
    for folder, seeded in of_seeds:
      _check(folder, seeded)
    new = [seeded for folder, seeded in of_seeds if not _is_begun(folder)]
    if new:
      assemble.check_fits(new[0])
  runs, diverged, last = [], [], None
  with processes.Preemption() as preemption:

    def end_if_asked() -> None:
      count = len(combinations) * len(seeds)
      preemption.end_if_due(f'{len(runs)} of {count} runs are finished')

    for changes, of_seeds in zip(combinations, planned, strict=True):
      # All seeds share one plan with its compiled steps.
      shared = None
      for folder, seeded in of_seeds:
        results = workdirs.read_results(folder)
        file = folder / workdirs.DIVERGED_FILE
        why = file.read_text() if file.exists() else ''
        if results is None and not why:
          end_if_asked()
          say(f'\n{folder}')
          if shared is None and checkpoint.latest_step(folder) is None:
            shared = finetune.plan(seeded, training.find_devices(seeded))
          planned_run = finetune.make(seeded, folder, shared=shared)
          try:
            results = training.train(planned_run, folder)
          except FloatingPointError as error:
            why = str(error)
            say(f'diverged: {why}')
            if processes.is_first():
              files.write_atomically(file, f'{why}\n')
        if results is None:
          diverged.append(
            {
              'seed': seeded.train.seed,
              'settings': dict(changes),
              'error': why.partition('\n')[0],
              'folder': folder.name,
            }
          )
          continue
        last = results
        _drop(folder / checkpoint.FOLDER)
        runs.append(_entry(results, changes, folder))
        best = max(runs, key=_main_value)
        for entry in runs:
          if entry is not best and not keep_all:
            _drop(epath.Path(entry['workdir']) / workdirs.MODEL_FOLDER)
      del shared
    facts = last or {'config': settings.flatten(seeded)}
    summary = _summary(runs, combinations, facts) | {'diverged': diverged}
    if processes.is_first():
      files.write_atomically(
        workdir / workdirs.SUMMARY_FILE, json.dumps(summary, indent=2) + '\n'
      )
    if not runs:
      raise FloatingPointError(f'all runs diverged: {diverged[0]["error"]}')
    end_if_asked()  # a table has other sweeps
  return summary


def parse_grid(text: str) -> dict[str, list[Value]]:
  """Returns {'section.key': values} of 'KEY=VALUE,VALUE;KEY=...' or 'paper'."""
  if text == 'paper':
    return {key: list(values) for key, values in variants.PAPER_GRID.items()}
  grid = {}
  for part in filter(None, text.split(';')):
    key, equals, values = part.partition('=')
    key = key.strip()
    if not (equals and key and all(values.split(','))) or key in grid:
      raise ValueError(
        f'--grid={text}: expected KEY=VALUE,VALUE with ; between different'
        f' keys, found {part!r}'
      )
    try:
      grid[key] = list(ast.literal_eval(f'({values},)'))
    except (ValueError, SyntaxError):
      grid[key] = [_value(value.strip()) for value in values.split(',')]
  return grid


def _value(text: str) -> Value:
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


def _folder_name(changes: FlatConfig, seed: int) -> str:
  parts = [f'{key.rpartition(".")[2]}={changes[key]}' for key in changes]
  return re.sub(r'[^\w.,=+-]+', '_', ','.join([*parts, f'seed={seed}']))


def _changed(
  config: ml_collections.ConfigDict, changes: FlatConfig, seed: int
) -> ml_collections.ConfigDict:
  """Returns the config of a run; ValueError for an impossible key or value."""
  if 'train.seed' in changes:
    raise ValueError('--grid: train.seed is set by --seeds, from its value on')
  try:
    overrides = {**changes, 'train.seed': seed}
    return settings.with_overrides(config, overrides).lock()
  except TypeError as error:
    raise ValueError(f'--grid: {dict(changes)}: {error}') from error


def _check(folder: epath.Path, config: ml_collections.ConfigDict) -> None:
  """Checks a run's settings, and that no other config finished there."""
  results = workdirs.read_results(folder)
  finished = results and results['config']
  if (folder / workdirs.DIVERGED_FILE).exists():
    finished = settings.flatten(workdirs.read_config(folder))
  is_new = finished is None
  mesh = (
    training.find_devices(config) if is_new else sharding.make_mesh(config.mesh)
  )
  task_plan.check_settings(config)
  task_plan.check_batches(config, mesh)
  if is_new:
    return
  # A language model's sizes come from the weights.
  is_sized = config.model.name in bodies.BODIES
  there, here = (
    {
      key: value
      for key, value in flat.items()
      if is_sized or not key.startswith('model.')
    }
    for flat in (finished, settings.flatten(config))
  )
  differing = task_plan.differing_keys(there, here)
  if differing:
    raise ValueError(
      f'{folder} holds a finished run of another config:'
      f' {", ".join(differing)} differ: remove it, or pass another --workdir'
    )


def _is_begun(folder: epath.Path) -> bool:
  return (
    workdirs.read_results(folder) is not None
    or (folder / workdirs.DIVERGED_FILE).exists()
    or checkpoint.latest_step(folder) is not None
  )


def _entry(results: Results, changes: FlatConfig, folder: epath.Path) -> Entry:
  names = _tasks(results)

  def figure(name: str) -> str:
    of, _, rest = name.removeprefix('eval/').partition('/')
    rest = rest or of  # the mean over several tasks
    prefix = f'{of}/' if len(names) > 1 and of in names else ''
    # SPLIT/METRIC, or of dev METRIC or METRIC/GROUP.
    first, _, more = rest.partition('/')
    is_of_dev = not more or f'eval/{of}/{first}' in results['metrics']
    return prefix + (f'dev/{rest}' if is_of_dev else rest)

  main = _main_metric(results, folder)
  # A results.json that is read back has its keys in another order.
  order = sorted(results['metrics'], key=lambda name: (name != main, name))
  return {
    'seed': results['seed'],
    'settings': dict(changes),
    'metrics': {figure(name): results['metrics'][name] for name in order},
    'main': figure(main),
    'seconds': results['seconds'],
    'folder': folder.name,
    'workdir': str(folder),
  }


def _tasks(results: Results) -> list[str]:
  """Returns the names of a run's task, or of its several tasks."""
  config = results['config']
  return config.get('task.names') or [config['task.name']]


def _main_metric(results: Results, folder: epath.Path) -> str:
  """Returns the metric that chose a run's model, as results.json names it.

  Runs of earlier revisions do not name it: it is the first metric that their
  metrics.csv has of dev, or the mean over several tasks.
  """
  if 'main_metric' in results:
    return results['main_metric']
  if several.MEAN in results['metrics']:
    return several.MEAN
  for _, name, _ in metrics.read_metrics(folder):
    if name in results['metrics'] and name.startswith('eval/'):
      return name
  raise ValueError(
    f'{folder}: neither results.json nor metrics.csv names the metric that'
    ' chose the model. Remove the folder, and the run is made again'
  )


def _main_value(entry: Entry) -> float:
  return entry['metrics'][entry['main']]


def _drop(folder: epath.Path) -> None:
  if processes.is_first() and folder.exists():
    if storage.is_remote(folder):
      folder.rmtree()
    else:
      shutil.rmtree(folder)


def _summary(
  runs: Sequence[Entry],
  combinations: Sequence[FlatConfig],
  results: Results,
) -> Summary:
  if not runs:
    kept = {'task': '+'.join(_tasks(results)), 'runs': []}
    return kept | {'config': results['config']}
  groups = [
    [entry for entry in runs if entry['settings'] == changes]
    for changes in combinations
  ]
  chosen = max(
    filter(None, groups),
    key=lambda group: (len(group), statistics.fmean(map(_main_value, group))),
  )
  values = {
    name: [entry['metrics'][name] for entry in chosen]
    for name in chosen[0]['metrics']
  }
  return {
    'task': '+'.join(_tasks(results)),
    'runs': list(runs),
    'settings': chosen[0]['settings'],
    'mean': {name: statistics.fmean(some) for name, some in values.items()},
    'std': {
      name: statistics.stdev(some) if len(some) > 1 else 0.0
      for name, some in values.items()
    },
    'best': max(runs, key=_main_value),
    **{key: results[key] for key in ('train_size', 'device', 'revision')},
    'weights': results['config']['init.weights'],
    'config': results['config'],
  }


def print_summary(summary: Summary, workdir: epath.PathLike) -> None:
  """Prints mean and deviation of the best settings, and the best run."""
  best, chosen = summary['best'], summary['settings']
  count = sum(entry['settings'] == chosen for entry in summary['runs'])
  rows = [
    (
      name,
      f'{mean:.4f} ± {summary["std"][name]:.4f}'
      f'   best on dev {best["metrics"][name]:.4f}',
    )
    for name, mean in summary['mean'].items()
  ]
  title = f'{summary["task"]}, {count} seeds'
  if lost := len(summary['diverged']):
    title += f', beside {lost} diverged runs'
  if chosen:
    title += ', best settings ' + ', '.join(
      f'{k}={v}' for k, v in chosen.items()
    )
  console.table(rows, title, console.show)
  console.show(
    f'The best model is in {best["workdir"]}; all figures in'
    f' {epath.Path(workdir) / workdirs.SUMMARY_FILE}'
  )
