"""BERT's pre-training: masked tokens and next sentences."""

from typing import Any

from data import pairs, transforms
from models import bert
from train import objectives, samples, settings
from train.architecture import (
  TRANSFORMER_KEYS,
  Architecture,
  Vocabulary,
  describe_transformer,
  expect_objective,
  model_fields,
)
from train.settings import Phase
from train.steps import Objective

INPUTS = (
  'tokens',
  'token_mask',
  'token_types',
  'positions',
  'mlm_positions',
)


def build_model(model_config: Any, vocab_size: int) -> bert.Bert:
  """Returns the module of a config."""
  return bert.Bert(vocab_size=vocab_size, **model_fields(model_config))


def build_objective(
  config: Any, length: int, vocabulary: Vocabulary
) -> Objective:
  """Returns the objective at one length.

  Raises:
    ValueError: if another is asked for, or the tokenizer has no mask.
  """
  expect_objective(config, 'bert')
  if vocabulary.specials is None:
    raise ValueError(
      f'data.tokenizer={config.data.tokenizer!r} has no [CLS], [SEP] and'
      " [MASK], which model.name='bert' needs: take a WordPiece vocabulary"
    )
  rates = config.objective

  def transform(host_batch: Any, keys: Any) -> Any:
    batch = transforms.sample_pairs(
      host_batch,
      keys,
      length=length,
      specials=vocabulary.specials,
      short_rate=transforms.SHORT_RATE,
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
    inputs=lambda batch: tuple(batch[name] for name in INPUTS),
    weights=objectives.bert_weights,
    losses=objectives.bert_losses,
    loss_names=('mlm', 'nsp'),
    metric_names=('mlm_accuracy', 'nsp_accuracy'),
    targets=lambda batch: (
      batch['mlm_targets'],
      objectives.mlm_weights(batch),
    ),
    perplexities={'mlm': 'mlm_perplexity'},
  )


def _adjust_init(model: bert.Bert, params: Any, init_config: Any) -> Any:
  del model
  return bert.rescale_init(
    params,
    stddev=init_config.stddev,
    position_stddev=init_config.position_stddev,
    self_score=init_config.self_score,
  )


def _step_flops(config: Any, phase: Phase, vocab_size: int) -> int:
  rate = config.objective.mask_rate
  return bert.train_flops(
    batch=phase.global_batch,
    length=phase.length,
    predictions=transforms.max_predictions(phase.length, rate),
    vocab_size=vocab_size,
    num_layers=config.model.num_layers,
    embed_dim=config.model.embed_dim,
    mlp_dim=config.model.mlp_dim,
  )


ARCHITECTURE = Architecture(
  keys=TRANSFORMER_KEYS,
  check=settings.check_transformer,
  describe=describe_transformer,
  build_model=build_model,
  build_objective=build_objective,
  open_examples=pairs.Examples,
  batch_shapes=pairs.batch_shapes,
  adjust_init=_adjust_init,
  num_parameters=bert.num_parameters,
  step_flops=_step_flops,
  print_samples=samples.print_filled_masks,
)
