"""BERT's pre-training on masked tokens and next sentences, and its ablations.

The ablations (Devlin et al. 2018, section 5.1) read the same inputs, but the
second text always continues the first: another document's text, without labels,
would be noise. Fine-tuning on pairs still needs both token types.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from data.examples import masking, pairs, transforms
from data.examples.pipeline import Examples
from data.store.corpus import Store
from data.text import languages
from models import bert
from train.architectures import samples
from train.architectures.architecture import (
  TRANSFORMER_KEYS,
  Architecture,
  Vocabulary,
  count_encoder,
  describe_transformer,
  model_fields,
)
from train.engine import objectives
from train.engine.steps import Objective
from train.run import settings, training_phases

INPUTS = ('tokens', 'token_mask', 'token_types', 'positions', 'mlm_positions')
# Pooler and NSP head learn from next sentences; without, a task draws its own.
HEADS = {
  'bert': bert.HEADS,
  'dialogue': bert.HEADS,
  'mlm': ('mlm',),
  'lm': ('mlm',),
}


def build_model(model_config: Any, vocab_size: int) -> bert.Bert:
  """Returns the module of a config."""
  return bert.Bert(vocab_size=vocab_size, **model_fields(model_config))


def check(config: Any) -> None:
  """Checks the keys of a BERT."""
  settings.check_transformer(config)
  settings.expect(
    config,
    (config.train.objective == 'lm') == config.model.left_to_right,
    'train.objective',
    "'bert', 'dialogue' or 'mlm', or 'lm' with model.left_to_right=True",
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


def _check_vocabulary(config: Any, vocabulary: Vocabulary) -> None:
  if vocabulary.specials is None:
    raise ValueError(
      f'data.tokenizer={config.data.tokenizer!r} has no [CLS], [SEP] and'
      " [MASK], which model.name='bert' needs: take a WordPiece vocabulary"
    )


def _known(host_batch: Any, vocabulary: Vocabulary) -> Any:
  """Returns a batch in which words without a row are the unknown one."""
  batch = dict(host_batch)
  for name in ('window', 'other_window'):
    mark = batch[name] & transforms.UNIT_START
    batch[name] = vocabulary.known(batch[name] - mark) + mark
  return batch


def masked_tokens(
  config: Any,
  length: int,
  vocabulary: Vocabulary,
  *,
  names: tuple[str, ...] = ('mlm', 'nsp'),
  of_dialogues: bool = False,
) -> Objective:
  """Returns BERT's objective at one length, with the losses `names`.

  Rows are pairs of windows or, with `of_dialogues`, dialogues among them.
  """
  _check_vocabulary(config, vocabulary)
  wanted = config.objective
  rates = masking.Rates(
    wanted.mask_rate,
    wanted.mask_fraction,
    wanted.random_fraction,
    wanted.counting,
  )
  of_words = wanted.unit in ('word', 'span')
  stored = wanted.unit == 'stored'

  def transform(host_batch: Any, keys: Any) -> Any:
    host_batch = _known(host_batch, vocabulary)
    batch = transforms.sample_pairs(
      host_batch,
      keys,
      length=length,
      specials=vocabulary.specials,
      short_seq_prob=transforms.SHORT_SEQ_PROB,
      negatives='nsp' in names,
      units=stored,
    )
    if of_dialogues:
      from data.examples import dialogues

      batch = dialogues.choose_responses(
        batch, host_batch, keys, pad=vocabulary.specials.pad
      )
    starts = batch.pop('unit_starts', None)
    return masking.mask_units(
      batch,
      keys,
      specials=vocabulary.specials,
      vocab_size=vocabulary.size,
      rates=rates,
      max_predictions=masking.max_predictions(length, rates),
      continuations=vocabulary.continuations if of_words else None,
      longest_span=masking.LONGEST_SPAN if wanted.unit == 'span' else 1,
      unit_starts=starts,
    )

  return Objective(
    transform=transform,
    inputs=lambda batch: tuple(batch[name] for name in INPUTS),
    weights=functools.partial(objectives.bert_weights, names=names),
    losses=functools.partial(objectives.bert_losses, names=names),
    loss_names=names,
    metric_names=tuple(f'{name}_accuracy' for name in names),
    targets=lambda batch: (batch['mlm_targets'], objectives.mlm_weights(batch)),
    perplexities={'mlm': 'mlm_perplexity'},
  )


def next_tokens(config: Any, length: int, vocabulary: Vocabulary) -> Objective:
  """Returns a left-to-right BERT's objective: next tokens by its MLM head."""
  _check_vocabulary(config, vocabulary)

  def transform(host_batch: Any, keys: Any) -> Any:
    batch = transforms.sample_pairs(
      _known(host_batch, vocabulary),
      keys,
      length=length,
      specials=vocabulary.specials,
      short_seq_prob=transforms.SHORT_SEQ_PROB,
      negatives=False,
    )
    batch = transforms.predict_text(batch, specials=vocabulary.specials)
    everywhere = jnp.arange(length, dtype=jnp.int32)
    shape = batch['tokens'].shape
    return batch | {'mlm_positions': jnp.broadcast_to(everywhere, shape)}

  def losses(outputs: Any, batch: Any) -> Any:
    return objectives.lm_losses({'lm_logits': outputs['mlm_logits']}, batch)

  return Objective(
    transform=transform,
    inputs=lambda batch: tuple(batch[name] for name in INPUTS),
    weights=objectives.lm_weights,
    losses=losses,
    loss_names=('lm',),
    metric_names=('lm_accuracy',),
    targets=lambda batch: (batch['targets'], batch['loss_weights']),
    perplexities={'lm': 'perplexity'},
  )


def _with_heads(model: bert.Bert, objective: str) -> bert.Bert:
  types = model.num_token_types
  if objective == 'dialogue':
    from data.examples import dialogues

    types = dialogues.NUM_TYPES
  heads = HEADS.get(objective, model.heads)
  return model.clone(heads=heads, num_token_types=types)


def _adjust_init(model: bert.Bert, params: Any, init_config: Any) -> Any:
  del model
  return bert.rescale_init(
    params,
    stddev=init_config.stddev,
    position_stddev=init_config.position_stddev,
    self_score=init_config.self_score,
  )


def _print_samples(
  model: bert.Bert, params: Any, store: Store, length: int
) -> None:
  if not model.left_to_right:
    samples.print_filled_masks(model, params, store, length)
    return

  def predict(params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
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


def _open_examples(store: Store, length: int, **options: Any) -> Examples:
  """Opens a split of a store, as dialogues where it has any."""
  if not any(pairs.is_dialogue(store)):
    return pairs.Examples(store, length, **options)
  from data.examples import dialogues

  return dialogues.Examples(store, length, **options)


ARCHITECTURE = Architecture(
  keys=TRANSFORMER_KEYS,
  check=check,
  describe=describe_transformer,
  build_model=build_model,
  objectives={
    'bert': masked_tokens,
    'dialogue': functools.partial(masked_tokens, of_dialogues=True),
    'mlm': functools.partial(masked_tokens, names=('mlm',)),
    'lm': next_tokens,
  },
  open_examples=_open_examples,
  batch_shapes=pairs.batch_shapes,
  adjust_init=_adjust_init,
  print_samples=_print_samples,
  with_heads=_with_heads,
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
