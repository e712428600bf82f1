"""Builds the model, objectives, optimiser and steps of a config."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import ml_collections
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding

from models import layers
from train.architectures import families
from train.architectures.architecture import (
  Architecture,
  TextObjective,
  Vocabulary,
)
from train.engine import flops, optim, sharding, shards, state
from train.engine.state import TrainState
from train.engine.steps import TrainStep
from train.host import console
from train.run import settings, training_phases
from train.run.checkpoint import Checkpoints
from train.run.training_phases import Phase


@dataclasses.dataclass(frozen=True)
class Parts:
  """A run, planned for a mesh.

  Attributes:
    phases: the resolved phases.
    objective_of: kind of a phase -> objective.
    schedule: step -> learning rate.
    tx: the optimiser.
    init: rng -> TrainState.
    shapes: the state as ShapeDtypeStructs.
    shardings: the state's shardings.
    placements: where each parameter lies, see `shards`.
  """

  config: ml_collections.ConfigDict
  architecture: Architecture
  phases: Sequence[Phase]
  mesh: Mesh
  model: nn.Module
  objective_of: Mapping[tuple[int, str], TextObjective]
  schedule: optim.Schedule
  tx: optax.GradientTransformation
  init: state.Init
  shapes: TrainState
  shardings: TrainState
  placements: shards.Placements

  @property
  def num_parameters(self) -> int:
    """The model's number of parameters, the vocabulary unpadded."""
    return layers.num_parameters(self.shapes.params, self.model.vocab_size)

  def step_flops(self, phase: Phase) -> int:
    """Returns the model FLOPs of one training step of a phase."""
    objective = self.objective_of[phase.kind]
    inputs = model_inputs(self.model, objective, phase.global_batch)

    def forward(model: nn.Module, *, train: bool) -> int:
      size, method = model.vocab_size, objective.method
      return flops.forward(
        model, inputs, vocab_size=size, method=method, train=train
      )

    ours = 3 * forward(self.model, train=True)
    if objective.teacher is None:
      return ours
    return ours + forward(objective.teacher, train=False)

  @property
  def objective(self) -> TextObjective:
    """The objective of the last phase; all have the same names."""
    return self.objective_of[self.phases[-1].kind]

  def create_state(self) -> TrainState:
    """Returns the state at step 0, made in shards."""
    return state.create_state(self.init, self.shardings, self.config.train.seed)

  def restore(self, checkpoints: Checkpoints) -> tuple[int, TrainState]:
    """Returns (step, state) of the newest sound checkpoint."""
    if not self.shapes.carry:
      return checkpoints.restore(self.shapes)
    if not self.config.train.reset_streams:
      return checkpoints.restore(
        self.shapes,
        cure='Mend them, pass --config.train.reset_streams=true where they are'
        ' of another train.global_batch',
      )
    console.say(
      'train.reset_streams: the rows begin with empty memories, at this and any'
      ' other start with it; leave it out once a checkpoint of the new batch is'
      ' there.'
    )
    parts = {field.name for field in dataclasses.fields(TrainState)} - {'carry'}
    step, restored = checkpoints.restore(self.shapes, parts=sorted(parts))
    rows = self.phases[-1].global_batch
    return step, TrainState(**restored, carry=self.empty_carry(rows))

  def empty_carry(self, rows: int) -> dict[str, jax.Array]:
    """Returns the memory of the rows of a first batch, all zeros."""
    place = NamedSharding(self.mesh, sharding.BATCH)
    return {
      name: jnp.zeros(leaf.shape, leaf.dtype, device=place)
      for name, leaf in self.objective.carry_shapes(self.model, rows).items()
    }

  def train_step(self, length: int, unit: str = '') -> TrainStep:
    """Returns the jitted step of a kind, see `steps.make_train_step`."""
    train = self.config.train
    return self.objective_of[length, unit].make_step(
      self.model,
      self.tx,
      self.schedule,
      seed=train.seed,
      micro_batches=train.micro_batches,
      log_every=train.log_every,
      mesh=self.mesh,
      state_shardings=self.shardings,
      placements=self.placements,
    )


def build_parts(
  config: ml_collections.ConfigDict,
  phases: Sequence[Phase],
  vocabulary: Vocabulary,
  mesh: Mesh,
) -> Parts:
  """Plans a checked config's run, on a mesh of devices that need not exist."""
  architecture = families.architecture_of(config)
  model = families.build_model(config, vocabulary.size)
  objective_of = {
    phase.kind: families.objective_of(config)(
      _at_stage(config, phase), phase.length, vocabulary
    )
    for phase in phases
  }
  for objective in objective_of.values():
    objective.num_steps = training_phases.steps_before_restart(phases)
  schedule = optim.make_schedule(config.optim, phases)
  global_batch = phases[-1].global_batch
  objective = objective_of[phases[-1].kind]
  inputs = model_inputs(model, objective, global_batch)
  tx = objective.optimizer
  if tx is None:
    abstract = state.abstract_params(model, inputs, objective.method)
    tx = optim.make_optimizer(
      config.optim, schedule, sharding.axis_names(abstract), vocabulary.size
    )
  init, shapes, shardings, placements = state.abstract_state(
    model,
    inputs,
    tx,
    objective.loss_names + objective.metric_names,
    mesh,
    config.mesh.rules,
    objective.method,
    objective.carry_shapes(model, global_batch),
    lambda params: architecture.adjust_init(model, params, config.init),
  )
  return Parts(
    config=config,
    architecture=architecture,
    phases=phases,
    mesh=mesh,
    model=model,
    objective_of=objective_of,
    schedule=schedule,
    tx=tx,
    init=init,
    shapes=shapes,
    shardings=shardings,
    placements=placements,
  )


def _at_stage(
  config: ml_collections.ConfigDict, phase: Phase
) -> ml_collections.ConfigDict:
  """Returns the config with a phase's unit."""
  if not phase.unit:
    return config
  unit = training_phases.unit_of(config, phase.kind)
  return settings.with_overrides(config, {'objective.unit': unit})


def model_inputs(
  model: nn.Module, objective: TextObjective, batch: int
) -> tuple:
  """Returns the module's inputs as ShapeDtypeStructs."""
  keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch))
  shapes = objective.batch_shapes(objective.length, batch)
  carry = objective.carry_shapes(model, batch)
  return jax.eval_shape(
    lambda shapes, keys, carry: objective.inputs(
      objective.transform_at(shapes, keys, jnp.int32(0)) | carry
    ),
    shapes,
    keys,
    carry,
  )
