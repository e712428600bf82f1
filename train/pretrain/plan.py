"""Checks and prints a pre-training run before device time is spent."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath
from jax.sharding import Mesh

from data.examples import pairs
from data.examples.pipeline import Examples
from data.store import corpus
from train.architectures import families
from train.engine import memory, optim, sharding
from train.host import console, device, files
from train.pretrain import run_stores
from train.pretrain.assemble import Parts
from train.run import settings, training_phases, workdirs
from train.run.job import Program
from train.run.training_phases import Phase

# Language -> `passes`, and for each kind of phases its shares.
LanguageShares = dict[str, dict[str, float | dict[str, float]]]

LANGUAGES_FILE = 'languages.json'


def check_batches(
  config: ml_collections.ConfigDict, phases: Sequence[Phase], mesh: Mesh
) -> None:
  """Checks that the batches of a config, and their parts, divide over a mesh.

  An update of a single row is the exception: all devices compute it.
  """
  sizes = {phase.global_batch for phase in phases}
  devices = sharding.batch_parts(mesh)
  settings.check_batches(
    config,
    {f'train.phases, global batch {size}': size for size in sizes},
    devices,
  )
  has_updates = 'objective' in config and 'updates' in config.objective
  updates = config.objective.updates if has_updates else 1
  for size in sizes:
    rows = size // updates
    if rows > 1 and rows % devices:
      raise ValueError(
        f'train.phases, global batch {size}: objective.updates={updates} makes'
        f' updates of {rows} rows, expected a multiple of {devices}, the'
        ' devices over which the mesh splits a batch, or 1'
      )


def check_data(
  examples: Mapping[tuple[int, str], Examples], phases: Sequence[Phase]
) -> None:
  """Checks that there is enough text of the right kind, else ValueError."""
  for phase in phases:
    windows = examples[phase.kind].num_windows
    if windows < phase.global_batch:
      raise ValueError(
        f'the training text makes {windows} windows of {phase.length} tokens,'
        f' fewer than the global batch of {phase.global_batch}: give more'
        ' text, or a smaller batch (--config.train.global_batch)'
      )
    examples[phase.kind].check_text(phase.global_batch)


def check_dialogues(
  config: ml_collections.ConfigDict, stores: Iterable[corpus.Store]
) -> None:
  """Checks that dialogues are trained as such, and nothing else is."""
  folders = {store.folder: any(pairs.is_dialogue(store)) for store in stores}
  if any(folders.values()) != (config.train.objective == 'dialogue'):
    found = [folder for folder, has in folders.items() if has]
    there = 'dialogues' if found else 'no dialogues'
    raise ValueError(
      f'train.objective={config.train.objective!r}: the text of'
      f' {(found or [*folders])[0]} has {there}. Objective and data.source'
      ' belong together: dialogue is trained on dialogue:PATH, or on a list of'
      ' sources with one of these'
    )


def language_shares(
  examples: Mapping[tuple[int, str], Examples], phases: Sequence[Phase]
) -> LanguageShares:
  """Returns the shares of several languages, and the passes over each.

  For each kind of phases, a language has its number of `windows`, their `share`
  of all windows and the share `sampled` of the examples; `passes` is how often
  training sees its text.
  """
  found: LanguageShares = {}
  for kind in sorted({phase.kind for phase in phases}):
    alike = [phase for phase in phases if phase.kind == kind]
    rows = examples[kind].describe_languages()
    rows_seen = sum(phase.steps * phase.global_batch for phase in alike)
    for name, (windows, sampled) in rows.items():
      row = found.setdefault(name, {'passes': 0.0})
      row['passes'] += rows_seen * sampled / windows
      row[f'length {alike[0].name}'] = {
        'windows': windows,
        'share': windows / examples[kind].num_windows,
        'sampled': sampled,
      }
  return found


# Keys of the rate of steps: of another value there is a way to train on.
RATE_KEYS = ('optim.learning_rate', 'optim.schedule', 'optim.warmup_steps')


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
      ' another --workdir'
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
        ' --workdir'
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
      ways = _ways_on(config, old, workdir, old_phases, phases, done)
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
    )


def _ways_on(
  config: ml_collections.ConfigDict,
  before: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  old: Sequence[Phase],
  new: Sequence[Phase],
  done: int,
) -> str:
  """Returns what to type to train on a workdir, whose config is `before`."""
  more = sum(phase.steps for phase in new) - done
  ways = ''
  if done < sum(phase.steps for phase in old):
    ways += (
      '\nTo train on after its schedule, let this one end first, by the command'
      ' that began it'
    )
  elif more > 0:
    last = new[-1]._replace(steps=more, schedule='restart')
    every = tuple(tuple(filter(None, phase)) for phase in (*old, last))
    peaks = [
      (config.optim.learning_rate, config.optim.warmup_steps)
      for phase in every[1:]
      if phase[3] == 'restart'
    ]
    restarts = (*config.optim.restarts, *peaks)[: len(peaks)]
    old_rates, new_rates = settings.flatten(before), settings.flatten(config)
    kept = ''.join(
      f' --config.{key}={old_rates[key]}'
      for key in RATE_KEYS
      if old_rates[key] != new_rates[key]
    )
    ways += (
      '\nTo train on, append a phase that begins the schedule'
      f' {before.optim.schedule!r} anew. Leave train.steps, train.num_epochs'
      ' and train.global_batch out, and add\n'
      f'  --config.train.phases="{every}"'
      f' --config.optim.restarts="{restarts}"{kept}'
    )
  return (
    f'{ways}\nTo begin a new run with these weights:\n'
    f'  --workdir=ANOTHER --config.init.weights={workdir}'
  )


def write_workdir(
  workdir: epath.Path,
  stores: Mapping[str, corpus.Store],
  shares: LanguageShares,
) -> None:
  """Writes the tokenizer, sources and digest of the token store, and shares.

  `stores` come from `run_stores.open_stages`, `shares` from `language_shares`;
  with one language there are none.
  """
  if shares:
    files.write_atomically(
      workdir / LANGUAGES_FILE, json.dumps(shares, indent=2) + '\n'
    )
  files.write_atomically(
    workdir / workdirs.STORE_FILE,
    json.dumps(run_stores.describe(stores), indent=2) + '\n',
  )
  stores[''].tokenizer.save(workdir)


def print_plan(
  parts: Parts,
  workdir: epath.PathLike,
  store: corpus.Store,
  examples: Mapping[tuple[int, str], Examples],
  in_detail: bool,
) -> None:
  """Prints the plan of a run; in detail, the shape of every parameter."""
  config, mesh = parts.config, parts.mesh
  shares = sharding.batch_parts(mesh)
  axes = ' x '.join(f'{axis} {size}' for axis, size in mesh.shape.items())
  rows = [
    ('workdir', workdir),
    ('devices', device.describe_devices(config.model.dtype)),
    ('mesh', axes),
    ('text', f'{store.meta["audit"]["source"]} (store {store.folder})'),
    (
      'tokens',
      f'{len(store.tokens):,}, of them {int(store.counts.sum()):,} to train on',
    ),
    (
      'vocabulary',
      f'{store.tokenizer.vocab_size:,} pieces ({store.tokenizer.description})',
    ),
    (
      'model',
      f'{config.model.name}, {parts.architecture.describe(config.model)},'
      f' {parts.num_parameters:,} parameters',
    ),
  ]
  for phase in parts.phases:
    epochs = phase.steps * phase.global_batch / examples[phase.kind].num_windows
    rows.append(
      (
        'phase',
        f'{phase.steps:,} steps of {phase.global_batch} x {phase.length}'
        f' tokens{_describe_unit(config, phase)}'
        f' ({phase.global_batch // shares} rows a device,'
        f' {config.train.micro_batches} micro-batches), {epochs:.3g} epochs,'
        f' {parts.step_flops(phase) / 1e9:,.4g} GFLOP a step',
      )
    )
  if families.is_packed(config):
    rows += [
      (f'rows of {length}', found.describe_rows())
      for (length, _), found in sorted(examples.items())
    ]
  console.table(rows, 'Plan')
  shares = language_shares(examples, parts.phases)
  # A store of a phase's own may have no such languages.
  length = f'length {parts.phases[-1].name}'
  shown = {name: row for name, row in shares.items() if length in row}
  if shown:
    console.table(
      [
        (
          name,
          '{windows:,} windows, {share:.2%} of the text, {sampled:.2%} of the'
          ' examples'.format(**row[length])
          + f', {row["passes"]:.3g} passes in all',
        )
        for name, row in shown.items()
      ],
      f'Languages at {length}, data.language_exponent='
      f'{config.data.language_exponent:g}',
    )
  if in_detail:
    leaves = jax.tree_util.tree_flatten_with_path(parts.shapes.params)[0]
    console.table(
      [
        (
          jax.tree_util.keystr(path, simple=True, separator='/'),
          f'{str(leaf.shape):24} {leaf.sharding.spec}',
        )
        for path, leaf in leaves
      ],
      'Parameters (as stored: vocabulary padded, layers stacked)',
    )


def _describe_unit(config: ml_collections.ConfigDict, phase: Phase) -> str:
  """Returns the unit of a phase's masks as text, if it is no piece."""
  if not training_phases.masks(config):
    return ''
  unit = phase.unit or config.objective.unit
  return '' if unit == 'piece' else f', unit {unit}'


def programs(parts: Parts, phases: Sequence[Phase]) -> Iterator[Program]:
  """Yields the training and evaluation steps of phases, to compile."""
  config = parts.config
  for length, rows, name in sorted(
    {(p.length, p.global_batch, p.name) for p in phases}
  ):
    shapes = parts.objective.batch_shapes(length, rows)
    yield Program(
      f'training step of {rows} x {name}',
      memory.SMALLER_STEP.format(2 * config.train.micro_batches),
      f'train {name}',
      (
        parts.shapes,
        memory.batch_shapes(shapes, parts.mesh),
        *parts.objective.beside(parts.mesh, shapes=True),
      ),
    )
  rows = config.eval.global_batch
  carry = parts.objective.carry_shapes(parts.model, rows)
  for length, name in sorted({(p.length, p.name) for p in phases}):
    shapes = parts.objective.batch_shapes(length, rows)
    yield Program(
      f'evaluation of {rows} x {name}',
      memory.SMALLER_EVALUATION,
      f'score {name}',
      (
        parts.shapes.params,
        memory.batch_shapes(shapes, parts.mesh),
        memory.batch_shapes(carry, parts.mesh),
      ),
    )
