"""The labelled sets of a config, as batches."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_collections
from etils import epath

from data import storage
from data.inputs.batches import Batches
from data.inputs.features import Features
from data.scoring import kinds
from data.tasks import files, registry
from data.tasks.examples import Example, Task
from train.architectures import families


@dataclasses.dataclass(frozen=True)
class Split:
  """A split of a labelled set: its examples, their rows and their batches."""

  name: str
  examples: list[Example]
  features: Features
  batches: Batches

  @property
  def is_labelled(self) -> bool:
    """Whether all examples have labels."""
    return bool(self.features.label_mask.all())


def open_task(config: ml_collections.ConfigDict) -> Task:
  """Returns the declaration of a config's task."""
  name = config.task.name
  if config.data.source is None:
    files_of, tfds = (f'the files of {name}', ", or 'tfds'")
    if name == 'own':
      files_of, tfds = 'own.train and own.dev', ''
    raise ValueError(
      f'data.source is empty: name the folder of {files_of}'
      f' (--config.data.source=FOLDER){tfds}'
    )
  if name != 'own':
    return registry.find(name)
  settings = dict(config.own)
  folder = epath.Path(config.data.source).expanduser()
  for split in ('train', 'dev', 'test'):
    name = settings[split]
    if not name:
      settings[split] = ''
      continue
    file = epath.Path(name) if storage.is_remote(name) else folder / name
    if not file.exists():
      raise FileNotFoundError(
        f'own.{split}={name}: not in {folder}. {files.contents(folder)}'
      )
    settings[split] = str(file)
  return kinds.own_task(**settings)


def reopen_task(
  config: ml_collections.ConfigDict, facts: Mapping[str, Any]
) -> Task:
  """Returns the task of a finished run, from its config and task.json."""
  if config.task.name != 'own':
    return registry.find(config.task.name)
  return kinds.own_task(
    **dict(config.own)
    | {
      'test': '',
      'labels': tuple(facts['labels']),
      'score_range': tuple(facts['score_range']),
      'num_choices': facts['num_choices'],
    }
  )


def open_split(
  config: ml_collections.ConfigDict,
  task: Task,
  name: str,
  tokenizer: Any,
  found: list[Example] | None = None,
  *,
  at_last: bool,
) -> Split:
  """Encodes a split, of the examples `found` or read from its files.

  `at_last` tags a word's last piece, not its first; errors name file and line.
  """
  data, settings = config.data, config.task
  if found is None:
    limit = data.train_limit if name == 'train' else data.eval_limit
    found = registry.load(task, data.source, name, limit=limit)
  features = kinds.encode(
    task,
    found,
    tokenizer,
    settings.max_length,
    form=families.architecture_of(config).form,
    at_last=at_last,
    document_context=settings.document_context,
    doc_stride=settings.doc_stride,
    max_query=settings.max_question,
  )
  batches = Batches(
    features,
    pad_id=getattr(tokenizer, 'pad_id', 0),
    max_length=settings.max_length,
    bucket=data.bucket,
  )
  return Split(name, found, features, batches)


def eval_splits(config: ml_collections.ConfigDict, task: Task) -> list[str]:
  """Returns the splits besides 'train': 'dev', and all others with files."""
  must = task.files if not task.folders else ('dev',)
  return [
    name
    for name in task.files
    if name != 'train'
    and (name in must or registry.has_split(task, config.data.source, name))
  ]
