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
from train.transfer import kinds as kinds_of_model

# Keys of the section `task` that say how examples are cut -> arguments of
# `framing.encode`; a config has those that its reader needs.
READING = {
  'max_length': 'max_length',
  'document_context': 'document_context',
  'doc_stride': 'doc_stride',
  'max_question': 'max_query',
}


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


def open_tasks(config: ml_collections.ConfigDict) -> tuple[Task, ...]:
  """Returns the declarations of a config's task, or of its several tasks."""
  names = task_names(config)
  if not names:
    return (open_task(config),)
  if config.data.source is None:
    raise ValueError(
      'data.source is empty: name the folder of the sets of'
      f' {", ".join(names)} (--config.data.source=FOLDER)'
    )
  return tuple(map(registry.find, names))


def task_names(config: ml_collections.ConfigDict) -> tuple[str, ...]:
  """Returns the names of tasks that are trained together, or none."""
  return tuple(config.task.names) if 'names' in config.task else ()


def reopen_task(
  config: ml_collections.ConfigDict, facts: Mapping[str, Any]
) -> Task:
  """Returns the task of a finished run, from its config and task.json."""
  if facts['task'] != 'own':
    return registry.find(facts['task'])
  return kinds.own_task(
    **dict(config.own)
    | {
      'test': '',
      'labels': tuple(facts['labels']),
      'score_range': tuple(facts['score_range']),
      'num_choices': facts['num_choices'],
    }
  )


def read_split(
  config: ml_collections.ConfigDict, task: Task, name: str
) -> list[Example]:
  """Returns the examples of a split; errors name file and line."""
  data = config.data
  limit = data.train_limit if name == 'train' else data.eval_limit
  return registry.load(task, data.source, name, limit=limit)


def encode(
  config: ml_collections.ConfigDict,
  task: Task,
  examples: list[Example],
  tokenizer: Any,
  **options: Any,
) -> Features:
  """Returns examples as rows; for `options` see `framing.encode`."""
  cuts = {
    argument: config.task[key]
    for key, argument in READING.items()
    if key in config.task
  }
  bioul = kinds_of_model.tag_labels(task, config.task) != task.labels
  return kinds.encode(task, examples, tokenizer, **cuts, bioul=bioul, **options)


def open_split(
  config: ml_collections.ConfigDict,
  task: Task,
  name: str,
  tokenizer: Any,
  found: list[Example] | None = None,
  *,
  form: str,
  at_last: bool,
) -> Split:
  """Encodes a split, of the examples `found` or read from its files.

  `form` is of `framing.FORMS`; `at_last` tags a word's last piece, not its
  first.
  """
  if found is None:
    found = read_split(config, task, name)
  features = encode(config, task, found, tokenizer, form=form, at_last=at_last)
  batches = Batches(
    features,
    pad_id=getattr(tokenizer, 'pad_id', 0),
    max_length=config.task.max_length,
    bucket=config.data.bucket,
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
