r"""Fine-tunes with several seeds and settings: python -m train.sweep ...

Takes the config of a fine-tuning, a number of seeds and a grid of settings.
Each combination is a run, in a folder of its own below --workdir. Runs that
differ only in their seed share compiled programs. Finished runs are kept: the
same command continues a stopped sweep. The summary names the best settings.

  python -m train.sweep --config transfer:task=rte --seeds 5 \
    --grid 'optim.learning_rate=5e-5,3e-5,2e-5;train.global_batch=16,32' \
    --config.init.weights=W --config.data.source=glue --workdir runs/rte
"""

# ruff: noqa: E402
from train.host import huge_pages

if __name__ == '__main__':
  huge_pages.restart_with()

from absl import flags

from train.run import command

command.define_workdir()
_SEEDS = flags.DEFINE_integer(
  'seeds', 1, 'The number of seeds; the first is the train.seed of the config.'
)
_GRID = flags.DEFINE_string(
  'grid',
  '',
  'The settings to try, in all combinations: KEY=VALUE,VALUE;KEY=...; or'
  " 'paper' for the rates, batch sizes and epochs that the paper of BERT"
  ' tried.',
)
_KEEP_ALL = flags.DEFINE_bool(
  'keep_all', False, 'Keep the model of each run, not only of the best run.'
)


def _sweep() -> None:
  config = command.CONFIG.value
  if 'task' not in config:
    raise ValueError('--config: expected that of a task, such as transfer')
  if _SEEDS.value < 1:
    raise ValueError(f'--seeds={_SEEDS.value}: expected 1 or more')
  workdir = command.workdir('-sweep')
  from train.host import device, processes
  from train.transfer import sweep

  grid = sweep.parse_grid(_GRID.value)
  device.enable_compilation_cache()
  processes.join(config.train.platform)
  first = config.train.seed
  summary = sweep.run(
    config,
    workdir,
    seeds=range(first, first + _SEEDS.value),
    grid=grid,
    keep_all=_KEEP_ALL.value,
  )
  sweep.print_summary(summary, workdir)


def main() -> None:
  """Entry point."""
  command.run_with_config(_sweep, 'transfer:task=rte --seeds 5')


if __name__ == '__main__':
  main()
