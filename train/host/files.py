"""Files that a kill leaves whole: JSON, CSV, anything written atomically."""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence

from etils import epath

from data import scratch, storage
from data.text import text_files

# A value that JSON can hold; a `Mapping[str, Json]` is an object of JSON.
Json = bool | int | float | str | Sequence['Json'] | Mapping[str, 'Json'] | None


class RowFile:
  """A local CSV file that grows by whole rows, each on disk when appended."""

  def __init__(
    self, path: epath.PathLike, header: Sequence[str], rows: Iterable[Sequence]
  ):
    """Replaces the file atomically by `header` and `rows`."""
    self._path = epath.Path(path)
    self._text = io.StringIO()
    self._text.write(as_csv([header, *rows]))
    write_atomically(self._path, self._text.getvalue())

  def append(self, rows: Iterable[Sequence], *, whole: bool = False) -> None:
    """Adds rows; with `whole` a kill leaves all of them or none."""
    text = as_csv(rows)
    self._text.write(text)
    if whole:
      write_atomically(self._path, self._text.getvalue())
    else:
      with scratch.named(self._path), self._path.open('a') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # a checkpoint that is kept has its rows


def read_rows(path: epath.PathLike) -> list[list[str]]:
  """Returns a CSV file's whole rows without its header; [] if it is missing."""
  path = epath.Path(path)
  if not path.exists():
    return []
  text = path.read_text()
  return list(csv.reader(text[: text.rfind('\n') + 1].splitlines()))[1:]


def check_writable(path: epath.PathLike | None) -> None:
  """Raises a FileNotFoundError if the folder of a file to write is missing."""
  if path is None:
    return
  storage.check_buckets((), [path])
  if not (storage.is_remote(path) or epath.Path(path).parent.is_dir()):
    raise FileNotFoundError(
      f'{path}: no such folder to write to: {epath.Path(path).parent}'
    )


def check_new(
  path: epath.PathLike, *, overwrite: bool, endings: Sequence[str] = ()
) -> None:
  """Checks that a file can be written: a new one, or any with `overwrite`.

  With `endings`, its name has one of them. Raises a ValueError for another
  name, an OSError where the folder is missing or something is there.
  """
  check_writable(path)
  if epath.Path(path).is_dir():
    raise FileExistsError(f'{path} is a folder, expected a file to write')
  if endings and epath.Path(path).suffix.lower() not in endings:
    *others, last = endings
    listed = f'{", ".join(others)} or {last}' if others else last
    raise ValueError(f'{path}: expected a name that ends in {listed}')
  if epath.Path(path).exists() and not overwrite:
    raise FileExistsError(
      f'{path} is already there; --overwrite replaces it at the end'
    )


def check_readable(path: epath.PathLike) -> None:
  """Raises an OSError if a file to read is missing, or a folder."""
  text_files.check_file(epath.Path(path).expanduser())


def check_folder(option: str, path: epath.PathLike) -> None:
  """Raises a ValueError if a folder to make is a file, or lies in one."""
  storage.check_buckets((), [path])
  if storage.is_remote(path):
    files = [path] if storage.is_object(path) else []
  else:
    path = epath.Path(path).expanduser()
    files = [part for part in (path, *path.parents) if part.is_file()]
  if files:
    raise ValueError(
      f'{option} {path}: {files[0]} is a file, expected a folder'
    )


def check_workdir(path: epath.PathLike) -> None:
  """Raises a ValueError if a folder is not the workdir of a run."""
  if not (epath.Path(path) / 'config.json').exists():
    raise ValueError(
      f'{path} holds no config.json: expected the workdir of a run, as'
      ' train.main --workdir makes it'
    )


def as_json(figures: Json) -> str:
  """Returns indented JSON; infinities and NaN become null."""

  def finite(value: Json) -> Json:
    if isinstance(value, dict):
      return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list):
      return [finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
      return None
    return value

  return json.dumps(finite(figures), indent=2, ensure_ascii=False)


def read_json(path: epath.PathLike) -> dict[str, Json]:
  """Returns the object in a JSON file that this program wrote.

  Raises FileNotFoundError if it is missing, ValueError if it is damaged.
  """
  path = epath.Path(path)
  if not path.exists():
    raise FileNotFoundError(
      f'{path} is missing: its folder is half copied or damaged'
    )
  try:
    found = text_files.read_json(path)
  except ValueError as error:
    raise ValueError(f'{path} is damaged: not JSON ({error})') from None
  if not isinstance(found, dict):
    raise ValueError(
      f'{path} is damaged: found {type(found).__name__}, expected an object'
    )
  return found


def write_atomically(path: epath.PathLike, text: str) -> None:
  """Writes a text file; a kill leaves the old file or the whole new one."""
  scratch.write_bytes(path, text.encode())


def as_csv(rows: Iterable[Sequence]) -> str:
  """Returns rows as the text of a CSV file."""
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows(rows)
  return text.getvalue()
