"""The files that a view is written to: a page or a picture, and its numbers."""

import os

from etils import epath

from train.host import files

PAGE, PICTURE = ('.html', '.htm'), ('.png',)


def check_new(
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
  if json_file is not None and epath.Path(json_file) == epath.Path(out):
    raise ValueError(f'{out} is named twice, expected a file of its own each')
  files.check_new(out, overwrite=overwrite, endings=endings)
  if json_file is not None:
    files.check_new(json_file, overwrite=overwrite)


def beside(out: str | os.PathLike) -> str:
  """Returns the name of the JSON file beside a picture."""
  return str(epath.Path(out).with_suffix('.json'))
