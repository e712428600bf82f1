"""Records of TFDS (TensorFlow Datasets), which is imported on use."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from data.tasks import examples
from data.text import tfds_text


def load(
  task: examples.Task, split: str, folder: str | None = None
) -> list[examples.Example]:
  """Returns a split's examples in TFDS's order; `folder` None is TFDS's own."""
  return gather(task, split, _records(task, split, folder))


def is_prepared(
  task: examples.Task, split: str, folder: str | None = None
) -> bool:
  """Returns whether `load` needs no download."""
  names, _ = _data_sets(task, split)
  return all(tfds_text.is_prepared(name, folder) for name in names)


def _data_sets(task: examples.Task, split: str) -> tuple[list[str], str]:
  """Returns the data sets of a split, which may be NAME:SPLIT, and its name."""
  splits = task.tfds.splits if task.tfds else {}
  if split not in splits:
    raise ValueError(
      f'task {task.name}: TFDS has no split {split!r}, expected one of '
      f'{list(splits)}; give the folder of its files ({task.url})'
    )
  names, _, part = splits[split].rpartition(':')
  return (names or task.tfds.names).split(','), part


def gather(
  task: examples.Task, split: str, records: Iterator[tuple[str, Any]]
) -> list[examples.Example]:
  """Returns the checked examples of (data set, record) of a task's split."""
  names = task.tfds.names if task.tfds else ''
  source = f'TFDS {names}, split {split}'
  return task.gather(_examples(task, split, records), split, source)


def _examples(
  task: examples.Task, split: str, records: Iterator[tuple[str, Any]]
) -> examples.Found:
  for number, (name, record) in enumerate(records):
    where = f'TFDS {name}, record {number:,}'
    found = task.tfds.read(plain(where, record), split, number)
    for example in found if isinstance(found, list) else [found]:
      yield where, example


def _records(
  task: examples.Task, split: str, folder: str | None
) -> Iterator[tuple[str, Any]]:
  """Yields (data set, record)."""
  names, part = _data_sets(task, split)
  for name in names:
    builder = tfds_text.open_builder(name, name, folder)
    import tensorflow_datasets as tfds  # the builder's: it is installed

    dataset = builder.as_dataset(split=part, shuffle_files=False)
    for record in tfds.as_numpy(dataset):
      yield f'{name}, split {part}', record


def plain(where: str, value: Any) -> Any:
  """Returns a value of TFDS as str (of UTF-8), int, float, list or dict."""
  if isinstance(value, dict):
    return {key: plain(where, item) for key, item in value.items()}
  if isinstance(value, bytes):
    try:
      return value.decode()
    except UnicodeDecodeError as error:
      raise ValueError(
        f'{where}: found bytes that are not UTF-8 at byte {error.start:,}'
      ) from None
  if hasattr(value, 'to_list'):  # ragged: lists in lists
    value = value.to_list()
  if isinstance(value, np.ndarray | np.generic):
    value = value.tolist()
    return plain(where, value) if isinstance(value, bytes | list) else value
  if isinstance(value, list):
    return [plain(where, item) for item in value]
  return value
