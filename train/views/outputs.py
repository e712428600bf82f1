"""The files that a view is written to: a page or a picture, and its numbers."""

import os
import pathlib

from etils import epath

from train.host import files

PAGE, PICTURE = ('.html', '.htm'), ('.png',)


def check(
  out: str | os.PathLike,
  json_file: str | os.PathLike | None,
  *,
  endings: tuple[str, ...],
  overwrite: bool,
) -> None:
  """Checks that both files can be written: new, or with `overwrite`.

  The name of `out` has one of the `endings`. Raises ValueError or an OSError
  that names the file.
  """
  if pathlib.Path(out).suffix.lower() not in endings:
    raise ValueError(
      f'{out}: expected a name that ends in {" or ".join(endings)}'
    )
  if json_file is not None and epath.Path(json_file) == epath.Path(out):
    raise ValueError(f'{out} is named twice, expected a file of its own each')
  for path in (out, json_file):
    if path is None:
      continue
    files.check_writable(path)
    if epath.Path(path).is_dir():
      raise FileExistsError(f'{path} is a folder, expected a file to write')
    if epath.Path(path).exists() and not overwrite:
      raise FileExistsError(
        f'{path} is already there; --overwrite replaces it at the end'
      )


def beside(out: str | os.PathLike) -> str:
  """Returns the name of the JSON file beside a picture."""
  return str(epath.Path(out).with_suffix('.json'))
