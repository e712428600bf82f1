"""Checks that a pre-training run can continue the steps of a workdir."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath

from data.store import corpus
from train.architectures import families
from train.engine import optim
from train.host import files
from train.pretrain import run_stores
from train.run import settings, training_phases, workdirs
from train.run.training_phases import Phase

# Keys of the rate of steps: of another value there is a way to train on.
RATE_KEYS = (
  'optim.learning_rate',
  'optim.schedule',
  'optim.warmup_steps',
  'optim.decay_share',
)


def check_continuation(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  stores: Mapping[str, corpus.Store],
  phases: Sequence[Phase],
  num_windows: Mapping[int, int],
  done: int,
) -> None:
  """Checks that a run can continue the workdir's `done` steps.

  Phases may change if batches and learning rates of these steps stay the same.
  `stores` are by `run_stores.open_stages`.
  """
  if not (epath.Path(workdir) / workdirs.STORE_FILE).exists():
    raise ValueError(
      f'{workdir} holds weights that were imported, and no run to continue:'
      f' pass another --workdir, and --config.init.weights={workdir}'
    )
  there = files.read_json(epath.Path(workdir) / workdirs.STORE_FILE)
  here = run_stores.describe(stores)
  if there['digest'] != here['digest']:
    raise ValueError(
      f'{workdir} holds {done} steps on the text of another token store:'
      f' {there} there, {here} here. Name that store by data.folder, or pass'
      f' another --workdir{_new_run(config, workdir)}'
    )
  has_memory = families.objective_of(config).has_memory
  old = workdirs.read_config(workdir)
  digests, own = there.get('stages', {}), here.get('stages', {})
  for phase in training_phases.cut_phases(phases, done):
    unit = phase.unit
    if unit in digests and unit in own and digests[unit] != own[unit]:
      raise ValueError(
        f'{workdir} holds {done} steps, some of them on another token store of'
        f' the unit {unit!r} of train.phases: found the digest {own[unit]},'
        f' expected {digests[unit]}. Put that store back, or pass another'
        f' --workdir{_new_run(config, workdir)}'
      )
  differing = settings.differing_keys(
    settings.flatten(old), settings.flatten(config)
  )
  if differing and differing.keys() <= set(settings.SCHEDULE_KEYS):
    total = sum(phase.steps for phase in phases)
    if total < done:
      raise ValueError(
        f'{workdir} holds {done} steps, and this config has only {total}:'
        ' expected as many, or more'
      )
    old_phases = training_phases.resolve_phases(old, num_windows)
    same_batches = run_stores.by_digest(
      old_phases, there, done
    ) == run_stores.by_digest(phases, here, done)
    if has_memory and config.train.reset_streams:
      same_batches = True
    rates = [
      jax.vmap(optim.make_schedule(optim_config, some))(jnp.arange(done))
      for optim_config, some in (
        (old.optim, old_phases),
        (config.optim, phases),
      )
    ]
    has_fall = training_phases.masks(config) and (
      config.objective.first_mask_rate is not None
    )
    same_masks = not has_fall or (
      training_phases.steps_before_restart(old_phases)
      == training_phases.steps_before_restart(phases)
    )
    if same_batches and same_masks and np.array_equal(*rates):
      for key in settings.SCHEDULE_KEYS:
        differing.pop(key, None)
  if differing:
    ways = ''
    if differing.keys() <= {*settings.SCHEDULE_KEYS, *RATE_KEYS}:
      old_phases = training_phases.resolve_phases(old, num_windows)
      ways = _ways_on(config, old, old_phases, phases, done)
    other_batch = {'train.phases', 'train.global_batch'} & differing.keys()
    hint = (
      '; or go on with empty memories, by --config.train.reset_streams=true'
      if has_memory and other_batch
      else ''
    )
    raise ValueError(
      f'{workdir} holds {done} steps of another config; what differs would'
      f' change the steps already done:{settings.describe_differing(differing)}'
      f'\nPass the same values, or another --workdir{hint}{ways}'
      f'{_new_run(config, workdir)}'
    )


def _ways_on(
  config: ml_collections.ConfigDict,
  before: ml_collections.ConfigDict,
  old: Sequence[Phase],
  new: Sequence[Phase],
  done: int,
) -> str:
  """Returns what to type to train on a workdir, whose config is `before`."""
  more = sum(phase.steps for phase in new) - done
  if done < sum(phase.steps for phase in old):
    return (
      '\nTo train on after its schedule, let this one end first, by the command'
      ' that began it'
    )
  if more <= 0:
    return ''
  last = new[-1]._replace(steps=more, schedule='restart')
  every = tuple(tuple(filter(None, phase)) for phase in (*old, last))
  peaks = [
    (config.optim.learning_rate, config.optim.warmup_steps)
    for phase in every[1:]
    if phase[3] == 'restart'
  ]
  restarts = (*config.optim.restarts, *peaks)[: len(peaks)]
  typed = {'train.phases': f'"{every}"', 'optim.restarts': f'"{restarts}"'}
  for key in ('steps', 'num_epochs', 'global_batch'):
    if config.train[key] is not None:  # it is of a single phase
      typed[f'train.{key}'] = 'None'
  old_rates = {**settings.BEFORE, **settings.flatten(before)}
  new_rates = settings.flatten(config)
  for key in RATE_KEYS:
    if old_rates[key] != new_rates[key]:
      typed[key] = f'{old_rates[key]}'
  return (
    '\nTo train on, append a phase that begins the schedule'
    f' {before.optim.schedule!r} anew. Type the same command with these values'
    ' of these keys:\n '
    + ''.join(f' --config.{key}={value}' for key, value in typed.items())
  )


def _new_run(config: ml_collections.ConfigDict, workdir: epath.PathLike) -> str:
  """Returns what to type to begin a new run with the weights of a workdir."""
  from train.params import warm_start  # with all that opens weights

  begun = settings.with_overrides(config, {'init.weights': str(workdir)})
  try:
    warm_start.open_beginning(begun)
  except (ValueError, OSError) as error:
    return f'\nNo new run of this config can begin with these weights: {error}'
  return (
    '\nTo begin a new run with these weights:\n'
    f'  --workdir=ANOTHER --config.init.weights={workdir}'
  )
