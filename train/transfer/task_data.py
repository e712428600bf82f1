"""The labelled sets of a config, as batches."""

import dataclasses
from collections.abc import Mapping

import ml_collections

from data.inputs.batches import Batches
from data.inputs.features import Features
from data.scoring import kinds
from data.tasks import registry
from data.tasks.examples import Example, Task
from data.vocabulary.tokenizer import Tokenizer
from train.host.files import Json
from train.transfer import tag_paths

# Keys of the section `task` that say how examples are cut -> arguments of
# `framing.encode`; a config has those that its reader needs.
READING = {
  'max_length': 'max_length',
  'document_context': 'document_context',
  'doc_stride': 'doc_stride',
  'max_question': 'max_query',
  'long_text': 'long_text',
}

DEV = 'dev'
# The splits of another language: it has no training set.
SCORED = (DEV, 'test')


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


def with_languages(config: ml_collections.ConfigDict, task: Task) -> Task:
  """Returns a task whose other languages are `task.test_languages` alone.

  Its own files are then read in its own language alone. Raises ValueError for
  languages that cannot be scored.
  """
  names = config.task.test_languages
  if not names:
    return dataclasses.replace(task, languages={})
  given = f'task.test_languages={tuple(names)}'
  known = sorted(task.languages.keys() - {task.language})
  if not known:
    several = (name for name, each in registry.TASKS.items() if each.languages)
    raise ValueError(
      f'{given}: {task.name} has files in one language; tasks with several are'
      f' {", ".join(sorted(several))}'
    )
  if task.language in names:
    raise ValueError(
      f'{given}: {task.language} is the language that {task.name} trains on,'
      ' whose dev and test sets are scored anyway: leave it out'
    )
  unknown = [name for name in names if name not in known]
  if unknown or len(set(names)) < len(names):
    raise ValueError(
      f'{given}: found {", ".join(unknown) or "a language twice"}, expected'
      f' different ones among {", ".join(known)}'
    )
  hint = f' (the labels of {task.name}; task.test_languages reads this file)'
  own = task.languages.get(task.language, task)
  return dataclasses.replace(
    own,
    name=task.name,
    language=task.language,
    languages={
      name: dataclasses.replace(task.languages[name], label_hint=hint)
      for name in names
    },
  )


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
    return with_languages(config, registry.find(name))
  return kinds.own_task(source=config.data.source, **config.own)


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
  return tuple(with_languages(config, registry.find(name)) for name in names)


def task_names(config: ml_collections.ConfigDict) -> tuple[str, ...]:
  """Returns the names of tasks that are trained together, or none."""
  return tuple(config.task.names) if 'names' in config.task else ()


def reopen_task(
  config: ml_collections.ConfigDict, facts: Mapping[str, Json]
) -> Task:
  """Returns the task of a finished run, from its config and task.json."""
  if facts['task'] != 'own':
    task = registry.find(facts['task'])
    if not config.task.test_languages:
      return task
    # Its own files in its own language alone, as the run read them.
    own = with_languages(config, task)
    return dataclasses.replace(own, languages=task.languages)
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
  tokenizer: Tokenizer,
  **options: bool | str,
) -> Features:
  """Returns examples as rows; `framing.encode` describes the `options`."""
  cuts = {
    argument: config.task[key]
    for key, argument in READING.items()
    if key in config.task
  }
  bioul = tag_paths.tag_labels(task, config.task) != task.labels
  return kinds.encode(task, examples, tokenizer, **cuts, bioul=bioul, **options)


def open_split(
  config: ml_collections.ConfigDict,
  task: Task,
  name: str,
  tokenizer: Tokenizer,
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
  """Returns the splits besides 'train': 'dev', and all others with files.

  The splits of other languages come last, such as dev@de and test@de. Raises
  FileNotFoundError for a language without a split.
  """
  source = config.data.source
  must = task.files if not task.folders else ('dev',)
  found = [
    name
    for name in task.files
    if name != 'train'
    and (name in must or registry.has_split(task, source, name))
  ]
  for language, declared in task.languages.items():
    of_language = [
      f'{name}@{language}'
      for name in SCORED
      if registry.has_split(declared, source, name)
    ]
    if not of_language:
      raise FileNotFoundError(
        f'task.test_languages={tuple(task.languages)}: {language}:'
        f' {registry.missing(declared, source, SCORED)}'
      )
    found += of_language
  return found


def check_labelled(task: Task, splits: Mapping[str, Split]) -> None:
  """Raises ValueError if no file of another language has labels to score."""
  for language in task.languages:
    of_language = of_languages(splits, language)
    if not any(split.is_labelled for split in of_language):
      names = ', '.join(split.name for split in of_language)
      raise ValueError(
        f'task.test_languages={tuple(task.languages)}: {language}: {names} of'
        f' {task.languages[language].title} has no labels, expected some to'
        ' score'
      )


def of_languages(splits: Mapping[str, Split], language: str) -> list[Split]:
  """Returns the splits of another language, dev first."""
  names = (f'{name}@{language}' for name in SCORED)
  return [splits[name] for name in names if name in splits]
