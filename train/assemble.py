"""Turns a config into what a run computes with: nothing is computed yet."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import Mesh

from data import pipeline, transforms
from data.tokenization import WordPiece
from models import bert
from train import objectives, optim, sharding, state, steps
from train.settings import Phase
from train.state import TrainState
from train.steps import Objective


class Vocabulary(NamedTuple):
  """What models and objectives know of a tokenizer.

  Attributes:
    size: V, unpadded.
    specials: ids of the special tokens.
    continuations: bool [V], the pieces that continue a word; where whole words
      are masked.
  """

  size: int
  specials: transforms.Specials
  continuations: Any = None

  @classmethod
  def of(cls, tokenizer: WordPiece) -> 'Vocabulary':
    """Returns that of a tokenizer."""
    return cls(
      size=tokenizer.vocab_size,
      specials=transforms.Specials(
        pad=tokenizer.pad_id,
        cls=tokenizer.cls_id,
        sep=tokenizer.sep_id,
        mask=tokenizer.mask_id,
      ),
      continuations=tokenizer.continuations(),
    )

  @classmethod
  def of_size(cls, size: int) -> 'Vocabulary':
    """Returns one without a tokenizer, to plan or to measure with."""
    specials = transforms.Specials(pad=0, cls=2, sep=3, mask=4)
    return cls(size, specials, jnp.zeros(size, bool))


@dataclasses.dataclass(frozen=True)
class Job:
  """A run, planned for a mesh.

  Attributes:
    config: its config.
    phases: its phases.
    mesh: the mesh.
    model: the module.
    objective_of: length -> objective.
    schedule: step -> learning rate.
    tx: the optimiser.
    init: rng -> TrainState.
    shapes: the state as ShapeDtypeStructs.
    shardings: the state's shardings.
  """

  config: Any
  phases: Sequence[Phase]
  mesh: Mesh
  model: nn.Module
  objective_of: Mapping[int, Objective]
  schedule: Callable[[jax.Array], jax.Array]
  tx: optax.GradientTransformation
  init: Callable[[jax.Array], TrainState]
  shapes: TrainState
  shardings: TrainState

  @property
  def objective(self) -> Objective:
    """The objective of the last phase; all have the same names."""
    return self.objective_of[self.phases[-1].length]

  def create_state(self) -> TrainState:
    """Returns the state at step 0, made in shards."""
    return state.create_state(self.init, self.shardings, self.config.train.seed)

  def train_step(self, length: int) -> Callable[[TrainState, Any], Any]:
    """Returns the jitted step at one length, see `steps.make_train_step`."""
    train = self.config.train
    return steps.make_train_step(
      self.model,
      self.objective_of[length],
      self.tx,
      self.schedule,
      seed=train.seed,
      micro_batches=train.micro_batches,
      log_every=train.log_every,
      mesh=self.mesh,
      state_shardings=self.shardings,
    )


def build_job(
  config: Any, phases: Sequence[Phase], vocabulary: Vocabulary, mesh: Mesh
) -> Job:
  """Plans the run that a config describes.

  Args:
    config: a checked config.
    phases: its phases, resolved.
    vocabulary: the tokenizer's.
    mesh: the mesh, of devices that need not be there.

  Raises:
    ValueError: if there is no such model or objective, or a parameter does not
      divide over the mesh.
  """
  model = build_model(config.model, vocabulary.size)
  objective_of = {
    phase.length: build_objective(config, phase.length, vocabulary)
    for phase in phases
  }
  schedule = optim.make_schedule(config.optim, phases)
  _, length, global_batch, _ = phases[-1]
  objective = objective_of[length]
  inputs = model_inputs(objective, length, global_batch)
  tx = optim.make_optimizer(
    config.optim,
    schedule,
    sharding.axis_names(state.abstract_params(model, inputs)),
    vocabulary.size,
  )
  init, shapes, shardings = state.abstract_state(
    model,
    inputs,
    tx,
    objective.loss_names + objective.metric_names,
    mesh,
    config.mesh.rules,
    _adjustment(config.init),
  )
  return Job(
    config=config,
    phases=phases,
    mesh=mesh,
    model=model,
    objective_of=objective_of,
    schedule=schedule,
    tx=tx,
    init=init,
    shapes=shapes,
    shardings=shardings,
  )


def build_model(model_config: Any, vocab_size: int) -> nn.Module:
  """Returns the module that `model.name` names.

  Raises:
    ValueError: if there is no such model.
  """
  if model_config.name != 'bert':
    raise ValueError(f'model.name={model_config.name!r}: expected bert')
  fields = dict(model_config)
  del fields['name']
  return bert.Bert(
    vocab_size=vocab_size, **fields | {'dtype': jnp.dtype(fields['dtype'])}
  )


def model_inputs(objective: Objective, length: int, batch: int) -> tuple:
  """Returns the module's inputs as ShapeDtypeStructs, nothing computed."""
  keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch))
  shapes = pipeline.batch_shapes(length, batch)
  return objective.inputs(jax.eval_shape(objective.transform, shapes, keys))


def _adjustment(init_config: Any) -> Callable[[Any], Any]:
  """Returns what is done to freshly drawn parameters, see `init.stddev`."""
  return functools.partial(
    bert.rescale_init,
    stddev=init_config.stddev,
    position_stddev=init_config.position_stddev,
    self_score=init_config.self_score,
  )


def build_objective(
  config: Any, length: int, vocabulary: Vocabulary
) -> Objective:
  """Returns the objective that `train.objective` names, at one length.

  Raises:
    ValueError: if there is no such objective.
  """
  if config.train.objective != 'bert':
    raise ValueError(
      f'train.objective={config.train.objective!r}: expected bert'
    )
  rates = config.objective

  def transform(host_batch: Any, keys: Any) -> Any:
    batch = transforms.sample_pairs(
      host_batch,
      keys,
      length=length,
      specials=vocabulary.specials,
      short_rate=rates.short_rate,
    )
    return transforms.mask_tokens(
      batch,
      keys,
      specials=vocabulary.specials,
      vocab_size=vocabulary.size,
      mask_rate=rates.mask_rate,
      max_predictions=transforms.max_predictions(length, rates.mask_rate),
      mask_fraction=rates.mask_fraction,
      random_fraction=rates.random_fraction,
      continuations=vocabulary.continuations if rates.whole_word else None,
    )

  return Objective(
    transform=transform,
    inputs=lambda batch: tuple(batch[name] for name in BERT_INPUTS),
    weights=objectives.bert_weights,
    losses=objectives.bert_losses,
    loss_names=('mlm', 'nsp'),
    metric_names=('mlm_accuracy', 'nsp_accuracy'),
  )


BERT_INPUTS = (
  'tokens',
  'token_mask',
  'token_types',
  'positions',
  'mlm_positions',
)
