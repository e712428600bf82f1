"""GPT's and GPT-2's pre-training: the next token of contiguous text."""

from typing import Any

from data import streams, transforms
from data.corpus import Store
from models import gpt
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

INPUTS = ('tokens', 'token_mask', 'positions')


def build_model(model_config: Any, vocab_size: int) -> gpt.Gpt:
  """Returns the module of a config."""
  return gpt.Gpt(
    vocab_size=vocab_size,
    pre_norm=model_config.name == 'gpt2',
    **model_fields(model_config),
  )


def build_objective(
  config: Any, length: int, vocabulary: Vocabulary
) -> Objective:
  """Returns the objective at one length.

  Raises:
    ValueError: if another is asked for.
  """
  expect_objective(config, 'lm')
  del vocabulary

  def transform(host_batch: Any, keys: Any) -> Any:
    del keys  # nothing is left to chance
    return transforms.next_tokens(host_batch, length=length)

  return Objective(
    transform=transform,
    inputs=lambda batch: tuple(batch[name] for name in INPUTS),
    weights=objectives.lm_weights,
    losses=objectives.lm_losses,
    loss_names=('lm',),
    metric_names=('lm_accuracy',),
    targets=lambda batch: (batch['targets'], batch['loss_weights']),
    perplexities={'lm': 'perplexity'},
  )


def _open_apart(
  store: Store, length: int, *, held_out: bool
) -> streams.Examples:
  """Returns windows that stay inside documents."""
  if hasattr(store.tokenizer, 'softmax_size'):
    raise ValueError(
      f"{store.folder} is a store of whole words, which model.name='gpt' has no"
      ' softmax for: prepare the text with --tokenizer train:bpe:N, or train'
      " with data.tokenizer='train:bpe:N'"
    )
  return streams.Examples(store, length, held_out=held_out)


def _open_joined(
  store: Store, length: int, *, held_out: bool
) -> streams.Examples:
  """Returns windows of one stream in which end-of-text ends each document."""
  end_of_text = getattr(store.tokenizer, 'end_of_text_id', None)
  if end_of_text is None:
    raise ValueError(
      f'the tokenizer of {store.folder} has no end-of-text token, by which'
      " model.name='gpt2' joins documents: prepare the text with"
      ' --tokenizer train:bytebpe:N, or with a published encoder.json'
    )
  return streams.Examples(
    store, length, held_out=held_out, end_of_text=end_of_text
  )


def _adjust_init(model: gpt.Gpt, params: Any, init_config: Any) -> Any:
  return gpt.rescale_init(
    model,
    params,
    stddev=init_config.stddev,
    position_stddev=init_config.position_stddev,
  )


def _step_flops(config: Any, phase: Phase, vocab_size: int) -> int:
  return gpt.train_flops(
    batch=phase.global_batch,
    length=phase.length,
    vocab_size=vocab_size,
    num_layers=config.model.num_layers,
    embed_dim=config.model.embed_dim,
    mlp_dim=config.model.mlp_dim,
  )


GPT = Architecture(
  keys=TRANSFORMER_KEYS,
  check=settings.check_transformer,
  describe=describe_transformer,
  build_model=build_model,
  build_objective=build_objective,
  open_examples=_open_apart,
  batch_shapes=streams.batch_shapes,
  adjust_init=_adjust_init,
  num_parameters=gpt.num_parameters,
  step_flops=_step_flops,
  print_samples=samples.print_continuations,
)
GPT2 = GPT._replace(open_examples=_open_joined)
