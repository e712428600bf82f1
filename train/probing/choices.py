"""A command's choices, and whether results in a folder were made with them.

Read before JAX is imported.
"""

import argparse
import dataclasses
import hashlib
from collections.abc import Mapping

from etils import epath

from data import storage
from data.tasks.probes import tasks
from data.tasks.probes.targets import Probe
from train.host.files import Json
from train.probing import outputs, plan
from train.probing.plan import Settings


def recipe_of(task: str, arguments: argparse.Namespace) -> Settings:
  """Returns the recipe of a task by the command's options."""
  changes = {
    field.name: value
    for field in dataclasses.fields(Settings)
    if (value := getattr(arguments, field.name)) is not None
  }
  return plan.settings_of(task, arguments.published, changes)


def settings_of(probe: Probe, arguments: argparse.Namespace) -> dict[str, Json]:
  """Returns all settings that change a task's results, except the weights.

  `data` is a digest of the files.
  """
  digest = hashlib.sha256()
  for split in tasks.SPLITS:
    path = tasks.file_of(probe, arguments.data, split)
    digest.update(hashlib.sha256(path.read_bytes()).digest())
  return {
    'version': plan.VERSION,
    'data': digest.hexdigest()[:16],
    'limit': arguments.limit,
    'layers': arguments.layers,
    'seeds': arguments.seeds,
    'control': arguments.control and probe.has_control,
    **dataclasses.asdict(recipe_of(probe.name, arguments)),
  }


def check_out(
  out: epath.Path,
  expected: Mapping[str, Mapping[str, Json]],
  *,
  overwrite: bool = False,
) -> list[str]:
  """Returns the tasks that are not finished in a folder.

  `expected` has each task's settings. Raises ValueError if results there have
  another setting, which it names, unless `overwrite`.
  """
  out = epath.Path(out).expanduser()
  todo = []
  for name, settings in expected.items():
    path = outputs.path_of(out, name)
    if overwrite or not path.exists():
      todo.append(name)
    else:
      outputs.check_settings(path, outputs.read(path), settings)
  others(out, expected)
  return todo


def others(
  out: epath.Path, expected: Mapping[str, Mapping[str, Json]]
) -> list[str]:
  """Returns other tasks in a folder, which the tables show too.

  Raises ValueError if they are of other weights, layers or seeds.
  """
  shared = ('weights', 'num_layers', 'layers', 'seeds')
  settings = next(iter(expected.values()))
  known = {key: settings[key] for key in shared if key in settings}
  names = []
  for path in storage.find_files(out, '*.json') if out.exists() else ():
    if path.name != outputs.JSON_FILE and path.stem not in expected:
      cure = 'The tables show all tasks of a folder: give another --out'
      outputs.check_settings(path, outputs.read(path), known, cure)
      names.append(path.stem)
  return names
