"""Predictions of single fine-tuned models and of ensembles."""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath
from ml_collections import config_dict

from data.scoring import kinds, scores
from data.tasks import files as task_files
from data.tasks import registry
from data.tasks.examples import Example, Prediction, Task
from train.engine import sharding
from train.host import files
from train.host.console import say
from train.host.files import Json
from train.run import workdirs
from train.transfer import (
  bodies,
  several,
  tag_paths,
  task_data,
  task_outputs,
)
from train.transfer.program import TaskProgram
from train.transfer.task_data import Split


class EnsembleMember(NamedTuple):
  """A fine-tuned model whose parameters are not read yet."""

  workdir: epath.Path
  program: TaskProgram  # on this process's first device
  facts: Mapping[str, Json]  # content of task.json


def open_member(
  workdir: epath.PathLike, task_name: str | None = None
) -> EnsembleMember:
  """Opens the model of a finished fine-tuning, for one of its tasks.

  Raises FileNotFoundError if the run is unfinished, or a sweep dropped it;
  ValueError if the workdir has no such task.
  """
  workdir = epath.Path(workdir)
  config = workdirs.read_config(workdir)
  if config is None:
    hint, of_several = '', workdir / workdirs.SUMMARY_FILE
    if of_several.exists():
      best = files.read_json(of_several).get('best', {}).get('folder', '')
      hint = f'; it holds several runs, the best of them in {workdir / best}'
    raise FileNotFoundError(
      f'{workdir}: no workdir, it has no config.json{hint}'
    )
  if 'task' not in config:
    raise ValueError(
      f'{workdir} holds a model that was taught no task: fine-tune it first:'
      ' python -m train.main --config transfer:task=NAME'
      f' --config.init.weights={workdir}'
    )
  for key in ('crf', 'mix_l2', 'test_languages'):
    if key not in config.task:
      raise ValueError(
        f'{workdir / "config.json"} has no task.{key}, expected one: an older'
        ' revision wrote it; fine-tune again'
      )
  file = _folder_of(config, workdir, task_name) / task_outputs.TASK_FILE
  if not file.exists():
    raise FileNotFoundError(
      f'{file} is missing: the run is not finished; the same command of'
      ' train.main goes on'
    )
  if not (workdir / workdirs.MODEL_FOLDER).exists():
    raise FileNotFoundError(
      f'{workdir / workdirs.MODEL_FOLDER} is missing: a sweep keeps the'
      ' model of its best run alone, or with --keep_all each'
    )
  facts = files.read_json(file)
  task = task_data.reopen_task(config, facts)
  mesh = sharding.make_mesh(
    config_dict.ConfigDict(dict.fromkeys(sharding.AXES, 1)),
    jax.local_devices()[:1],
  )
  (program,) = bodies.program_of(config).open(config, (task,), workdir)
  program.prepare(mesh)
  return EnsembleMember(workdir, program, facts)


def _folder_of(
  config: ml_collections.ConfigDict, workdir: epath.Path, task_name: str | None
) -> epath.Path:
  """Returns the folder of a task's facts in a workdir."""
  names = task_data.task_names(config)
  if not names and task_name in (None, config.task.name):
    return workdir
  if task_name not in names:
    known = names or (config.task.name,)
    raise ValueError(
      f'{workdir} holds a model of {", ".join(known)}: expected --task with one'
      f' of these, found {task_name or "none"}'
    )
  return workdir / several.FOLDER / task_name


def check_null_odds(models: Sequence[epath.PathLike]) -> None:
  """Raises ValueError if the model of a workdir has no score of no answer."""
  for workdir in models:
    config = workdirs.read_config(workdir)
    if config is not None and config.model.name in bodies.BODIES:
      raise ValueError(
        f'--null_odds: {workdir} holds a {config.model.name}, which scores no'
        ' empty answer'
      )


def read_input(
  task: Task, source: epath.PathLike, split: str, key: str = '--input'
) -> list[Example]:
  """Reads a task's file, or a folder's split; errors name file and line.

  A task of one's own has no folders; its examples may be a data set, see
  `own.find_input`. `key` names the source in messages.
  """
  is_set = task_files.is_named(str(source))
  path = task_files.path_of(str(source))
  if is_set and task.folders:
    raise ValueError(
      f'{key} {path}: found a data set of Hugging Face, expected a file or a'
      f' folder of the task {task.name}; data sets are of tasks of your own'
    )
  if not (is_set or path.exists()):
    raise FileNotFoundError(f'{key} {path}: no such file or folder')
  if path.is_dir() and task.folders:
    return registry.load(task, str(path), split)
  if not task.folders and (is_set or path.is_dir()):
    from data.tasks import own  # for these tasks alone

    form = kinds.OWN_FORMS[task.kind]
    path, told = own.find_input(form, str(source), key)
    if told:
      say(told)
  return registry.read_file(task, path, split)


def predict(
  workdirs: Sequence[epath.PathLike],
  read: Callable[[Task], list[Example]],
  task_name: str | None = None,
) -> tuple[Task, Split, list[Prediction]]:
  """Returns task, split and predictions of one model or an ensemble.

  An ensemble averages the members' probabilities; of spans, the scores of first
  and last token. `read` returns the examples of the members' common task;
  `task_name` chooses it from models of several tasks.
  """
  found = answer(workdirs, read, task_name)
  return found.task, found.split, found.predictions


class Answered(NamedTuple):
  """Predictions of a split, and the logits of its features they are from.

  Attributes:
    settings: the section `task` of the first model's config.
  """

  task: Task
  settings: ml_collections.ConfigDict
  split: Split
  logits: list[np.ndarray]
  predictions: list[Prediction]


def answer(
  workdirs: Sequence[epath.PathLike],
  read: Callable[[Task], list[Example]],
  task_name: str | None = None,
) -> Answered:
  """Returns the predictions of one model or an ensemble; see `predict`."""
  members = _open_members(workdirs, task_name)
  first = members[0].program
  splits = first.open_splits(['test'], {'test': read(first.task)})
  split = splits['test']
  _say_cut(first, split)
  logits = _logits(members, split)
  predictions = _decode(members, split, logits)
  return Answered(first.task, first.config.task, split, logits, predictions)


class Orders(NamedTuple):
  """Predictions of pairs of texts in two orders, and the mean of both.

  Attributes:
    given: of the texts (a, b) as in the file.
    swapped: of (b, a).
    mean: of the mean of both orders' probabilities; of scores, their mean.
  """

  given: list[Prediction]
  swapped: list[Prediction]
  mean: list[Prediction]


def predict_both_orders(
  workdirs: Sequence[epath.PathLike],
  read: Callable[[Task], list[Example]],
  task_name: str | None = None,
) -> tuple[Task, Split, Orders]:
  """Returns task, split and predictions of pairs of texts in both orders.

  For the arguments see `predict`. A GPT reads both orders of a symmetric task
  already, so nothing changes but roundings. Raises ValueError for a task
  without pairs of texts.
  """
  members = _open_members(workdirs, task_name)
  first = members[0].program
  task = first.task
  if task.num_texts != 2:
    raise ValueError(
      f'--both_orders: the task {task.name} does not have two texts that could'
      ' change places; expected a task of pairs, such as MRPC'
    )
  examples = read(task)
  swapped = [
    dataclasses.replace(example, texts=example.texts[::-1])
    for example in examples
  ]
  found = {'test': examples, 'swapped': swapped}
  splits = first.open_splits(list(found), found)
  _say_cut(first, splits['test'])
  logits = [_logits(members, split) for split in splits.values()]
  split = splits['test']
  return (
    task,
    split,
    Orders(
      _decode(members, split, logits[0]),
      _decode(members, splits['swapped'], logits[1]),
      _decode(members, split, kinds.average(task, logits)),
    ),
  )


def compare_orders(
  task: Task, split: Split, orders: Orders
) -> dict[str, float]:
  """Returns how far the order of pairs matters.

  A labelled split has METRIC/given, METRIC/swapped and METRIC/mean. Every split
  has 'flips', the share of pairs whose label changes with the order, or, where
  the answers are scores, 'mean_difference', the mean distance of both scores.
  """
  figures = {}
  if split.is_labelled:
    for name, found in orders._asdict().items():
      for metric, value in scores.score(task, split.examples, found).items():
        figures[f'{metric}/{name}'] = value
  pairs = [
    (given.answer, swapped.answer)
    for given, swapped in zip(orders.given, orders.swapped, strict=True)
  ]
  if task.labels:
    figures['flips'] = statistics.fmean(a != b for a, b in pairs)
  else:
    figures['mean_difference'] = statistics.fmean(abs(a - b) for a, b in pairs)
  return figures


def _open_members(
  workdirs: Sequence[epath.PathLike], task_name: str | None
) -> list[EnsembleMember]:
  """Opens models that answer together, or raises ValueError if they cannot."""
  members = [open_member(workdir, task_name) for workdir in workdirs]
  first, here = members[0].program, _facts(members[0].program)
  if len(members) > 1 and not first.kind.has_mean:
    raise ValueError(
      f'found {len(members)} workdirs, expected one: an ensemble of models of'
      f' the kind {first.task.kind} has no mean'
    )
  for other in members[1:]:
    for name, value in _facts(other.program).items():
      if here[name] != value:
        raise ValueError(
          f'{members[0].workdir} and {other.workdir} cannot answer together:'
          f' {name} is {here[name]} in the first, {value} in the second'
        )
  return members


def _say_cut(program: TaskProgram, split: Split) -> None:
  """Says how many examples are longer than the model reads, if any."""
  features = split.features
  if not features.truncated:
    return
  settings = program.config.task
  # Texts with answers are read in windows, and only questions are cut.
  is_asked = program.kind.unit == 'part'
  keys = ('max_question',) if is_asked else ('max_length', 'long_text')
  told = [f'task.{key}={settings[key]}' for key in keys if key in settings]
  say(
    f'{features.truncated:,} of {len(split.examples):,} examples are longer'
    f' than the model reads ({", ".join(told)}): up to {features.most_lost:,}'
    ' tokens of an example are left out'
  )


def _logits(
  members: Sequence[EnsembleMember], split: Split
) -> list[np.ndarray]:
  """Returns the logits of each feature by a model, or an ensemble's mean."""
  logits = []
  for workdir, program, facts in members:
    say(f'{workdir}: {len(split.examples):,} examples of {facts["task"]}')
    params = program.load(workdir)
    with sharding.scope(program.mesh, program.config.mesh.rules):
      logits.append(task_outputs.run_model(program, params, split)[0])
  if len(logits) == 1:
    return logits[0]
  return kinds.average(members[0].program.task, logits)


def _decode(
  members: Sequence[EnsembleMember], split: Split, logits: list[np.ndarray]
) -> list[Prediction]:
  return task_outputs.predict(
    members[0].program,
    split,
    logits,
    no_answer=any(member.facts['no_answer'] for member in members),
    threshold=statistics.fmean(member.facts['threshold'] for member in members),
  )


def _facts(program: TaskProgram) -> dict[str, Json]:
  """Returns name -> value of all facts that members must share."""
  task, config = program.task, program.config
  return {
    'the task': task.name,
    'the kind': task.kind,
    'the labels': tag_paths.tag_labels(task, config.task),
    'the number of texts': task.num_texts,
    'the number of choices': task.num_choices,
    'the outputs': program.num_outputs,
    **program.facts(),
    **{key: config.task.get(key) for key in task_data.READING},
  }
