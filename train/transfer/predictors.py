"""Predictions of fine-tuned models, alone and as ensembles."""

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from etils import epath
from ml_collections import config_dict

from data.scoring import kinds
from data.tasks import registry
from data.tasks.examples import Example, Prediction, Task
from models.pretrained.weights import Weights
from train.architectures import families
from train.engine import sharding
from train.host.console import say
from train.params import opened
from train.run import settings, workdirs
from train.transfer import task_data, task_job, task_outputs
from train.transfer.task_data import Split
from train.transfer.task_job import Predictor

# Keys of the section `task` that determine a model's input tokens.
READING_KEYS = ('max_length', 'document_context', 'doc_stride', 'max_question')


class Member(NamedTuple):
  """A fine-tuned model whose parameters are not read yet."""

  workdir: epath.Path
  predictor: Predictor  # on this process's first device
  weights: Weights
  facts: dict[str, Any]  # content of task.json


def open_member(workdir: epath.PathLike) -> Member:
  """Opens the model of a finished fine-tuning.

  Raises FileNotFoundError if the run is unfinished, or a sweep dropped it.
  """
  workdir = epath.Path(workdir)
  config = settings.read_workdir_config(workdir)
  if config is None:
    raise FileNotFoundError(f'{workdir}: no workdir, it has no config.json')
  if 'task' not in config:
    raise ValueError(
      f'{workdir} holds a model that was taught no task: fine-tune it first:'
      ' python -m train.main --config transfer:task=NAME'
      f' --config.init.weights={workdir}'
    )
  file = workdir / task_outputs.TASK_FILE
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
  facts = json.loads(file.read_text())
  task = task_data.reopen_task(config, facts)
  mesh = sharding.make_mesh(
    config_dict.ConfigDict(dict.fromkeys(sharding.AXES, 1)),
    jax.local_devices()[:1],
  )
  predictor = task_job.plan_predictor(config, task, mesh, workdir)
  weights = opened.open_weights(workdir)
  weights.check()
  return Member(workdir, predictor, weights, facts)


def read_input(task: Task, source: epath.PathLike, split: str) -> list[Example]:
  """Reads a task's file or a folder's split; errors name file and line."""
  path = epath.Path(source)
  if not path.exists():
    raise FileNotFoundError(f'--input {path}: no such file or folder')
  if not path.is_dir():
    return registry.read_file(task, path, split)
  if not task.folders:
    raise ValueError(
      f'--input {path}: found a folder, expected a file of the task {task.name}'
    )
  return registry.load(task, str(path), split)


def predict(
  workdirs: Sequence[epath.PathLike], read: Callable[[Task], list[Example]]
) -> tuple[Task, Split, list[Prediction]]:
  """Returns task, split and predictions of one model or an ensemble.

  An ensemble averages the members' probabilities; of spans, the scores of first
  and last token. `read` returns the examples of the members' common task.
  """
  members = [open_member(workdir) for workdir in workdirs]
  first, here = members[0].predictor, _facts(members[0].predictor)
  for other in members[1:]:
    for name, value in _facts(other.predictor).items():
      if here[name] != value:
        raise ValueError(
          f'{members[0].workdir} and {other.workdir} cannot answer together:'
          f' {name} is {here[name]} in the first, {value} in the second'
        )
  split = task_data.open_split(
    first.config,
    first.task,
    'test',
    first.encoder.tokenizer,
    read(first.task),
    at_last=first.encoder.labels_last_piece,
  )
  logits = []
  for workdir, predictor, weights, facts in members:
    say(f'{workdir}: {len(split.examples):,} examples of {facts["task"]}')
    params = weights.load(weights.on_one_device())
    with sharding.scope(predictor.mesh, predictor.config.mesh.rules):
      logits.append(task_outputs.run_model(predictor, params, split)[0])
  predictions = task_outputs.predict(
    first,
    split,
    logits[0] if len(logits) == 1 else kinds.average(first.task, logits),
    no_answer=any(member.facts['no_answer'] for member in members),
    threshold=statistics.fmean(member.facts['threshold'] for member in members),
  )
  return first.task, split, predictions


def _facts(predictor: Predictor) -> dict[str, Any]:
  """Returns name -> value of all facts that members must share."""
  task, tokenizer = predictor.task, predictor.encoder.tokenizer
  return {
    'the task': task.name,
    'the kind': task.kind,
    'the labels': task.labels,
    'the number of texts': task.num_texts,
    'the number of choices': task.num_choices,
    'the outputs': predictor.model.num_outputs,
    'reading in both orders': predictor.model.both_orders,
    'the vocabulary': tokenizer and tokenizer.fingerprint[:8],
    'the form of its inputs': families.architecture_of(predictor.config).form,
    'tagging of last pieces': predictor.encoder.labels_last_piece,
  } | {key: predictor.config.task[key] for key in READING_KEYS}
