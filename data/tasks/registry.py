"""All tasks by name, and where their examples are found."""

import difflib
from typing import Any

from etils import epath

from data.tasks import (
  conll,
  examples,
  files,
  glue,
  nli,
  race,
  squad,
  sst5,
  story_cloze,
  swag,
  tfds_records,
)

TASKS: dict[str, examples.Task] = {
  task.name: task
  for module in (glue, nli, sst5, race, story_cloze, swag, squad, conll)
  for task in module.TASKS
}


def find(name: str) -> examples.Task:
  """Returns the task of a name.

  Raises:
    ValueError: if there is none; names the nearest, and all.
  """
  if name in TASKS:
    return TASKS[name]
  near = difflib.get_close_matches(name.lower().replace('-', ''), TASKS, n=1)
  hint = f' Did you mean {near[0]!r}?' if near else ''
  raise ValueError(
    f'found no task {name!r}, expected one of {", ".join(sorted(TASKS))}.{hint}'
  )


def load(
  task: examples.Task, source: str, split: str, *, limit: int | None = None
) -> list[Any]:
  """Returns the examples of a split of a task.

  Args:
    task: whose they are.
    source: the folder of its files, a folder that holds that folder,
      'tfds', or 'tfds:FOLDER' with prepared data sets.
    split: 'train', 'dev', or another that the task has.
    limit: at most so many, evenly spaced.

  Raises:
    FileNotFoundError: if the folder holds no such file; names what is there.
    ValueError: if the task has no such split, or something in it is wrong, by
      file and line.
  """
  _check_split(task, split)
  if _is_tfds(source):
    found = tfds_records.load(task, split, _tfds_folder(source))
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


def read_file(
  task: examples.Task, file: epath.PathLike, split: str
) -> list[Any]:
  """Returns the examples of a file of a task, whatever its name is.

  Args:
    task: in whose format the file is.
    file: RACE's is a folder.
    split: as which it is read: 'test' need not have labels.

  Raises:
    ValueError: if it lies in another task's folder, or something in it is
      wrong, by file and line.
  """
  path = epath.Path(file)
  _check_folder(task, path)
  return task.read(path, split)


def split_of(task: examples.Task, file: epath.PathLike) -> str | None:
  """Returns the split whose official file has this name; None: no one split."""
  name = epath.Path(file).name
  found = [
    split
    for split, names in task.files.items()
    if name in [epath.Path(each).name for each in names]
  ]
  return found[0] if len(found) == 1 else None


def has_split(task: examples.Task, source: str, split: str) -> bool:
  """Whether a source has a split of a task; for TFDS, whether TFDS has it."""
  if _is_tfds(source):
    return split in task.tfds_splits
  return find_file(task, source, split) is not None


def find_file(
  task: examples.Task, source: str, split: str
) -> epath.Path | None:
  """Returns the file (RACE: folder) of a split, or None if it is not there.

  Args:
    task: whose it is.
    source: the task's folder, or one that holds it under one of the names
      `task.folders`.
    split: see `load`.
  """
  root = epath.Path(source).expanduser()
  for folder in (*(root / name for name in task.folders), root):
    for name in task.files.get(split, ()):
      # A user's own file may be remote, which no path can be joined to.
      file = epath.Path(name) if '://' in name else folder / name
      if file.exists():
        return file
  return None


def _is_tfds(source: str) -> bool:
  return source == 'tfds' or source.startswith('tfds:')


def _tfds_folder(source: str) -> str | None:
  return source.partition(':')[2] or None


def _check_split(task: examples.Task, split: str) -> None:
  known = {**task.files, **task.tfds_splits}
  if split not in known:
    raise ValueError(
      f'task {task.name}: found the split {split!r}, expected one of '
      f'{list(known)}'
    )


def _check_folder(task: examples.Task, file: epath.Path) -> None:
  """Refuses another task's folder: train.tsv is the name of many files."""
  # Of test.tsv alone the folder is the one that we are in.
  folder = (file if '://' in str(file) else file.resolve()).parent.name
  if folder in task.folders or not task.folders:
    return
  owners = [other for other in TASKS.values() if folder in other.folders]
  # XNLI trains on MNLI's file.
  if owners and not any(f'{folder}/' in name for name in _names(task)):
    raise ValueError(
      f'{file}: found the folder of the task {owners[0].name!r}, expected one '
      f'of {task.name!r}: {list(task.folders)}'
    )


def _names(task: examples.Task) -> list[str]:
  return [name for names in task.files.values() for name in names]


def _not_found(task: examples.Task, source: str, split: str) -> str:
  """What was looked for, and what is there instead."""
  root = epath.Path(source).expanduser()
  names = task.files.get(split, ())
  if names and not task.folders:
    return f'{names[0]}: found no such file, expected the split {split!r}'
  if not names:
    return (
      f'task {task.name}: the split {split!r} comes from TFDS alone '
      '(source tfds)'
    )
  shown = ' or '.join(names[:4])
  message = (
    f'task {task.name}: found no {shown} in {root}'
    + ''.join(f', {root / folder}' for folder in task.folders)
    + f'; expected the files of {task.title} ({task.url})'
  )
  message += f'. {files.contents(root)}'
  others = [
    other.name
    for other in TASKS.values()
    if other.name != task.name and find_file(other, source, 'dev')
  ]
  if others:
    message += f'. It has files of {", ".join(others)}'
  return message
