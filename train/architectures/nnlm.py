"""Pre-training on the next token: the network of Bengio et al. 2003."""

import ml_collections

from configs.sections import gpt as gpt_section
from models.baselines import nnlm
from models.layers import Params
from train.architectures import gpt
from train.architectures.architecture import Vocabulary, model_fields
from train.engine.steps import Batch, Outputs, Sums
from train.run import settings, training_phases

FIELDS = [
  'embed_dim',
  'hidden_dim',
  'order',
  'direct',
  'max_length',
  'num_samples',
  'dropout_rate',
  'dtype',
]


def check_nnlm(config: ml_collections.ConfigDict) -> None:
  """Checks the keys that only this network has."""
  settings.expect(
    config,
    isinstance(config.model.order, int) and config.model.order > 1,
    'model.order',
    '2 or more: the predicted word, and a word before it',
  )
  settings.expect(
    config,
    config.model.hidden_dim or config.model.direct,
    'model.hidden_dim',
    'a positive number, or model.direct=True',
  )
  training_phases.check_lengths(config)


def describe(model_config: ml_collections.ConfigDict) -> str:
  """Returns the sizes of a network as text."""
  direct = 'with' if model_config.direct else 'without'
  return (
    f'{model_config.order}-grams, {model_config.hidden_dim} hidden units on'
    f' vectors of {model_config.embed_dim}, {direct} direct connections'
  )


def build_model(
  model_config: ml_collections.ConfigDict, vocab_size: int
) -> nnlm.Nnlm:
  """Returns the module of a config, ignoring other models' keys."""
  # Runs older than the key had no dropout.
  fields = {'dropout_rate': 0.0} | model_fields(model_config)
  return nnlm.Nnlm(
    vocab_size=vocab_size, **{name: fields[name] for name in FIELDS}
  )


class NextTokensDrawn(gpt.NextTokens):
  """The next token, among all or, while training, among some that are drawn."""

  def __init__(
    self, config: ml_collections.ConfigDict, length: int, vocabulary: Vocabulary
  ):
    super().__init__(config, length, vocabulary)
    self._draws = bool(config.model.num_samples)
    if self._draws:
      self.metric_names, self.method = (), 'score'

  def inputs(self, batch: Batch) -> tuple:
    """Returns the inputs of the module, or of its `score`."""
    if not self._draws:
      return super().inputs(batch)
    return tuple(batch[name] for name in ('tokens', 'token_mask', 'targets'))

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the loss, and the accuracy where nothing is drawn."""
    if not self._draws:
      return super().losses(outputs, batch)
    weights = batch['loss_weights']
    total = (outputs['losses'] * weights).sum()
    return {'lm': (total, weights.sum())}, {}


def _adjust_init(
  model: nnlm.Nnlm, params: Params, init_config: ml_collections.ConfigDict
) -> Params:
  del model
  return nnlm.rescale_init(params, stddev=init_config.stddev)


ARCHITECTURE = gpt.LSTM._replace(
  check=check_nnlm,
  describe=describe,
  build_model=build_model,
  objectives={'lm': NextTokensDrawn},
  adjust_init=_adjust_init,
  default_config=gpt_section.get_nnlm_config,
)
