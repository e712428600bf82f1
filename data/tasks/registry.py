"""All tasks by name, and the files of their examples.

data/README.md says how to add one: every command then knows the task, with the
settings that all tasks of its kind have, and those of its own `recipe`.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from data import storage
from data.by_name import ByName
from data.tasks import examples, files, tfds_records

# Module below data.tasks -> the names of its TASKS.
MODULES = {
  'glue': (
    'cola',
    'sst2',
    'mrpc',
    'stsb',
    'qqp',
    'mnli',
    'qnli',
    'rte',
    'wnli',
  ),
  'nli': ('snli', 'scitail', 'xnli', 'xnli_zh'),
  'sst5': ('sst5', 'sst5_phrases'),
  'topics': ('ag_news', 'thucnews'),
  'race': ('race',),
  'story_cloze': ('story_cloze',),
  'swag': ('swag',),
  'squad': ('squad1', 'squad2', 'triviaqa'),
  'annotated.conll': ('conll2003', 'panx_en', 'panx_zh'),
  'annotated.slots': ('atis', 'atis_intent', 'snips', 'snips_intent'),
  'annotated.coreference': ('coref', 'coref_gum'),
  'annotated.roles': ('srl_ewt', 'srl', 'srl_conll05'),
  'annotated.universal': ('ud_pos',),
  'chinese': ('chnsenticorp', 'lcqmc', 'msra_ner'),
}


def _pick(module: Any, name: str) -> examples.Task:
  return next(task for task in module.TASKS if task.name == name)


# Name -> task; a task's module is imported when the task is looked up.
TASKS = ByName(
  {
    name: f'data.tasks.{module}'
    for module, names in MODULES.items()
    for name in names
  },
  _pick,
)


def find(name: str) -> examples.Task:
  """Returns the task of a name; if unknown, a ValueError names the nearest."""
  if name in TASKS:
    return TASKS[name]
  near = difflib.get_close_matches(name.lower().replace('-', ''), TASKS, n=1)
  hint = f' Did you mean {near[0]!r}?' if near else ''
  raise ValueError(
    f'found no task {name!r}, expected one of {", ".join(sorted(TASKS))}.{hint}'
  )


def in_language(task: examples.Task, split: str) -> tuple[examples.Task, str]:
  """Returns the declaration of a split, and the split's name in it.

  A split is one of the task, such as dev, or of another of its languages, such
  as dev@de. Raises ValueError for a language that the task has not.
  """
  name, _, language = split.partition('@')
  if not language:
    return task, split
  if language not in task.languages:
    raise ValueError(
      f'task {task.name}: found the language {language!r} in {split!r},'
      f' expected one of {sorted(task.languages)}'
    )
  return task.languages[language], name


def load(
  task: examples.Task, source: str, split: str, *, limit: int | None = None
) -> list[Any]:
  """Returns the examples of a split of a task, or `limit` evenly spaced ones.

  `source` is a folder of the task's files, or its parent; or 'tfds', or
  'tfds:FOLDER' with prepared data sets. Raises FileNotFoundError if it lacks
  the file; ValueError if the task lacks the split, or an example is wrong.
  """
  task, split = in_language(task, split)
  known = {**task.files, **_tfds_splits(task)}
  if split not in known:
    raise ValueError(
      f'task {task.name}: found the split {split!r}, expected one of '
      f'{list(known)}'
    )
  if _is_tfds(source):
    folder = source.partition(':')[2] or None
    found = tfds_records.load(task, split, folder)
    place = source
  else:
    file = find_file(task, source, split)
    if file is None:
      raise FileNotFoundError(_not_found(task, source, split))
    found = read_file(task, file, split)
    place = str(file)
  official = task.sizes.get(split, len(found))
  if len(found) != official:
    files.note(
      f'{place}: holds {len(found):,} examples, {task.title} has {official:,} '
      f'in the split {split!r}'
    )
  return examples.evenly(found, limit)


def needs_download(task: examples.Task, source: str, split: str) -> bool:
  """Returns whether `load` would download a split from TFDS."""
  task, split = in_language(task, split)
  folder = source.partition(':')[2] or None
  return _is_tfds(source) and not tfds_records.is_prepared(task, split, folder)


def read_file(
  task: examples.Task, file: epath.PathLike, split: str
) -> list[Any]:
  """Returns the examples of a file of any name in the task's format.

  Raises ValueError if it lies in another task's folder, or an example is wrong.
  """
  path = epath.Path(file)
  task, split = in_language(task, split)
  _check_folder(task, path)
  return task.read(path, split)


def split_of(task: examples.Task, file: epath.PathLike) -> str | None:
  """Returns the split whose official file has this name; None if ambiguous."""
  name = epath.Path(file).name
  for ending, each in (
    ('', task),
    *((f'@{language}', of) for language, of in task.languages.items()),
  ):
    found = [
      split + ending
      for split, names in each.files.items()
      if name in [epath.Path(path).name for path in names]
    ]
    if found:
      return found[0] if len(found) == 1 else None
  return None


def has_split(task: examples.Task, source: str, split: str) -> bool:
  """Returns whether a folder, or TFDS, has a split of a task."""
  task, split = in_language(task, split)
  if _is_tfds(source):
    return split in _tfds_splits(task)
  return find_file(task, source, split) is not None


def find_file(
  task: examples.Task, source: str, split: str
) -> epath.Path | None:
  """Returns the file (RACE: folder) of a split, or None if it is missing."""
  return files.find(source, task.folders, task.files.get(split, ()))


def missing(task: examples.Task, source: str, splits: Sequence[str]) -> str:
  """Returns a message about splits of which a source has no file."""
  if _is_tfds(source):
    if task.tfds is None:
      return (
        f'{source} does not have {task.title}, expected a folder of its files'
        f' ({task.url})'
      )
    return (
      f'{source} has no {" or ".join(splits)} of {task.title}, expected one of'
      f' {list(task.tfds.splits)}'
    )
  if files.is_named(source):
    return (
      f'{source}: found a data set of Hugging Face, expected a folder of the'
      f' files of {task.title} ({task.url}); data sets are of task=own'
    )
  root = epath.Path(source).expanduser()
  names = [name for split in splits for name in task.files.get(split, ())[:4]]
  folders = (root, *(root / name for name in task.folders))
  return (
    f'found no {" or ".join(names)} in {", ".join(map(str, folders))}; expected'
    f' the files of {task.title} ({task.url}). {files.contents(root)}'
  )


def _tfds_splits(task: examples.Task) -> Mapping[str, str]:
  return task.tfds.splits if task.tfds else {}


def _is_tfds(source: str) -> bool:
  return source == 'tfds' or source.startswith('tfds:')


def _check_folder(task: examples.Task, file: epath.Path) -> None:
  """Refuses another task's folder: many tasks have a file train.tsv."""
  # The bare name test.tsv lies in the current folder.
  folder = (file if storage.is_remote(file) else file.resolve()).parent.name
  if folder in task.folders or not task.folders:
    return
  owners = [other for other in TASKS.values() if folder in other.folders]
  names = [name for names in task.files.values() for name in names]
  # XNLI trains on MNLI's file.
  if owners and not any(f'{folder}/' in name for name in names):
    raise ValueError(
      f'{file}: found the folder of the task {owners[0].name!r}, expected one '
      f'of {task.name!r}: {list(task.folders)}'
    )


def _not_found(task: examples.Task, source: str, split: str) -> str:
  """Returns a message with the missing files and the source's contents."""
  names = task.files.get(split, ())
  if names and not task.folders:
    return f'{names[0]}: found no such file, expected the split {split!r}'
  if not names:
    return (
      f'task {task.name}: the split {split!r} comes from TFDS alone '
      '(source tfds)'
    )
  message = f'task {task.name}: {missing(task, source, (split,))}'
  others = [
    other.name
    for other in TASKS.values()
    if other.name != task.name and find_file(other, source, 'dev')
  ]
  if others:
    message += f'. It has files of {", ".join(others)}'
  return message
