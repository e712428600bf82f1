"""Pre-trains: python -m train.main --config NAME [--config.KEY=VALUE ...]."""

# ruff: noqa: E402
import time

BEGAN = time.time()  # before the imports that take seconds

from train import huge_pages

if __name__ == '__main__':
  huge_pages.restart_with()  # before those imports, too

import sys

from absl import app, flags, logging
from ml_collections import config_flags

from train import command, device, loop, processes, settings

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'A shipped config by name, or a path; NAME:ARG passes ARG.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Where all of the run goes; runs/<config>-<hash> if empty.'
)
_DRY_RUN = flags.DEFINE_bool(
  'dry_run', False, 'Check everything, print the plan and stop.'
)


_COORDINATOR = flags.DEFINE_string(
  'coordinator', None, 'HOST:PORT of process 0, where several are started.'
)
_NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, 'How many; Cloud TPU and Slurm need no such flags.'
)
_PROCESS_ID = flags.DEFINE_integer('process_id', None, 'Which of them, from 0.')
_START_SECONDS = flags.DEFINE_integer(
  'start_seconds', processes.START_SECONDS, 'How long they wait for each other.'
)
_HEARTBEAT_SECONDS = flags.DEFINE_integer(
  'heartbeat_seconds',
  processes.HEARTBEAT_SECONDS,
  'All are aborted so long after one was last heard of.',
)


def _main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'not understood: {" ".join(argv[1:])}')
  config = _CONFIG.value
  name = config_flags.get_config_filename(flags.FLAGS['config'])
  workdir = _WORKDIR.value or settings.default_workdir(name, config)
  logging.set_verbosity(logging.WARNING)  # orbax tells every file it writes
  device.enable_compilation_cache()
  command.run(
    lambda: processes.join(
      config.train.platform,
      _COORDINATOR.value,
      _NUM_PROCESSES.value,
      _PROCESS_ID.value,
      start_seconds=_START_SECONDS.value,
      heartbeat_seconds=_HEARTBEAT_SECONDS.value,
    )
  )
  command.run(
    lambda: loop.train(config, workdir, dry_run=_DRY_RUN.value, began=BEGAN)
  )


def main() -> None:
  """Entry point."""
  flags.mark_flag_as_required('config')
  # The config flag reads its overrides from sys.argv itself.
  sys.argv = command.run(lambda: settings.expand_arguments(sys.argv))
  app.run(_main)


if __name__ == '__main__':
  main()
