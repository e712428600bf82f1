"""Parts of a fine-tuning, shared by its seeds: data, models, compiled steps."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import optax
from etils import epath
from flax import linen as nn
from jax.sharding import Mesh

from models.pretrained import strict
from train.engine import optim, sharding, state, steps
from train.engine.steps import Objective
from train.run.training_phases import Phase
from train.transfer import bodies, several, task_data
from train.transfer.program import TaskProgram
from train.transfer.task_data import Split

DEV = 'dev'


def plan(
  config: ml_collections.ConfigDict,
  mesh: Mesh,
  *,
  workdir: epath.Path | None = None,
  splits: tuple[str, ...] | None = None,
) -> TaskProgram:
  """Plans a run of one task, see `plan_all`."""
  (program,) = plan_all(config, mesh, workdir=workdir, splits=splits)
  return program


def plan_all(
  config: ml_collections.ConfigDict,
  mesh: Mesh,
  *,
  workdir: epath.Path | None = None,
  splits: tuple[str, ...] | None = None,
) -> tuple[TaskProgram, ...]:
  """Reads the data, opens the weights and builds the steps of a config.

  `workdir` is that of a run that continues; `splits` default to all that exist.
  Several tasks have a state in common, and each its own steps.
  """
  tasks = task_data.open_tasks(config)
  programs = bodies.program_of(config).open(config, tasks, workdir)
  read = programs[0].open_sets(
    programs,
    [
      splits or ('train', *task_data.eval_splits(config, task))
      for task in tasks
    ],
  )
  for program, splits_of in zip(programs, read, strict=True):
    program.splits = splits_of
    if splits is None:
      task_data.check_labelled(program.task, splits_of)
  build_steps(programs, mesh)
  return tuple(programs)


def build_steps(programs: Sequence[TaskProgram], mesh: Mesh) -> None:
  """Builds models and steps of a run's programs, whose splits are read."""
  first = programs[0]
  config = first.config
  for program in programs:
    program.prepare(mesh)
  total_steps, eval_every = count_steps(
    config, [program.splits['train'] for program in programs]
  )
  phase = Phase(
    total_steps, config.task.max_length, config.train.global_batch, 'continue'
  )
  schedule = make_schedule(config, phase)
  inputs = []
  for program in programs:
    example = program.splits['train'].batches.train_batch(
      0, slice(0, 1), config.train.global_batch, 0, total_steps
    )
    shapes = {
      name: jax.ShapeDtypeStruct(array.shape, array.dtype)
      for name, array in example.items()
    }
    inputs.append(_inputs(program, shapes))
  model = first.model
  if len(programs) == 1:
    (inputs,) = inputs
    first.objective = first
  else:
    model = several.SharedModels(tuple(each.model for each in programs))
    _name_sums(programs)
  objective = first.objective
  abstract = state.abstract_params(model, tuple(inputs))
  tx = optim.make_optimizer(
    config.optim,
    schedule,
    sharding.axis_names(abstract),
    first.vocab_size,
  )
  moving = first.trainable(nn.unbox(abstract))
  if not all(jax.tree.leaves(moving)):
    tx = optax.masked(tx, moving)
  init, shapes, shardings, placements = state.abstract_state(
    model,
    tuple(inputs),
    tx,
    objective.loss_names + objective.metric_names,
    mesh,
    config.mesh.rules,
    adjust=functools.partial(_clear, paths=first.replaced(nn.unbox(abstract))),
    encoder=first.layered,
  )
  create = jax.jit(init, out_shardings=shardings)
  for program in programs:
    program.total_steps, program.eval_every = total_steps, eval_every
    program.schedule, program.create = schedule, create
    program.shapes, program.shardings = shapes, shardings
    program.train_step = steps.make_train_step(
      program.model,
      program.objective,
      tx,
      schedule,
      seed=0,
      micro_batches=config.train.micro_batches,
      log_every=config.train.log_every,
      mesh=mesh,
      state_shardings=shardings,
      placements=placements,
    )


def _inputs(objective: Objective, shapes: Mapping[str, Any]) -> tuple:
  """Returns the shapes of a training step's inputs of the model."""
  keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
  return jax.eval_shape(
    lambda batch, keys: objective.inputs(objective.transform(batch, keys)),
    shapes,
    keys,
  )


def _name_sums(programs: Sequence[TaskProgram]) -> None:
  """Sets the objectives of several tasks, whose sums are of one state."""
  names = [
    (each.task.name, 'accuracy' in each.metric_names) for each in programs
  ]
  for each in programs:
    each.objective = several.OneOfSeveral(each, each.task.name, names)


def _clear(params: dict[str, Any], paths: set[str]) -> dict[str, Any]:
  """Returns parameters with zeros at `paths`, which are then never drawn."""
  cleared: dict[str, Any] = {}
  for path, leaf in strict.flatten(params).items():
    if path in paths:
      leaf = jnp.zeros_like(leaf)
    strict.put(cleared, path.split('/'), leaf)
  return cleared


def check_fits(config: ml_collections.ConfigDict) -> None:
  """Checks that a config fits its tasks and its weights; reads no array."""
  tasks = task_data.open_tasks(config)
  bodies.program_of(config).check_files(config, tasks)


# `train.count` -> (examples, batch, epochs) -> (steps of an epoch, of a run).
COUNTS = {
  # google-research/bert, run_classifier.py and run_squad.py
  'bert': lambda n, batch, epochs: (-(-n // batch), int(n / batch * epochs)),
  # finetune-transformer-lm, train.py
  'gpt': lambda n, batch, epochs: (
    max(1, n // batch),
    int(n // batch * epochs),
  ),
  'rows': lambda n, batch, epochs: (
    -(-n // batch),
    -(-int(n * epochs) // batch),
  ),
}


def count_steps(
  config: ml_collections.ConfigDict, training_sets: Sequence[Split]
) -> tuple[int, int]:
  """Returns (steps of a run, steps between scores of dev)."""
  train = config.train
  of_rows = train.count == 'rows'
  size = sum(
    len(split.features if of_rows else split.examples)
    for split in training_sets
  )
  epoch, total = COUNTS[train.count](size, train.global_batch, train.num_epochs)
  total = max(1, total) if train.steps is None else train.steps
  return total, train.eval_every or min(epoch, total)


def make_schedule(
  config: ml_collections.ConfigDict, phase: Phase
) -> Callable[[Any], jax.Array]:
  """Returns step -> learning rate, with a fraction of the steps as warm-up."""
  settings = dict(config.optim)
  warmup = settings.pop('warmup_fraction') * phase.steps
  if config.optim.schedule != 'gpt_linear':
    warmup = int(warmup)  # as released: google-research/bert, run_classifier.py
  return optim.make_schedule(
    ml_collections.ConfigDict(
      settings | {'warmup_steps': warmup, 'restarts': ()}
    ),
    [phase],
  )
