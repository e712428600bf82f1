"""How every command ends: one clear line for bad input, a trace for bugs."""

import pathlib
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

import configs
import data
import models
import train

T = TypeVar('T')
_OURS = tuple(
  str(pathlib.Path(package.__file__).parent)
  for package in (configs, data, models, train)
)


def run(job: Callable[[], T]) -> T:
  """Runs a job and returns its result; bad input ends it in one line.

  What the operating system refuses, and what our code raises on purpose, is a
  message for the user; any other error that comes up from a library is a bug,
  and keeps its trace.
  """
  try:
    return job()
  except KeyboardInterrupt:
    sys.exit('\ninterrupted; the same command continues after the last save')
  except (ValueError, OSError, FloatingPointError) as error:
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    if not (isinstance(error, OSError) or raised_in.startswith(_OURS)):
      raise
    sys.exit(f'error: {error}')
