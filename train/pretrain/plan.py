"""Checks and prints a pre-training run before device time is spent."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath
from jax.sharding import Mesh

from data import storage
from data.examples import dialogues
from data.examples.pipeline import Examples
from data.store import build, corpus, texts
from data.text import languages, tfds_text
from train.architectures import families
from train.engine import memory, optim, sharding
from train.host import console, files, processes
from train.pretrain.assemble import Parts
from train.run import settings, training_phases, workdirs
from train.run.job import Program
from train.run.training_phases import Phase

STORE_FILE = 'trained_on.json'
LANGUAGES_FILE = 'languages.json'


def check_source(config: ml_collections.ConfigDict) -> None:
  """Checks that there is a token store, or text to build it from."""
  if not _has_store(config):
    data = config.data
    texts.open_source(data.source, document_break=data.document_break)


def check_downloaded(config: ml_collections.ConfigDict) -> None:
  """Checks that nothing would be downloaded, for a dry run."""
  if _has_store(config):
    return
  source = config.data.source
  for part in languages.split(source).values() or [source]:
    name = part.removeprefix('tfds:')
    if name != part and not tfds_text.is_prepared(name):
      raise ValueError(
        f'data.source={source}: {part} is not downloaded, and a dry run does'
        ' not do it. Prepare the token store first: python -m data.prepare'
        f' --source {source}'
      )


def _has_store(config: ml_collections.ConfigDict) -> bool:
  folder = config.data.folder or workdirs.default_store(config)
  return epath.Path(folder, 'store.json').exists()


def open_store(config: ml_collections.ConfigDict) -> corpus.Store:
  """Opens a config's token store; builds a missing one from small text."""
  data = config.data
  folder = data.folder or workdirs.default_store(config)
  ready = epath.Path(folder, 'store.json')
  with processes.first_alone(f'waiting for process 0 to build {folder}'):
    if not (processes.is_first() or ready.exists()):
      raise ValueError(
        f'{ready}: this process does not see the token store of process 0:'
        ' name one by data.folder, on storage that all hosts share'
      )
    if data.folder is None or not ready.exists():
      return build.ensure_store(
        data.source,
        data.tokenizer,
        folder,
        document_break=data.document_break,
        held_out=data.held_out,
        # Runs older than the key have one language.
        language_exponent=data.get('language_exponent', languages.EXPONENT),
        cache=data.cache,
      )
    if not (storage.is_remote(data.folder) or data.cache):
      return corpus.open_store(data.folder)  # process 0 checks it for all
  # All hosts copy a store at the same time.
  return corpus.open_store(data.folder, cache=data.cache)


def check_batches(
  config: ml_collections.ConfigDict, phases: Sequence[Phase], mesh: Mesh
) -> None:
  """Checks that the batches of a config divide over a mesh."""
  sizes = {phase.global_batch for phase in phases}
  settings.check_batches(
    config,
    {f'train.phases, global batch {size}': size for size in sizes},
    sharding.batch_parts(mesh),
  )


def check_data(
  examples: Mapping[int, Examples], phases: Sequence[Phase]
) -> None:
  """Checks that there is enough text of the right kind, else ValueError."""
  for phase in phases:
    windows = examples[phase.length].num_windows
    if windows < phase.global_batch:
      raise ValueError(
        f'the training text makes {windows} windows of {phase.length} tokens,'
        f' fewer than the global batch of {phase.global_batch}: give more'
        ' text, or a smaller batch (--config.train.global_batch)'
      )
    examples[phase.length].check(phase.global_batch)


def check_dialogues(
  config: ml_collections.ConfigDict, store: corpus.Store
) -> None:
  """Checks that dialogues are trained as such, and nothing else is."""
  found = any(dialogues.is_dialogue(store))
  if found != (config.train.objective == 'dialogue'):
    there = 'dialogues' if found else 'no dialogues'
    raise ValueError(
      f'train.objective={config.train.objective!r}: the text of {store.folder}'
      f' has {there}. Objective and data.source belong together: dialogue is'
      ' trained on dialogue:PATH, or on a list of sources with one of these'
    )


def language_shares(
  examples: Mapping[int, Examples], phases: Sequence[Phase]
) -> dict[str, dict[str, Any]]:
  """Returns the shares of several languages, and the passes over each.

  Of each language: at each length its windows, their `share` of all and the
  share `sampled` of the examples; and how often training sees its text.
  """
  found: dict[str, dict[str, Any]] = {}
  for length in sorted({phase.length for phase in phases}):
    rows = examples[length].describe_languages()
    rows_seen = sum(
      p.steps * p.global_batch for p in phases if p.length == length
    )
    for name, (windows, sampled) in rows.items():
      row = found.setdefault(name, {'passes': 0.0})
      row['passes'] += rows_seen * sampled / windows
      row[f'length {length}'] = {
        'windows': windows,
        'share': windows / examples[length].num_windows,
        'sampled': sampled,
      }
  return found


def check_continuation(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  store: corpus.Store,
  phases: Sequence[Phase],
  num_windows: Mapping[int, int],
  done: int,
) -> None:
  """Checks that a run can continue the workdir's `done` steps.

  Phases may change if batches and learning rates of these steps stay the same.
  """
  if not (epath.Path(workdir) / STORE_FILE).exists():
    raise ValueError(
      f'{workdir} holds weights that were imported, and no run to continue:'
      f' pass another --workdir, and --config.init.weights={workdir}'
    )
  there = json.loads((epath.Path(workdir) / STORE_FILE).read_text())
  here = describe_store(store)
  if there['digest'] != here['digest']:
    raise ValueError(
      f'{workdir} holds {done} steps on the text of another token store:'
      f' {there} there, {here} here. Name that store by data.folder, or pass'
      ' another --workdir'
    )
  has_memory = families.architecture_of(config).has_memory
  old = workdirs.read_config(workdir)
  differing = settings.differing_keys(
    settings.flatten(old), settings.flatten(config)
  )
  if differing and differing.keys() <= set(settings.SCHEDULE_KEYS):
    old_phases = training_phases.resolve_phases(old, num_windows)
    same_batches = training_phases.cut_phases(
      old_phases, done
    ) == training_phases.cut_phases(phases, done)
    if has_memory and config.train.reset_streams:
      same_batches = True
    rates = [
      jax.vmap(optim.make_schedule(optim_config, some))(jnp.arange(done))
      for optim_config, some in (
        (old.optim, old_phases),
        (config.optim, phases),
      )
    ]
    if same_batches and np.array_equal(*rates):
      for key in settings.SCHEDULE_KEYS:
        differing.pop(key, None)
  if differing:
    other_batch = {'train.phases', 'train.global_batch'} & differing.keys()
    hint = (
      '; or go on with empty memories, by --config.train.reset_streams=true'
      if has_memory and other_batch
      else ''
    )
    raise ValueError(
      f'{workdir} holds {done} steps of another config; what differs would'
      f' change the steps already done:{settings.describe_differing(differing)}'
      f'\nPass the same values, or another --workdir{hint}'
    )


def describe_store(store: corpus.Store) -> dict[str, str]:
  """Returns the sources of a store, and the digest of its content."""
  return {**store.meta['spec'], 'digest': store.meta['digest']}


def write_workdir(
  workdir: epath.Path, store: corpus.Store, shares: Mapping[str, Any]
) -> None:
  """Writes the tokenizer, sources and digest of the token store, and shares.

  `shares` are those of several languages, see `language_shares`.
  """
  if shares:
    files.write_atomically(
      workdir / LANGUAGES_FILE, json.dumps(shares, indent=2) + '\n'
    )
  files.write_atomically(
    workdir / STORE_FILE, json.dumps(describe_store(store), indent=2) + '\n'
  )
  store.tokenizer.save(workdir)


def print_plan(
  parts: Parts,
  workdir: epath.PathLike,
  store: corpus.Store,
  examples: Mapping[int, Examples],
  in_detail: bool,
) -> None:
  """Prints the plan of a run; in detail, the shape of every parameter."""
  config, mesh = parts.config, parts.mesh
  shares = sharding.batch_parts(mesh)
  axes = ' x '.join(f'{axis} {size}' for axis, size in mesh.shape.items())
  rows = [
    ('workdir', workdir),
    ('devices', f'{jax.device_count()} x {jax.devices()[0].device_kind}'),
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
    epochs = (
      phase.steps * phase.global_batch / examples[phase.length].num_windows
    )
    rows.append(
      (
        'phase',
        f'{phase.steps:,} steps of {phase.global_batch} x {phase.length}'
        f' tokens ({phase.global_batch // shares} rows a device,'
        f' {config.train.micro_batches} micro-batches), {epochs:.3g} epochs,'
        f' {parts.step_flops(phase) / 1e9:,.4g} GFLOP a step',
      )
    )
  console.table(rows, 'Plan')
  shares = language_shares(examples, parts.phases)
  length = f'length {parts.phases[-1].length}'
  if shares:
    console.table(
      [
        (
          name,
          '{windows:,} windows, {share:.2%} of the text, {sampled:.2%} of the'
          ' examples'.format(**row[length])
          + f', {row["passes"]:.3g} passes in all',
        )
        for name, row in shares.items()
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


def programs(parts: Parts, phases: Sequence[Phase]) -> Iterator[Program]:
  """Yields the training and evaluation steps of phases, to compile."""
  config = parts.config
  for length, rows in sorted({(p.length, p.global_batch) for p in phases}):
    shapes = parts.architecture.batch_shapes(length, rows)
    yield Program(
      f'training step of {rows} x {length}',
      memory.SMALLER_STEP.format(2 * config.train.micro_batches),
      f'train {length}',
      (parts.shapes, memory.batch_shapes(shapes, parts.mesh)),
    )
  rows = config.eval.global_batch
  carry = parts.architecture.carry_shapes(parts.model, rows)
  for length in sorted({phase.length for phase in phases}):
    shapes = parts.architecture.batch_shapes(length, rows)
    yield Program(
      f'evaluation of {rows} x {length}',
      memory.SMALLER_EVALUATION,
      f'score {length}',
      (
        parts.shapes.params,
        memory.batch_shapes(shapes, parts.mesh),
        memory.batch_shapes(carry, parts.mesh),
      ),
    )


def residual_bytes(parts: Parts, phase: Phase) -> int:
  """Returns the bytes that the backward pass keeps of one micro-batch.

  Over all devices, without the parameters; nothing is computed.
  """
  objective = parts.objective_of[phase.length]
  rows = phase.global_batch // parts.config.train.micro_batches
  part = parts.architecture.batch_shapes(phase.length, rows)

  carry = parts.architecture.carry_shapes(parts.model, rows)

  def residuals(params: Any, part: Any, carry: Any) -> Any:
    keys = jax.random.split(jax.random.key(0), rows)
    batch = objective.transform(part, keys) | carry
    rngs = {'dropout': keys[0], 'samples': keys[0]}

    def loss_of(params: Any) -> Any:
      outputs = objective.apply(parts.model, params, batch, rngs)
      losses, _ = objective.losses(outputs, batch)
      return sum(total for total, _ in losses.values())

    return jax.vjp(loss_of, params)[1]

  params = parts.shapes.params
  kept = jax.tree.leaves(jax.eval_shape(residuals, params, part, carry))
  of_params = sum(leaf.size * 4 for leaf in jax.tree.leaves(params))
  total = sum(
    leaf.size * jnp.dtype(leaf.dtype).itemsize
    for leaf in kept
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
  )
  return max(total - of_params, 0)
