"""Turns a config into a model and its objective."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from data import transforms
from data.tokenization import WordPiece
from models import bert
from train import objectives
from train.steps import Objective


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


def build_adjustment(init_config: Any) -> Callable[[Any], Any]:
  """Returns what is done to freshly drawn parameters, see `init.stddev`."""
  return functools.partial(
    bert.rescale_init,
    stddev=init_config.stddev,
    position_stddev=init_config.position_stddev,
  )


def build_objective(
  config: Any, length: int, tokenizer: WordPiece
) -> Objective:
  """Returns the objective that `train.objective` names, at one length.

  Raises:
    ValueError: if there is no such objective.
  """
  if config.train.objective != 'bert':
    raise ValueError(
      f'train.objective={config.train.objective!r}: expected bert'
    )
  specials = transforms.Specials(
    pad=tokenizer.pad_id,
    cls=tokenizer.cls_id,
    sep=tokenizer.sep_id,
    mask=tokenizer.mask_id,
  )
  continuations = (
    tokenizer.continuations() if config.objective.whole_word else None
  )
  return bert_objective(
    config.objective, length, specials, tokenizer.vocab_size, continuations
  )


def bert_objective(
  rates: Any,
  length: int,
  specials: transforms.Specials,
  vocab_size: int,
  continuations: Any = None,
) -> Objective:
  """Returns BERT's objective: masked tokens and next sentences.

  Args:
    rates: with mask_rate, mask_fraction, random_fraction and short_rate.
    length: T.
    specials: ids of the special tokens.
    vocab_size: V, unpadded.
    continuations: bool [V], to mask whole words.
  """

  def transform(host_batch: Any, keys: Any) -> Any:
    batch = transforms.sample_pairs(
      host_batch,
      keys,
      length=length,
      specials=specials,
      short_rate=rates.short_rate,
    )
    return transforms.mask_tokens(
      batch,
      keys,
      specials=specials,
      vocab_size=vocab_size,
      mask_rate=rates.mask_rate,
      max_predictions=transforms.max_predictions(length, rates.mask_rate),
      mask_fraction=rates.mask_fraction,
      random_fraction=rates.random_fraction,
      continuations=continuations,
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
