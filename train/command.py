"""How every command ends: one clear line for bad input, a trace for bugs."""

import logging
import pathlib
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

import configs
import data
import models
import train
from train import processes

PREEMPTED_EXIT = 75  # EX_TEMPFAIL of sysexits.h: try again
T = TypeVar('T')
_OURS = tuple(
  str(pathlib.Path(package.__file__).parent)
  for package in (configs, data, models, train)
)


def run(job: Callable[[], T]) -> T:
  """Runs a job and returns its result; bad input ends it in one line.

  What the operating system refuses, and what our code raises on purpose, is a
  message for the user; any other error that comes up from a library is a bug,
  and keeps its trace. A preempted job exits with PREEMPTED_EXIT, so that
  whoever started it knows to start it again. An error of one process ends all
  processes of the run.
  """
  try:
    return _in_one_line(job)
  except BaseException as error:
    if not (isinstance(error, SystemExit) and error.code == PREEMPTED_EXIT):
      processes.leave(error)
    raise


def _in_one_line(job: Callable[[], T]) -> T:
  try:
    return job()
  except KeyboardInterrupt:
    sys.exit('\ninterrupted; the same command continues after the last save')
  except processes.Preempted as error:
    print(error, file=sys.stderr)
    sys.exit(PREEMPTED_EXIT)
  except (ValueError, OSError, FloatingPointError) as error:
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    if not (isinstance(error, OSError) or raised_in.startswith(_OURS)):
      raise
    # Tasks that a library left behind tell of the same failure once more when
    # the interpreter collects them, which may be after our line.
    logging.getLogger('asyncio').setLevel(logging.CRITICAL)
    sys.exit(f'error: {error}')
