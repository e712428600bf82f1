"""Trains a model: python -m train.main --config NAME [--config.KEY=VALUE ...].

A config with a section `task`, such as transfer:task=rte, fine-tunes a language
model on a task; any other config pre-trains one. --print_config prints the keys
of a config. If a run is stopped, the same command continues it.
"""

# ruff: noqa: E402
import time

BEGAN = time.time()  # before the imports that take seconds

from train.host import huge_pages

if __name__ == '__main__':
  huge_pages.restart_with()  # before those imports, too

from types import ModuleType

import ml_collections
from absl import flags
from etils import epath

from train.run import command

command.define_workdir()
_DRY_RUN = flags.DEFINE_bool(
  'dry_run', False, 'Check the run and print its plan, but train nothing.'
)
_COORDINATOR = flags.DEFINE_string(
  'coordinator',
  None,
  'HOST:PORT of process 0, for a run of several processes. Cloud TPU and Slurm'
  ' need neither this flag nor --num_processes and --process_id.',
)
_NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, 'The number of processes of the run.'
)
_PROCESS_ID = flags.DEFINE_integer(
  'process_id', None, 'The number of this process, from 0.'
)
_START_SECONDS = flags.DEFINE_integer(
  'start_seconds',
  1800,
  'How many seconds the processes wait for each other at the start.',
)
_HEARTBEAT_SECONDS = flags.DEFINE_integer(
  'heartbeat_seconds',
  100,
  'If nothing is heard from a process for so many seconds, all others end.',
)


def _train() -> None:
  config = command.CONFIG.value
  workdir = command.workdir()
  # Imported late, so that a wrong flag or key is reported at once.
  if 'task' in config:
    from train.transfer import finetune as kind
  else:
    from train.pretrain import job as kind
  kind.check_config(config, dry_run=_DRY_RUN.value)
  from train.host import device, processes
  from train.run import training

  device.enable_compilation_cache()
  processes.join(
    config.train.platform,
    _COORDINATOR.value,
    _NUM_PROCESSES.value,
    _PROCESS_ID.value,
    start_seconds=_START_SECONDS.value,
    heartbeat_seconds=_HEARTBEAT_SECONDS.value,
  )
  if _DRY_RUN.value and not device.has_platform(config.train.platform):
    _plan_elsewhere(kind, config, workdir)
    return
  job = kind.make(config, workdir)
  if job is not None:  # else the run is finished
    training.train(job, workdir, dry_run=_DRY_RUN.value, began=BEGAN)


def _plan_elsewhere(
  kind: ModuleType, config: ml_collections.ConfigDict, workdir: epath.Path
) -> None:
  """Prints the plan of a run whose platform is not here; compiles nothing.

  `kind` is `train.pretrain.job` or `train.transfer.finetune`.
  """
  from train.host import console
  from train.run import settings

  asked = config.train.platform
  here = {'train.platform': 'auto', 'mesh.data': -1}
  here |= {'mesh.fsdp': 1, 'mesh.tensor': 1}
  job = kind.make(settings.with_overrides(config, here), workdir)
  if job is None:
    return
  with console.saying_results():
    job.print_plan(workdir, True)
  chips = 'v5litepod-16' if asked == 'tpu' else 'h100-8'
  console.say(
    f'\ntrain.platform={asked!r} is not here: the settings, the text and the'
    ' weights are checked and nothing is compiled; devices, mesh and rows a'
    ' device are those of this machine. Whether it fits theirs, and what it'
    f' costs: python -m train.preflight --topology {chips} with the same'
    ' --config'
  )


def main() -> None:
  """Entry point."""
  command.run_with_config(_train, 'bert_tiny')


if __name__ == '__main__':
  main()
