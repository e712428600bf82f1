"""How every command begins and ends.

Those of a config take --config and overrides of its keys; bad input ends in
one clear line, bugs in a trace.
"""

import functools
import pathlib
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

from absl import app, flags, logging
from ml_collections import config_flags

import configs
import data
import models
import train
from train.host import processes
from train.run import settings

PREEMPTED_EXIT = 75  # EX_TEMPFAIL of sysexits.h: try again
# Here, as flags can be defined only once, whatever commands are imported.
CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'A shipped config by name, or a path; NAME:ARG passes ARG.'
)
T = TypeVar('T')
_OURS = tuple(
  str(pathlib.Path(package.__file__).parent)
  for package in (configs, data, models, train)
)


@functools.cache
def define_workdir() -> flags.FlagHolder[str | None]:
  """Returns the flag --workdir, of the commands that have it."""
  return flags.DEFINE_string(
    'workdir', None, 'Where all goes; named by the config under runs, if empty.'
  )


def run_with_config(job: Callable[[], None], *required: str) -> NoReturn:
  """Reads the command line, runs a job and exits.

  Args:
    job: what to do; the flags have their values then.
    required: the names of the flags that must be given, beside --config.
  """

  def main(argv: list[str]) -> None:
    if len(argv) > 1:
      raise app.UsageError(f'not understood: {" ".join(argv[1:])}')
    logging.set_verbosity(logging.WARNING)  # orbax tells every file it writes
    run(job)

  flags.mark_flags_as_required(['config', *required])
  # The config flag reads its overrides from sys.argv itself.
  sys.argv = run(lambda: settings.expand_arguments(sys.argv))
  app.run(main)


def config_file() -> str:
  """Returns the path that --config named, with its argument."""
  return config_flags.get_config_filename(flags.FLAGS['config'])


def run(job: Callable[[], T]) -> T:
  """Runs a job and returns its result; bad input ends it in one line.

  What the operating system refuses, and what our code raises on purpose, is a
  message for the user; any other error that comes up from a library is a bug,
  and keeps its trace. A preempted job exits with PREEMPTED_EXIT, so that
  whoever started it knows to start it again. An error of one process ends all
  processes of the run.
  """
  try:
    return job()
  except processes.Preempted as error:
    print(error, file=sys.stderr)
    sys.exit(PREEMPTED_EXIT)
  except KeyboardInterrupt:
    processes.end_all(
      '\ninterrupted; the same command continues after the last save'
    )
  except (ValueError, OSError, FloatingPointError) as error:
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    if isinstance(error, OSError) or raised_in.startswith(_OURS):
      processes.end_all(f'error: {error}')
    processes.end_others(error)
    raise
  except BaseException as error:
    processes.end_others(error)
    raise
