"""BERT's pre-training on masked tokens and next sentences, and its ablations.

The ablations (Devlin et al. 2018, section 5.1) read the same inputs, but the
second text always continues the first: another document's text, without labels,
would be noise. Fine-tuning on pairs still needs both token types.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from data.by_name import ByName
from data.examples import masking, pairs, transforms
from data.examples.pipeline import Examples
from data.store.corpus import Store
from data.text import languages
from models import bert
from models.layers import Params
from train.architectures.architecture import (
  Architecture,
  TextObjective,
  Vocabulary,
  count_encoder,
  describe_transformer,
  model_fields,
)
from train.engine import objectives
from train.engine.steps import Batch, Outputs, Sums
from train.run import settings, training_phases

INPUTS = ('tokens', 'token_mask', 'token_types', 'positions', 'mlm_positions')


def build_model(
  model_config: ml_collections.ConfigDict, vocab_size: int
) -> bert.Bert:
  """Returns the module of a config."""
  fields = model_fields(model_config)
  if fields.get('positions') == 'rotary':
    fields['num_token_types'] = 0  # whatever an older config says
  return bert.Bert(vocab_size=vocab_size, **fields)


def check_bert(config: ml_collections.ConfigDict) -> None:
  """Checks the keys of a BERT."""
  settings.check_transformer(config)
  settings.check_masks(config)
  settings.expect(
    config,
    config.model.positions == 'learned' or not config.model.num_token_types,
    'model.num_token_types',
    "0 with model.positions='rotary': such a model has no types of tokens",
  )
  settings.expect(
    config,
    (config.train.objective == 'lm') == config.model.left_to_right,
    'train.objective',
    "'bert', 'dialogue' or 'mlm', or 'lm' with model.left_to_right=True",
  )
  settings.expect(
    config,
    (config.train.objective == 'distil') == ('distill' in config),
    'train.objective',
    "'distil' with --config distilbert, which has its keys, and no other there",
  )
  for key, unset in (('first_mask_rate', None), ('unit', 'piece')):
    settings.expect(
      config,
      config.train.objective != 'lm' or config.objective[key] == unset,
      f'objective.{key}',
      f"{unset!r} with train.objective='lm', which masks no token",
    )
  if 'distill' in config:
    taught = ('soft_weight', 'cosine_weight', 'relation_weight')
    settings.expect(
      config,
      any(config.distill[key] for key in taught),
      'distill.soft_weight',
      'one of distill.soft_weight, cosine_weight and relation_weight above 0:'
      ' else the teacher teaches nothing',
    )
  phases = training_phases.check_phases(config)
  stored = any(
    training_phases.has_units(config, phase.kind) and not phase.folder
    for phase in phases
  )
  data = config.data
  has_units = data.units != 'wordpiece' or languages.IDS in data.source
  settings.expect(
    config,
    bool(data.folder) or has_units or not stored,
    'data.units',
    "'file' or 'jieba' for objective.unit='stored', or a data.source ernie:PATH"
    ' that has units, or the data.folder of a store with units',
  )


# Loss -> batch -> (targets, their weights, 0 in padding rows).
_TARGETS: dict[str, Callable[[Batch], tuple[jax.Array, jax.Array]]] = {
  'mlm': lambda batch: (
    batch['mlm_targets'],
    batch['mlm_weights'] * batch['example_mask'][:, None],
  ),
  'nsp': lambda batch: (
    batch['nsp_labels'],
    batch['nsp_weights'] * batch['example_mask'],
  ),
}


def _known(host_batch: Batch, vocabulary: Vocabulary) -> Batch:
  """Returns a batch in which words without a row are the unknown one."""
  batch = dict(host_batch)
  for name in ('window', 'other_window'):
    mark = batch[name] & transforms.UNIT_START
    batch[name] = vocabulary.known(batch[name] - mark) + mark
  return batch


class _PairsOfText(TextObjective):
  """An objective of BERT: its rows are two texts behind [CLS]."""

  heads: tuple[str, ...] = ('mlm',)

  def __init__(
    self, config: ml_collections.ConfigDict, length: int, vocabulary: Vocabulary
  ):
    super().__init__(config, length, vocabulary)
    if vocabulary.specials is None:
      raise ValueError(
        f'data.tokenizer={config.data.tokenizer!r} has no [CLS], [SEP] and'
        " [MASK], which model.name='bert' needs: take a vocabulary of"
        ' WordPiece, or a byte-level BPE with such symbols'
      )

  @classmethod
  def open_examples(
    cls,
    config: ml_collections.ConfigDict,
    store: Store,
    length: int,
    **options: Any,
  ) -> Examples:
    """Opens a split of a store, as dialogues where it has any."""
    options['language_exponent'] = config.data.language_exponent
    if any(pairs.is_dialogue(store)):
      from data.examples import dialogues

      return dialogues.DialogueExamples(store, length, **options)
    return pairs.PairExamples(
      store, length, next_sentences='nsp' in cls.loss_names, **options
    )

  batch_shapes = staticmethod(pairs.batch_shapes)

  @classmethod
  def with_heads(cls, model: bert.Bert) -> bert.Bert:
    """Returns a model with this objective's heads."""
    return model.clone(heads=cls.heads)

  def sample_pairs(
    self, host_batch: Batch, keys: jax.Array, **options: bool
  ) -> Batch:
    """Returns rows [CLS] A [SEP] B [SEP] of a batch's windows."""
    return transforms.sample_pairs(
      _known(host_batch, self.vocabulary),
      keys,
      length=self.length,
      specials=self.vocabulary.specials,
      short_seq_prob=transforms.SHORT_SEQ_PROB,
      **options,
    )

  def inputs(self, batch: Batch) -> tuple:
    """Returns the inputs of `models.bert.Bert`."""
    return tuple(batch[name] for name in INPUTS)


class MaskedTokens(_PairsOfText):
  """Masked tokens, and whether the second text follows the first."""

  predicts: tuple[str, ...] = ('mlm', 'nsp')
  loss_names = predicts
  metric_names = ('mlm_accuracy', 'nsp_accuracy')
  perplexities = MappingProxyType({'mlm': 'mlm_perplexity'})
  heads = bert.HEADS

  def transform(self, host_batch: Batch, keys_B: jax.Array) -> Batch:
    """Returns rows of two texts with masked tokens."""
    rate = self.config.objective.mask_rate
    return self._mask(host_batch, keys_B, rate, rate)

  def transform_at(
    self, host_batch: Batch, keys_B: jax.Array, step: jax.Array
  ) -> Batch:
    """Returns `transform` with the share of masks of a step."""
    first, last = (
      self.config.objective[key] for key in ('first_mask_rate', 'mask_rate')
    )
    if first is None:
      return self.transform(host_batch, keys_B)
    done = jnp.asarray(step, jnp.float32) / self.num_steps
    rate = first + (last - first) * jnp.minimum(done, 1)
    return self._mask(host_batch, keys_B, rate, max(first, last))

  def _mask(
    self,
    host_batch: Batch,
    keys_B: jax.Array,
    rate: float | jax.Array,
    highest: float,
  ) -> Batch:
    wanted, vocabulary = self.config.objective, self.vocabulary
    batch = self.sample_pairs(
      host_batch,
      keys_B,
      negatives='nsp' in self.predicts,
      units=wanted.unit == 'stored',
    )
    batch = self.choose_responses(batch, host_batch, keys_B)
    rates = masking.Rates(
      rate,
      wanted.mask_fraction,
      wanted.random_fraction,
      wanted.counting,
    )
    of_words = wanted.unit in ('word', 'span')
    starts = batch.pop('unit_starts', None)
    return masking.mask_units(
      batch,
      keys_B,
      specials=vocabulary.specials,
      vocab_size=vocabulary.size,
      rates=rates,
      max_predictions=masking.max_predictions(
        self.length, rates._replace(predicted=highest)
      ),
      continuations=vocabulary.continuations if of_words else None,
      longest_span=masking.LONGEST_SPAN if wanted.unit == 'span' else 1,
      unit_starts=starts,
    )

  def choose_responses(
    self, batch: Batch, host_batch: Batch, keys_B: jax.Array
  ) -> Batch:
    """Returns the rows as they are: there are no dialogues among them."""
    del host_batch, keys_B
    return batch

  def losses(
    self, outputs: Mapping[str, jax.Array], batch: Batch
  ) -> tuple[Sums, Sums]:
    """Returns BERT's losses and accuracies.

    Args:
      outputs: `mlm_logits` [B, P, V] and `nsp_logits` [B, 2] of
        models.bert.Bert, and its `mlm_head` in training.
      batch: `mlm_targets` int [B, P], `mlm_weights` float [B, P], `nsp_labels`
        int [B] (0 = really next), `nsp_weights` [B], `example_mask` bool [B].

    Returns:
      Losses in nats and metrics, by their names: each (weighted sum, sum of
      weights), float32 scalars.
    """
    losses, metrics = {}, {}
    for name in self.predicts:
      targets, weights = _TARGETS[name](batch)
      losses[name], metrics[f'{name}_accuracy'] = objectives.sum_losses(
        outputs, name, targets, weights
      )
    return losses, metrics

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns each loss's total weight in a global batch, at least 1."""
    return {
      name: jnp.maximum(_TARGETS[name](batch)[1].sum(), 1)
      for name in self.predicts
    }

  def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns the masked tokens and their weights, [B, P]."""
    return _TARGETS['mlm'](batch)


class MaskedTokensAlone(MaskedTokens):
  """Masked tokens: the second text always follows the first."""

  predicts = loss_names = ('mlm',)
  metric_names = ('mlm_accuracy',)
  # Pooler and NSP head learn from next sentences: a task draws its own.
  heads = ('mlm',)


class Dialogues(MaskedTokens):
  """Masked tokens of texts and dialogues, and whether a response is a real one.

  ERNIE's (Sun et al. 2019, section 3.3).
  """

  @classmethod
  def with_heads(cls, model: bert.Bert) -> bert.Bert:
    """Returns a model with this objective's heads and types of tokens."""
    from data.examples import dialogues

    return model.clone(heads=cls.heads, num_token_types=dialogues.NUM_TYPES)

  def choose_responses(
    self, batch: Batch, host_batch: Batch, keys_B: jax.Array
  ) -> Batch:
    """Returns rows in which some dialogues have another one's response."""
    from data.examples import dialogues

    pad = self.vocabulary.specials.pad
    return dialogues.choose_responses(batch, host_batch, keys_B, pad=pad)


class LeftToRightTokens(_PairsOfText):
  """The next token of a left-to-right BERT, by its MLM head."""

  loss_names = ('lm',)
  metric_names = ('lm_accuracy',)
  perplexities = MappingProxyType({'lm': 'perplexity'})

  def transform(self, host_batch: Batch, keys_B: jax.Array) -> Batch:
    """Returns rows of two texts, with a target at each place."""
    batch = self.sample_pairs(host_batch, keys_B, negatives=False)
    batch = transforms.predict_text(batch, specials=self.vocabulary.specials)
    everywhere = jnp.arange(self.length, dtype=jnp.int32)
    shape = batch['tokens'].shape
    return batch | {'mlm_positions': jnp.broadcast_to(everywhere, shape)}

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns the loss's weight, see `objectives.lm_weights`."""
    return objectives.lm_weights(batch)

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the loss and the accuracy, see `objectives.lm_losses`."""
    loss, hits = objectives.sum_losses(outputs, 'mlm', *self.targets(batch))
    return {'lm': loss}, {'lm_accuracy': hits}

  def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns the next tokens and their weights, [B, T]."""
    return batch['targets'], batch['loss_weights']


def _adjust_init(
  model: bert.Bert, params: Params, init_config: ml_collections.ConfigDict
) -> Params:
  del model
  return bert.rescale_init(
    params,
    stddev=init_config.stddev,
    position_stddev=init_config.position_stddev,
    self_score=init_config.self_score,
  )


def _print_samples(
  model: bert.Bert, params: Params, store: Store, length: int
) -> None:
  from train.architectures import samples  # a fine-tuning shows none

  if not model.left_to_right:
    samples.print_filled_masks(model, params, store, length)
    return

  def predict(params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    place = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    inputs = tokens, mask, jnp.zeros_like(tokens), place, place
    return model.apply({'params': params}, *inputs, train=False)['mlm_logits']

  samples.print_guesses(predict, params, store, store.tokenizer.cls_id, length)


def _encoder_flops(model: bert.Bert, rows: int, length: int) -> int:
  return count_encoder(model.clone(heads=()), rows, length, num_inputs=4)


def _text_inputs(
  tokens_BT: jax.Array, mask_BT: jax.Array, places_BT: jax.Array
) -> tuple[jax.Array, ...]:
  return tokens_BT, mask_BT, jnp.zeros_like(tokens_BT), places_BT


ARCHITECTURE = Architecture(
  check=check_bert,
  describe=describe_transformer,
  build_model=build_model,
  objectives=ByName(
    {
      'bert': f'{__name__}:MaskedTokens',
      'dialogue': f'{__name__}:Dialogues',
      'mlm': f'{__name__}:MaskedTokensAlone',
      'lm': f'{__name__}:LeftToRightTokens',
      'distil': 'train.pretrain.distillation:DistilledTokens',
    }
  ),
  packed=ByName(
    {
      'mlm': 'train.architectures.packed:PackedMaskedTokens',
      'lm': 'train.architectures.packed:PackedLeftToRightTokens',
    }
  ),
  adjust_init=_adjust_init,
  print_samples=_print_samples,
  encoder_flops=_encoder_flops,
  needs_mask=True,
  form='bert',
  finds_spans=True,
  below_head=lambda model, pooler, lm: model.clone(
    heads=('pooler',) * pooler + ('mlm',) * lm
  ),
  frame=lambda tokenizer: ([tokenizer.cls_id], [tokenizer.sep_id]),
  text_inputs=_text_inputs,
  reads_both_ways=lambda model: not model.left_to_right,
)
