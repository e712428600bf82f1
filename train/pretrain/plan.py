"""Checks and prints a pre-training run before device time is spent."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import jax
import ml_collections
from etils import epath
from jax.sharding import Mesh

from data.examples import pairs
from data.examples.pipeline import Examples
from data.store import corpus
from train.architectures import families
from train.engine import memory, sharding
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
