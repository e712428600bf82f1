"""The weights that tasks learned for a model's layers, from finished runs.

From the checkpoint of each finished fine-tuning
only the weights and the scale of its averages of layers are read, see
`models.scalar_mix`.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from data import hub, storage
from train.papers import table_figures, table_rows
from train.run.workdirs import SUMMARY_FILE

# Where a task model reads the layers -> the module of the average. A
# `models.task_model.TaskModel` has one average, below its head; an
# `models.elmo_tasks.reader.Reader` has one at the input, the output, or both.
PLACES = {'input': ('mix', 'input/mix'), 'output': ('output/mix',)}


class Mix(NamedTuple):
  """An average of layers: its normalised weights, embeddings first, its scale.

  A deviation of several averages has the same form.
  """

  weights: tuple[float, ...]
  gamma: float


class WeightsRow(NamedTuple):
  """The averages of the runs of one name: place -> one for each workdir."""

  name: str
  task: str
  workdirs: tuple[str, ...]
  mixes: Mapping[str, tuple[Mix, ...]]


def find_runs(given: Iterable[str]) -> dict[str, list[epath.Path]]:
  """Returns {name: workdirs} of arguments NAME=WORKDIR, in their order.

  WORKDIR is a finished fine-tuning or the folder of a finished sweep, which
  stands for the runs of its best settings that keep their model. A name may be
  given several times. Raises ValueError for any other folder.
  """
  runs: dict[str, list[epath.Path]] = {}
  for text in given:
    name, path = table_rows.split_name(text)
    if path.startswith(hub.SCHEME):
      raise ValueError(
        f'--weights {text}: expected the workdir of a finished fine-tuning, not'
        ' published weights'
      )
    storage.check_buckets([path])
    workdirs = runs.setdefault(name, [])
    for workdir in _workdirs_of(epath.Path(path).expanduser()):
      if workdir in workdirs:
        raise ValueError(f'--weights {text}: {workdir} is given twice')
      workdirs.append(workdir)
  return runs


def _workdirs_of(folder: epath.Path) -> list[epath.Path]:
  if (folder / 'config.json').exists():
    return [folder]
  summary = table_figures.read_summary(folder / SUMMARY_FILE)
  if summary is None:
    raise ValueError(
      f'{folder}: expected the workdir of a finished fine-tuning, with its'
      ' config.json, or the folder of a finished sweep, with its'
      f' {SUMMARY_FILE}'
    )
  from train.run import workdirs  # imports JAX, after the cheap checks

  kept = [
    run
    for run in summary['runs']
    if (folder / run.get('folder', '') / workdirs.MODEL_FOLDER).exists()
  ]
  if not kept:
    raise ValueError(
      f'{folder}: no run of this sweep has its model any more; run the sweep'
      ' again with --keep_all'
    )
  # Without --keep_all one model is kept, perhaps of other settings.
  chosen = table_figures.chosen_runs({**summary, 'runs': kept}) or kept
  return [folder / run['folder'] for run in chosen]


def read_row(name: str, workdirs: Sequence[epath.Path]) -> WeightsRow:
  """Reads the averages of runs of one task.

  Raises ValueError if a workdir is unfinished or has none, or if the workdirs
  differ in task, places or number of layers; OSError if one cannot be read.
  """
  found = [_read_mixes(workdir) for workdir in workdirs]
  forms = [
    (task, {place: len(mix.weights) for place, mix in mixes.items()})
    for task, mixes in found
  ]
  for workdir, form in zip(workdirs, forms, strict=True):
    if form != forms[0]:
      raise ValueError(
        f'--weights {name}={workdir}: it has {_described(*form)}, and'
        f' {workdirs[0]} of the same name has {_described(*forms[0])}: give'
        ' them different names'
      )
  (task, places), *_ = forms
  return WeightsRow(
    name,
    task,
    tuple(map(str, workdirs)),
    {place: tuple(mixes[place] for _, mixes in found) for place in places},
  )


def _described(task: str, places: Mapping[str, int]) -> str:
  layers = (f'{count} layers at the {place}' for place, count in places.items())
  return f'task {task}, {", ".join(layers)}'


def _read_mixes(workdir: epath.Path) -> tuple[str, dict[str, Mix]]:
  """Returns the task of a finished run and its mixes by place."""
  import jax  # with orbax below, after the cheap checks

  from models import scalar_mix
  from train.run import checkpoint
  from train.run import workdirs as run_workdirs

  config = run_workdirs.read_config(workdir)
  if 'task' not in config:
    raise ValueError(
      f'{workdir}: is a pre-training, expected a fine-tuning with'
      ' --config.task.features=mix'
    )
  if run_workdirs.read_results(workdir) is None:
    raise ValueError(
      f'{workdir}: the run is not finished, it has no results.json; its command'
      ' continues it'
    )
  folder = workdir / run_workdirs.MODEL_FOLDER
  if not folder.exists():
    raise ValueError(
      f'{workdir}: its model was removed, as a sweep without --keep_all does'
      ' but for the best run'
    )
  shapes = checkpoint.params_shapes(folder)
  names = {
    place: module
    for place, modules in PLACES.items()
    for module in modules
    if f'{module}/{scalar_mix.WEIGHTS}' in shapes
  }
  if not names:
    raise ValueError(
      f'{workdir}: the model has no {scalar_mix.WEIGHTS}, which a fine-tuning'
      ' of init.weights with --config.task.features=mix learns; its'
      f' task.features is {config.task.features!r} and its init.weights'
      f' {config.init.weights!r}'
    )
  asked: dict = {}
  for module in names.values():
    inner = asked
    for part in module.split('/'):
      inner = inner.setdefault(part, {})
    for leaf in (scalar_mix.WEIGHTS, scalar_mix.SCALE):
      inner[leaf] = jax.ShapeDtypeStruct(shapes[f'{module}/{leaf}'], np.float32)
  restored = checkpoint.restore_params(folder, asked)
  mixes = {}
  for place, module in names.items():
    inner = restored
    for part in module.split('/'):
      inner = inner[part]
    mix = _normalised(inner[scalar_mix.WEIGHTS], inner[scalar_mix.SCALE])
    if not np.all(np.isfinite((*mix.weights, mix.gamma))):
      raise ValueError(f'{workdir}: the parameters of {module} are not finite')
    mixes[place] = mix
  names = config.task.names if 'names' in config.task else ()
  return '+'.join(names) or config.task.name, mixes


def _normalised(weights: np.ndarray, scale: np.ndarray) -> Mix:
  weights = np.asarray(weights, np.float64)
  shares = np.exp(weights - weights.max())
  return Mix(tuple(map(float, shares / shares.sum())), float(scale))


def average(mixes: Sequence[Mix]) -> tuple[Mix, Mix | None]:
  """Returns mean and sample standard deviation of each figure; None of one."""
  by_layer = list(zip(*(mix.weights for mix in mixes), strict=True))
  gammas = [mix.gamma for mix in mixes]
  mean = Mix(tuple(map(statistics.fmean, by_layer)), statistics.fmean(gammas))
  if len(mixes) == 1:
    return mean, None
  return mean, Mix(
    tuple(map(statistics.stdev, by_layer)), statistics.stdev(gammas)
  )
