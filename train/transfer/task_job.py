"""A fine-tuning's plan, shared by its seeds: data, model, compiled steps."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
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
from models import layers, task_model
from models.pretrained import strict
from models.pretrained.weights import Weights
from train.architectures import families
from train.engine import optim, sharding, state, steps
from train.engine.state import TrainState
from train.engine.steps import Objective
from train.host import device
from train.params import opened, warm_start
from train.run.training_phases import Phase
from train.transfer import encoders, task_data, task_losses
from train.transfer.encoders import Encoder
from train.transfer.task_data import Split

DEV = 'dev'


@dataclasses.dataclass(frozen=True)
class Predictor:
  """Turns examples of a task into answers; parameters not included.

  Attributes:
    config: with the model's sizes.
    task: its declaration.
    encoder: the language model below the head.
    objective: the losses to minimise.
    predict_step: the step of `make_predict_step`.
  """

  config: ml_collections.ConfigDict
  task: Task
  encoder: Encoder
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
    return layers.num_parameters(
      self.shapes.params, self.encoder.module.vocab_size
    )

  def begin(self, seed: int) -> TrainState:
    """Returns the state at step 0, with the initial weights, the rest drawn."""
    rng = jax.random.fold_in(jax.random.key(seed), state.INIT_STREAM)
    begun = self.create(rng)
    weights = self.encoder.weights
    if weights is None:
      return begun
    params = warm_start.load(
      inherited(weights, begun.params, self.task),
      self.encoder.module,
      self.encoder.tokenizer,
      begun.params,
      num_layers=self.config.init.num_layers,
    )
    return begun.replace(params=params)

  def step_flops(self, batch: Mapping[str, np.ndarray]) -> int:
    """Returns the encoder's FLOPs in a step: 3 forward passes, 1 if frozen."""
    *rows, length = batch['tokens'].shape
    family = families.architecture_of(self.encoder.config)
    forward = family.encoder_flops(self.encoder.module, math.prod(rows), length)
    return forward if self.config.task.frozen else 3 * forward


def plan(
  config: ml_collections.ConfigDict,
  mesh: Mesh,
  *,
  workdir: epath.Path | None = None,
  splits: tuple[str, ...] | None = None,
) -> TaskJob:
  """Reads the data, opens the weights and builds the steps of a config.

  `workdir` is that of a run that continues; `splits` default to all that exist.
  """
  task = task_data.open_task(config)
  predictor = plan_predictor(config, task, mesh, workdir)
  config, encoder = predictor.config, predictor.encoder
  model, objective = predictor.model, predictor.objective
  if splits is None:
    splits = ('train', *task_data.eval_splits(config, task))
  read = {
    name: task_data.open_split(
      config, task, name, encoder.tokenizer, at_last=encoder.labels_last_piece
    )
    for name in splits
  }
  total_steps, eval_every = count_steps(config, read['train'])
  phase = Phase(
    total_steps, config.task.max_length, config.train.global_batch, 'continue'
  )
  schedule = make_schedule(config, phase)
  example = read['train'].batches.train_batch(
    0, slice(0, 1), config.train.global_batch, 0, total_steps
  )
  inputs = objective.inputs(
    {
      name: jax.ShapeDtypeStruct(array.shape, array.dtype)
      for name, array in example.items()
    }
  )
  abstract = state.abstract_params(model, inputs)
  tx = optim.make_optimizer(
    config.optim,
    schedule,
    sharding.axis_names(abstract),
    encoder.module.vocab_size,
  )
  if config.task.frozen:
    tx = optax.masked(tx, functools.partial(task_model.trainable, frozen=True))
  init, shapes, shardings, placements = state.abstract_state(
    model,
    inputs,
    tx,
    objective.loss_names + objective.metric_names,
    mesh,
    config.mesh.rules,
    adjust=functools.partial(
      _clear, paths=_find_replaced(config, encoder, task, abstract)
    ),
    encoder=encoder.module,
  )
  return TaskJob(
    **vars(predictor),
    splits=read,
    total_steps=total_steps,
    eval_every=eval_every,
    schedule=schedule,
    shapes=shapes,
    shardings=shardings,
    create=jax.jit(init, out_shardings=shardings),
    train_step=steps.make_train_step(
      model,
      objective,
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


def _find_replaced(
  config: ml_collections.ConfigDict, encoder: Encoder, task: Task, params: Any
) -> set[str]:
  """Returns the paths of parameters that come wholly from the weights."""
  if encoder.weights is None:
    return set()
  params = nn.unbox(params)
  return warm_start.replaced(
    inherited(encoder.weights, params, task),
    encoder.module,
    encoder.tokenizer,
    strict.flatten(params),
    num_layers=config.init.num_layers,
  )


def _clear(params: dict[str, Any], paths: set[str]) -> dict[str, Any]:
  """Returns parameters with zeros at `paths`, which are then never drawn."""
  cleared: dict[str, Any] = {}
  for path, leaf in strict.flatten(params).items():
    if path in paths:
      leaf = jnp.zeros_like(leaf)
    strict.put(cleared, path.split('/'), leaf)
  return cleared


def plan_predictor(
  config: ml_collections.ConfigDict,
  task: Task,
  mesh: Mesh,
  workdir: epath.Path | None,
) -> Predictor:
  """Opens the weights and builds the model of a task.

  `workdir` is the run that trained the model; None opens the initial weights.
  """
  encoder = encoders.open_encoder(config, task, workdir)
  config = encoder.config
  objective = task_losses.build_objective(task, config.task)
  model = encoders.build_model(encoder, task)
  return Predictor(
    config=config,
    task=task,
    encoder=encoder,
    mesh=mesh,
    model=model,
    objective=objective,
    predict_step=make_predict_step(model, objective, mesh),
  )


def check(config: ml_collections.ConfigDict) -> None:
  """Checks that a config fits its task and its weights."""
  task = task_data.open_task(config)
  encoder = encoders.open_encoder(config, task, None)
  task_losses.build_objective(task, encoder.config.task)


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
  config: ml_collections.ConfigDict, split: Split
) -> tuple[int, int]:
  """Returns (steps of a run, steps between scores of dev)."""
  train = config.train
  of_rows = train.count == 'rows'
  size = len(split.features if of_rows else split.examples)
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
  model: nn.Module, objective: Objective, mesh: Mesh
) -> Callable[[Any, Any], dict[str, jax.Array]]:
  """Returns the jitted (params, batch) -> logits of all rows of the batch.

  Beside 'logits' are 'example_ids', 'example_mask' and 'lengths' [B], a row's
  real tokens (the longest of several), all on every device, and 'loss' [2], the
  sum of the task's loss and its weight.
  """

  def predict(params: Any, batch: Any) -> dict[str, jax.Array]:
    outputs = objective.apply(model, params, batch)
    losses, _ = objective.losses(outputs, batch)
    lengths = batch['token_mask'].sum(axis=-1)
    return {
      'logits': outputs['logits'].astype(jnp.float32),
      'example_ids': batch['example_ids'],
      'example_mask': batch['example_mask'],
      'lengths': lengths if lengths.ndim == 1 else lengths.max(axis=-1),
      'loss': jnp.stack(losses['task']),
    }

  everywhere = NamedSharding(mesh, PartitionSpec())
  return jax.jit(
    predict,
    out_shardings=everywhere,
    compiler_options=device.compiler_options(mesh),
  )


def inherited(weights: Weights, params: Any, task: Task) -> Weights:
  """Returns the weights without heads that mean something else in this task.

  A classifier stays only for the same labels (as after MultiNLI), unless they
  are mere numbers; a head of spans stays (as after TriviaQA). Parts above the
  encoder of another size than in `params`, as drawn, go.
  """
  shapes = strict.flatten(params)
  known = [weights.labels[key] for key in sorted(weights.labels, key=int)]
  on_top = (*opened.HEADS, *opened.BETWEEN)
  dropped = {
    path.partition('/')[0]
    for path, leaf in weights.shapes.items()
    if path.startswith(on_top)
    and (path not in shapes or shapes[path].shape != leaf.shape)
  }
  # Numbers are labels of many tasks, with another meaning in each.
  numbers = all(name.isdecimal() for name in known)
  if numbers or tuple(known) != task.labels:
    dropped |= {'classifier', 'token_classifier'}
  return weights._replace(
    shapes={
      path: leaf
      for path, leaf in weights.shapes.items()
      if path.partition('/')[0] not in dropped
    },
    heads=tuple(head for head in weights.heads if head in dropped),
  )
