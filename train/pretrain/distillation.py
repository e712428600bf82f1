"""Pre-trains a small BERT from a large one, as DistilBERT and MiniLM do.

Shapes: B batch, T position, P predicted position, D embed, V vocabulary, L
layers.
"""

import copy
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models import bert
from models.layers import Params
from models.pretrained import strict
from models.pretrained.weights import Weights, shapes_of
from train.architectures.architecture import Vocabulary
from train.architectures.bert import MaskedTokensAlone
from train.engine import soft_targets, steps
from train.engine.optim import Schedule
from train.engine.steps import Batch, Outputs, Sums, TrainStep
from train.host import device
from train.params import opened, warm_start

LOSSES = ('soft', 'mlm', 'cosine', 'relation')


class TeacherOutputs(NamedTuple):
  """A teacher's outputs of a batch.

  Attributes:
    logits: float32 [B, P, V]; None without the loss of its probabilities.
    hidden: [B, T, D].
    projections: queries, keys and values of a layer, each [B, T, D]; None
      without the loss of relations.
  """

  logits: jax.Array | None
  hidden: jax.Array
  projections: list[jax.Array] | None = None


class DistilledTokens(MaskedTokensAlone):
  """Masked tokens, their probabilities by a teacher, its hidden states.

  The loss is the sum of these, each times its weight (Sanh et al. 2019, section
  2 and the release's weights; the last of Wang et al. 2021, MiniLMv2, section
  3):

  - soft: T^2 KL(teacher || student) of the masked tokens at the temperature T.
  - mlm: the cross-entropy of the masked tokens.
  - cosine: 1 - cosine of both last hidden states, a mean over real tokens.
  - relation: KL(teacher || student) of the relations between the queries of a
    row's tokens, and likewise keys and values, added up; the mean over relation
    heads and real tokens. They are those of the student's last layer, and of
    one of the teacher's.

  The teacher reads the same masked rows, without dropout. Its outputs of a step
  are computed in the step: to keep them would take V numbers a token, and rows
  are masked anew each time.

  Attributes:
    taught: the teacher's parameters inside of a training step, else None.
  """

  loss_names = LOSSES
  taught: Params | None = None

  def __init__(
    self, config: ml_collections.ConfigDict, length: int, vocabulary: Vocabulary
  ):
    """Opens the teacher; ValueError, naming the key, if it does not fit."""
    super().__init__(config, length, vocabulary)
    self._weights = open_teacher(config)
    wanted = config.distill
    # A loss without a weight is left out.
    self._factors = {
      name: wanted[f'{name}_weight']
      for name in LOSSES
      if wanted[f'{name}_weight']
    }
    self.loss_names = tuple(self._factors)
    if 'mlm' not in self._factors:  # held-out text is scored by it
      self.loss_names += ('mlm',)

  @classmethod
  def check_beside(cls, config: ml_collections.ConfigDict) -> None:
    """Checks that the teacher fits; ValueError for another vocabulary."""
    theirs, ours = (
      open_teacher(config).tokenizer,
      warm_start.known_tokenizer(config),
    )
    if ours is not None and theirs.fingerprint == ours.fingerprint:
      return
    found = f'data.tokenizer={config.data.tokenizer} trains one anew'
    if ours is not None:
      found = (
        f'that of the text has {ours.vocab_size} pieces, {ours.fingerprint[:8]}'
      )
    raise ValueError(
      f'init.teacher={config.init.teacher}: its vocabulary is another one'
      f' ({theirs.vocab_size} pieces, {theirs.fingerprint[:8]}); {found}:'
      f' expected --config.data.tokenizer={config.init.teacher}'
    )

  @property
  def teacher(self) -> nn.Module:
    """The module of the teacher, with the heads of `heads_of` alone."""
    return self._weights.model.clone(
      heads=heads_of(self.config), dtype=jnp.dtype(self.config.model.dtype)
    )

  def beside(self, mesh: Mesh, *, shapes: bool = False) -> tuple:
    """Returns the teacher's parameters, a copy on each device."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    wanted = shapes_of(self.teacher)
    if not shapes:
      return (_parameters(self.config.init.teacher, tuple(wanted), everywhere),)
    tree: dict = {}
    for path, leaf in wanted.items():
      leaf = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere)
      strict.put(tree, path.split('/'), leaf)
    return (tree,)

  def make_step(
    self,
    model: nn.Module,
    tx: optax.GradientTransformation,
    schedule: Schedule,
    **settings: Any,
  ) -> TrainStep:
    """Returns the training step (state, batch, teacher's parameters)."""

    def step(state: Any, host_batch: Batch, taught: Params) -> tuple:
      objective = copy.copy(self)
      objective.taught = taught
      made = steps.make_train_step(model, objective, tx, schedule, **settings)
      return made.__wrapped__(state, host_batch)

    mesh = settings['mesh']
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.jit(
      step,
      donate_argnums=0,
      out_shardings=(settings['state_shardings'], everywhere),
      compiler_options=device.compiler_options(mesh),
    )

  def apply(
    self,
    model: nn.Module,
    params: Params,
    batch: Batch,
    rngs: Mapping[str, jax.Array] | None = None,
  ) -> Outputs:
    """Returns the module's outputs, in training with the teacher's."""
    if self.taught is None:
      return super().apply(model, params, batch, rngs)
    relates = 'relation' in self._factors
    outputs, theirs = (
      module.apply(
        {'params': weights},
        *self.inputs(batch),
        train=keys is not None,
        rngs=keys,
        all_layers=relates,
      )
      for module, weights, keys in (
        (model, params, rngs),
        (self.teacher, self.taught, None),
      )
    )
    if 'soft' in self._factors:  # it reads the logits
      outputs.pop('mlm_head', None)
    projections = None
    if relates:
      layer = self.config.distill.relation_layer or self.teacher.num_layers
      projections = bert.projections(self.taught, theirs['layers'], layer - 1)
      outputs['projections'] = bert.projections(
        params, outputs.pop('layers'), model.num_layers - 1
      )
    teacher = TeacherOutputs(
      theirs.get('mlm_logits'), theirs['hidden'], projections
    )
    return {**outputs, 'teacher': jax.lax.stop_gradient(teacher)}

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the losses; without a teacher that of masked tokens alone."""
    sums, metrics = super().losses(outputs, batch)
    if self.taught is None:
      return sums, metrics
    teacher, size = outputs['teacher'], self.vocabulary.size
    weights = self.targets(batch)[1]
    if 'soft' in self._factors:
      values = soft_targets.divergence(
        outputs['mlm_logits'][..., :size],
        teacher.logits[..., :size],
        self.config.distill.temperature,
      )
      sums['soft'] = (jnp.sum(values * weights), weights.sum())
    if 'cosine' in self._factors:
      mask = _real_tokens(batch)
      values = soft_targets.directions(outputs['hidden'], teacher.hidden)
      sums['cosine'] = (jnp.sum(values * mask), mask.sum())
    if 'relation' in self._factors:
      mask = _real_tokens(batch)
      relate = functools.partial(
        soft_targets.relations,
        mask_BT=batch['token_mask'],
        num_heads=self.config.distill.relation_heads,
      )
      values = sum(
        soft_targets.divergence(relate(ours), relate(theirs), 1.0).mean(axis=1)
        for ours, theirs in zip(
          outputs['projections'], teacher.projections, strict=True
        )
      )
      sums['relation'] = (jnp.sum(values * mask), mask.sum())
    return sums, metrics

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns each loss's divisor, the factor of the loss in it."""
    predicted = super().weights(batch)['mlm']
    totals = dict.fromkeys(self.loss_names, predicted)
    for name in {'cosine', 'relation'} & totals.keys():
      totals[name] = jnp.maximum(_real_tokens(batch).sum(), 1)
    return {
      name: total / self._factors[name]
      if name in self._factors
      else jnp.float32(jnp.inf)
      for name, total in totals.items()
    }


def _real_tokens(batch: Batch) -> jax.Array:
  """Returns 1 at real tokens of real rows, float32 [B, T]."""
  mask = batch['token_mask'] & batch['example_mask'][:, None]
  return mask.astype(jnp.float32)


def heads_of(config: ml_collections.ConfigDict) -> tuple[str, ...]:
  """Returns the heads that the losses read of a teacher: its MLM head or none.

  Hidden states and relations are of the layers alone.
  """
  return ('mlm',) if config.distill.soft_weight else ()


def open_teacher(config: ml_collections.ConfigDict) -> Weights:
  """Opens the language model of `init.teacher`, without reading arrays.

  Raises FileNotFoundError or ValueError, naming the key, if it is no BERT, has
  no MLM head where its probabilities are compared, or is not as wide as the
  student where hidden states are.
  """
  path, model = config.init.teacher, config.model
  if not path:
    raise ValueError(
      'init.teacher is empty: name a BERT: a workdir of its pre-training, or'
      ' published weights (--config.init.teacher=WEIGHTS)'
    )
  found = opened.open_weights(path)
  found.check_complete()
  if found.name != model.name:
    raise ValueError(
      f'init.teacher={path} holds a {found.name}, expected a {model.name}'
    )
  if not {*heads_of(config)} <= {*found.model.heads}:
    raise ValueError(
      f'init.teacher={path} has no MLM head, which predicts masked tokens:'
      ' expected a pre-training, BertForMaskedLM or BertForPreTraining, or'
      ' --config.distill.soft_weight=0'
    )
  width = found.model.embed_dim
  if config.distill.cosine_weight and width != model.embed_dim:
    raise ValueError(
      f'model.embed_dim={model.embed_dim}: init.teacher={path} is {width} wide,'
      ' expected the same, or --config.distill.cosine_weight=0: hidden states'
      ' of two widths have no cosine'
    )
  if config.distill.relation_weight:
    _check_relations(config, found)
  longest = max(length for _, length, *_ in config.train.phases)
  if longest > found.model.max_length:
    raise ValueError(
      f'train.phases: length {longest}, but init.teacher={path} has'
      f' {found.model.max_length} positions'
    )
  return found


def _check_relations(
  config: ml_collections.ConfigDict, teacher: Weights
) -> None:
  """Checks that both models have relations of as many heads."""
  wanted, path = config.distill, config.init.teacher
  widths = {
    'model.embed_dim': config.model.embed_dim,
    f'the width of init.teacher={path}': teacher.model.embed_dim,
  }
  for name, width in widths.items():
    if width % wanted.relation_heads:
      raise ValueError(
        f'distill.relation_heads={wanted.relation_heads}, expected a divisor of'
        f' {width}, {name}'
      )
  layer, depth = wanted.relation_layer, teacher.model.num_layers
  if layer is not None and layer > depth:
    raise ValueError(
      f'distill.relation_layer={layer}, but init.teacher={path} has {depth}'
      ' layers'
    )
  norms = {
    'model.norm': config.model.norm,
    f'that of init.teacher={path}': teacher.model.norm,
  }
  for name, norm in norms.items():
    if norm != 'post':
      raise ValueError(
        f'distill.relation_weight={wanted.relation_weight}, but {name} is'
        f' {norm!r}, expected post: relations are of what attention reads,'
        ' which is the output of the layer before only there'
      )


@functools.lru_cache(maxsize=1)
def _parameters(
  path: str, wanted: tuple[str, ...], place: NamedSharding
) -> Params:
  """Returns a teacher's parameters, read once for all phases and scores."""
  return opened.open_weights(path).load(dict.fromkeys(wanted, place))
