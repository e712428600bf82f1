"""A fine-tuning's plan, shared by its seeds: data, model, compiled steps."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
from etils import epath
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from data.tasks.examples import Task
from models import layers
from models.pretrained import strict
from train.engine import optim, sharding, state, steps
from train.engine.state import TrainState
from train.engine.steps import Objective
from train.host import device
from train.run.training_phases import Phase
from train.transfer import (
  bodies,
  encoders,
  kinds,
  several,
  task_data,
  task_losses,
)
from train.transfer.reader import Reader
from train.transfer.task_data import Split

DEV = 'dev'


@dataclasses.dataclass(frozen=True)
class Predictor:
  """Turns examples of a task into answers; parameters not included.

  Attributes:
    config: with the model's sizes.
    task: its declaration.
    reader: turns its examples into rows, and knows the model of these.
    objective: the losses to minimise.
    predict_step: the step of `make_predict_step`.
  """

  config: ml_collections.ConfigDict
  task: Task
  reader: Reader
  mesh: Mesh
  model: nn.Module
  objective: Objective
  predict_step: Callable[[Any, Any], dict[str, jax.Array]]


@dataclasses.dataclass(frozen=True)
class TaskJob(Predictor):
  """A fine-tuning, but for its seed and its workdir.

  Attributes:
    splits: name -> split; 'train', and the splits to score.
    eval_every: steps between scores of dev.
    schedule: step -> learning rate.
    shapes: the state as ShapeDtypeStructs.
    shardings: the state's shardings.
    create: rng -> state, jitted.
    train_step: the jitted (state, batch, seed[, rate]) -> (state, report).
  """

  splits: Mapping[str, Split]
  total_steps: int
  eval_every: int
  schedule: Callable[[Any], jax.Array]
  shapes: TrainState
  shardings: TrainState
  create: Callable[[jax.Array], TrainState]
  train_step: Callable[..., tuple[TrainState, dict]]

  @property
  def num_parameters(self) -> int:
    """The model's number of parameters, the vocabulary unpadded."""
    return layers.num_parameters(self.shapes.params, self.reader.vocab_size)

  def begin(self, seed: int) -> TrainState:
    """Returns the state at step 0, with the initial weights, the rest drawn."""
    rng = jax.random.fold_in(jax.random.key(seed), state.INIT_STREAM)
    begun = self.create(rng)
    params = self.reader.begin(self.task, begun.params, seed)
    return begun.begin_with(params)

  def step_flops(self, batch: Mapping[str, np.ndarray]) -> int:
    """Returns the FLOPs of a training step below the head."""
    return self.reader.step_flops(self.model, batch)


def plan(
  config: ml_collections.ConfigDict,
  mesh: Mesh,
  *,
  workdir: epath.Path | None = None,
  splits: tuple[str, ...] | None = None,
) -> TaskJob:
  """Plans a run of one task, see `plan_all`."""
  (job,) = plan_all(config, mesh, workdir=workdir, splits=splits)
  return job


def plan_all(
  config: ml_collections.ConfigDict,
  mesh: Mesh,
  *,
  workdir: epath.Path | None = None,
  splits: tuple[str, ...] | None = None,
) -> tuple[TaskJob, ...]:
  """Reads the data, opens the weights and builds the steps of a config.

  `workdir` is that of a run that continues; `splits` default to all that exist.
  Several tasks have a state in common, and each its own steps.
  """
  tasks = task_data.open_tasks(config)
  reader = open_reader(config, tasks, workdir)
  config = reader.config
  wanted = [
    (task, splits or ('train', *task_data.eval_splits(config, task)))
    for task in tasks
  ]
  reader, read = reader.open_sets(wanted)
  if splits is None:
    for task, splits_of in zip(tasks, read, strict=True):
      task_data.check_labelled(task, splits_of)
  return assemble(reader, tasks, read, mesh)


def assemble(
  reader: Reader,
  tasks: Sequence[Task],
  read: Sequence[Mapping[str, Split]],
  mesh: Mesh,
) -> tuple[TaskJob, ...]:
  """Builds the model and the steps of tasks, of splits that are read."""
  config = reader.config
  predictors = [plan_predictor(reader, task, mesh) for task in tasks]
  total_steps, eval_every = count_steps(
    config, [splits_of['train'] for splits_of in read]
  )
  phase = Phase(
    total_steps, config.task.max_length, config.train.global_batch, 'continue'
  )
  schedule = make_schedule(config, phase)
  inputs = []
  for predictor, splits_of in zip(predictors, read, strict=True):
    example = splits_of['train'].batches.train_batch(
      0, slice(0, 1), config.train.global_batch, 0, total_steps
    )
    shapes = {
      name: jax.ShapeDtypeStruct(array.shape, array.dtype)
      for name, array in example.items()
    }
    inputs.append(_inputs(predictor.objective, shapes))
  model = predictors[0].model
  if len(tasks) == 1:
    (inputs,) = inputs
  else:
    model = several.SharedModels(tuple(each.model for each in predictors))
    predictors = _with_named_sums(predictors)
  objective = predictors[0].objective
  abstract = state.abstract_params(model, tuple(inputs))
  tx = optim.make_optimizer(
    config.optim,
    schedule,
    sharding.axis_names(abstract),
    reader.vocab_size,
  )
  moving = reader.trainable(nn.unbox(abstract))
  if not all(jax.tree.leaves(moving)):
    tx = optax.masked(tx, moving)
  init, shapes, shardings, placements = state.abstract_state(
    model,
    tuple(inputs),
    tx,
    objective.loss_names + objective.metric_names,
    mesh,
    config.mesh.rules,
    adjust=functools.partial(
      _clear, paths=reader.replaced(tasks[0], nn.unbox(abstract))
    ),
    encoder=reader.layered,
  )
  create = jax.jit(init, out_shardings=shardings)
  return tuple(
    TaskJob(
      **vars(predictor),
      splits=splits_of,
      total_steps=total_steps,
      eval_every=eval_every,
      schedule=schedule,
      shapes=shapes,
      shardings=shardings,
      create=create,
      train_step=steps.make_train_step(
        predictor.model,
        predictor.objective,
        tx,
        schedule,
        seed=0,
        micro_batches=config.train.micro_batches,
        log_every=config.train.log_every,
        mesh=mesh,
        state_shardings=shardings,
        placements=placements,
      ),
    )
    for predictor, splits_of in zip(predictors, read, strict=True)
  )


def _inputs(objective: Objective, shapes: Mapping[str, Any]) -> tuple:
  """Returns the shapes of a training step's inputs of the model."""
  keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
  return jax.eval_shape(
    lambda batch, keys: objective.inputs(objective.transform(batch, keys)),
    shapes,
    keys,
  )


def _with_named_sums(predictors: Sequence[Predictor]) -> list[Predictor]:
  """Returns the predictors of several tasks with objectives of one state."""
  names = [
    (each.task.name, 'accuracy' in each.objective.metric_names)
    for each in predictors
  ]
  return [
    dataclasses.replace(
      each,
      objective=several.OneOfSeveral(each.objective, each.task.name, names),
    )
    for each in predictors
  ]


def _clear(params: dict[str, Any], paths: set[str]) -> dict[str, Any]:
  """Returns parameters with zeros at `paths`, which are then never drawn."""
  cleared: dict[str, Any] = {}
  for path, leaf in strict.flatten(params).items():
    if path in paths:
      leaf = jnp.zeros_like(leaf)
    strict.put(cleared, path.split('/'), leaf)
  return cleared


def plan_predictor(reader: Reader, task: Task, mesh: Mesh) -> Predictor:
  """Builds the model of a task, for a reader that has seen its splits."""
  objective = _build_objective(reader, task)
  model = reader.build_model(task)
  return Predictor(
    config=reader.config,
    task=task,
    reader=reader,
    mesh=mesh,
    model=model,
    objective=objective,
    predict_step=make_predict_step(
      model, objective, mesh, kinds.kind_of(task, reader.config.task)
    ),
  )


def open_reader(
  config: ml_collections.ConfigDict,
  tasks: Sequence[Task],
  workdir: epath.Path | None,
) -> Reader:
  """Opens the weights of a config.

  No array of an encoder is read, but all of a language model whose layers are
  inputs.

  `workdir` is the run that trained the model; None opens the initial weights.
  """
  if config.model.name in bodies.BODIES:
    from train.transfer import word_reader

    return word_reader.open_reader(config, tasks, workdir)
  (task,) = tasks
  return encoders.open_encoder(config, task, workdir)


def with_sizes_of(
  config: ml_collections.ConfigDict, workdir: epath.Path
) -> ml_collections.ConfigDict:
  """Returns a config with the sizes that a run's initial weights gave it."""
  if config.model.name in bodies.BODIES:
    return config  # which has them
  return encoders.with_sizes_of(config, workdir)


def _build_objective(reader: Reader, task: Task) -> Objective:
  return task_losses.TaskObjective(
    task,
    reader.config.task,
    reader.inputs,
    sums_words=reader.sums_words,
    vocabulary=reader.masks,
  )


def check_fits(config: ml_collections.ConfigDict) -> None:
  """Checks that a config fits its tasks and its weights; reads no array."""
  tasks = task_data.open_tasks(config)
  if config.model.name in bodies.BODIES:
    from train.transfer import word_reader

    word_reader.check_files(config, tasks)
  else:
    config = open_reader(config, tasks, None).config
  for task in tasks:
    task_losses.TaskObjective(task, config.task)


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


def make_predict_step(
  model: nn.Module, objective: Objective, mesh: Mesh, kind: kinds.Kind
) -> Callable[[Any, Any], dict[str, jax.Array]]:
  """Returns the jitted (params, batch) -> logits of all rows of the batch.

  Beside 'logits', what `kind.answers` returns, are 'example_ids',
  'example_mask' and 'lengths' [B], see `kinds.Kind`, all on every device, and
  'loss' [2], the sum of the task's loss and its weight.
  """

  def predict(params: Any, batch: Any) -> dict[str, jax.Array]:
    outputs = objective.apply(model, params, batch)
    losses, _ = objective.losses(outputs, batch)
    return {
      'logits': kind.answers(outputs),
      'example_ids': batch['example_ids'],
      'example_mask': batch['example_mask'],
      'lengths': kind.lengths(outputs, batch),
      'loss': jnp.stack(losses['task']),
    }

  everywhere = NamedSharding(mesh, PartitionSpec())
  return jax.jit(
    predict,
    out_shardings=everywhere,
    compiler_options=device.compiler_options(mesh),
  )
