"""Pre-training on the next token: GPT, GPT-2 and an LSTM."""

from types import MappingProxyType

import jax
import jax.numpy as jnp
import ml_collections

from configs.sections import gpt as gpt_section
from data.by_name import ByName
from data.examples import streams, transforms
from data.store.corpus import Store
from data.vocabulary import bpe
from models import gpt, lstm_lm
from models.layers import Params
from train.architectures import samples
from train.architectures.architecture import (
  Architecture,
  TextObjective,
  describe_transformer,
  model_fields,
)
from train.engine import objectives
from train.engine.steps import Batch, Outputs, Sums
from train.run import settings, training_phases

INPUTS = ('tokens', 'token_mask', 'positions')
LSTM_FIELDS = [
  'num_layers',
  'embed_dim',
  'lstm_dim',
  'max_length',
  'dropout_rate',
  'dtype',
]


def build_model(
  model_config: ml_collections.ConfigDict, vocab_size: int
) -> gpt.Gpt:
  """Returns the module of a config."""
  # A fine-tuning's config has the keys of a BERT, too.
  known = gpt.Gpt.__dataclass_fields__
  fields = {
    name: value
    for name, value in model_fields(model_config).items()
    if name in known
  }
  is_pre = model_config.name == 'gpt2' or model_config.get('norm') == 'pre'
  return gpt.Gpt(vocab_size=vocab_size, pre_norm=is_pre, **fields)


def build_lstm(
  model_config: ml_collections.ConfigDict, vocab_size: int
) -> lstm_lm.LstmLm:
  """Returns the module of a config, ignoring other models' keys."""
  fields = model_fields(model_config)
  return lstm_lm.LstmLm(
    vocab_size=vocab_size, **{name: fields[name] for name in LSTM_FIELDS}
  )


class NextTokens(TextObjective):
  """The next token at each position."""

  loss_names = ('lm',)
  metric_names = ('lm_accuracy',)
  perplexities = MappingProxyType({'lm': 'perplexity'})

  @classmethod
  def open_examples(
    cls,
    config: ml_collections.ConfigDict,
    store: Store,
    length: int,
    **options: bool | int,
  ) -> streams.StreamExamples:
    """Opens the windows of a split."""
    exponent = config.data.language_exponent
    return streams.StreamExamples(
      store, length, language_exponent=exponent, **options
    )

  batch_shapes = staticmethod(streams.batch_shapes)

  def transform(self, host_batch: Batch, keys_B: jax.Array) -> Batch:
    """Returns rows with a target at each place; nothing is random."""
    del keys_B
    window = self.vocabulary.known(host_batch['window'])
    host_batch = {**host_batch, 'window': window}
    return transforms.next_tokens(host_batch, length=self.length)

  def inputs(self, batch: Batch) -> tuple:
    """Returns the inputs of `models.gpt.Gpt`."""
    return tuple(batch[name] for name in INPUTS)

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns the loss's weight, see `objectives.lm_weights`."""
    return objectives.lm_weights(batch)

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the loss and the accuracy, see `objectives.lm_losses`."""
    return objectives.lm_losses(outputs, batch)

  def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns the next tokens and their weights, [B, T]."""
    return batch['targets'], batch['loss_weights']


class NextTokensOfStream(NextTokens):
  """The next token of one stream, where end-of-text ends each document."""

  follows_end_of_text = True  # so does the first token of each

  @classmethod
  def open_examples(
    cls,
    config: ml_collections.ConfigDict,
    store: Store,
    length: int,
    **options: bool,
  ) -> streams.StreamExamples:
    """Opens the windows of a split."""
    end_of_text = getattr(store.tokenizer, 'end_of_text_id', None)
    if end_of_text is None:
      raise ValueError(
        f'the tokenizer of {store.folder} has no end-of-text token, by which'
        " model.name='gpt2' joins documents: prepare the text with"
        ' --tokenizer train:bytebpe:N, or with a published encoder.json'
      )
    return super().open_examples(
      config, store, length, end_of_text=end_of_text, **options
    )


def _adjust_init(
  model: gpt.Gpt, params: Params, init_config: ml_collections.ConfigDict
) -> Params:
  return gpt.rescale_init(
    model,
    params,
    stddev=init_config.stddev,
    position_stddev=init_config.position_stddev,
  )


def _adjust_lstm(
  model: lstm_lm.LstmLm, params: Params, init_config: ml_collections.ConfigDict
) -> Params:
  del model
  return lstm_lm.rescale_init(params, stddev=init_config.stddev)


def _describe_lstm(model_config: ml_collections.ConfigDict) -> str:
  return (
    f'LSTM layers: {model_config.num_layers}, of {model_config.lstm_dim} cells'
    f' projected to {model_config.embed_dim}'
  )


def _print_lstm_samples(
  model: lstm_lm.LstmLm, params: Params, store: Store, length: int
) -> None:
  def predict(params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    place = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    outputs = model.apply({'params': params}, tokens, mask, place, train=False)
    return outputs['lm_logits']

  samples.print_guesses(predict, params, store, None, length)


GPT = Architecture(
  check=settings.check_transformer,
  describe=describe_transformer,
  build_model=build_model,
  objectives={'lm': NextTokens},
  packed=ByName({'lm': 'train.architectures.packed:PackedNextTokens'}),
  adjust_init=_adjust_init,
  print_samples=samples.print_continuations,
  default_config=gpt_section.get_config,
  num_unpublished=len(bpe.SPECIALS),
)
GPT2 = GPT._replace(
  objectives={'lm': NextTokensOfStream},
  packed=ByName({'lm': 'train.architectures.packed:PackedNextTokensOfStream'}),
  default_config=gpt_section.get_gpt2_config,
  num_unpublished=0,
)
LSTM = GPT._replace(
  check=training_phases.check_lengths,
  describe=_describe_lstm,
  build_model=build_lstm,
  packed={},
  adjust_init=_adjust_lstm,
  print_samples=_print_lstm_samples,
  default_config=gpt_section.get_lstm_config,
  num_unpublished=0,
  usual_mfu=0.13,  # as ELMo's, which reads word after word, too
)
