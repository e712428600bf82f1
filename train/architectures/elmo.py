"""ELMo's pre-training: one text is read forwards, another backwards."""

import functools
from types import MappingProxyType

import jax
import jax.numpy as jnp
import ml_collections

from configs.sections import elmo as elmo_section
from data.examples import word_streams
from data.store.corpus import Store
from data.vocabulary.characters import MAX_CHARACTERS
from data.vocabulary.words import Words
from models import elmo
from models.layers import Params
from train.architectures import samples
from train.architectures.architecture import (
  Architecture,
  TextObjective,
  Vocabulary,
  check_whole_words,
  model_fields,
)
from train.engine import flops, objectives
from train.engine.steps import Batch, Outputs, Sums
from train.run import settings, training_phases

TEXTS = ('', 'reverse_')  # each tower's prefix of a batch's keys
CARRIED = ('cell', 'hidden')
FIELDS = (
  'num_layers',
  'lstm_dim',
  'projection_dim',
  'char_embed_dim',
  'num_highway',
  'cell_clip',
  'projection_clip',
  'dropout_rate',
  'dtype',
)


def check_elmo(config: ml_collections.ConfigDict) -> None:
  """Checks the keys that only ELMo has."""
  model = config.model
  ensure = functools.partial(settings.expect, config)
  ensure(
    model.projection_dim < model.lstm_dim,
    'model.projection_dim',
    f'less than model.lstm_dim={model.lstm_dim}',
  )
  ensure(
    model.filters and all(_is_filter(group) for group in model.filters),
    'model.filters',
    f'(width, count) pairs, widths up to {MAX_CHARACTERS}',
  )
  ensure(
    not model.characters
    or model.projection_dim < sum(count for _, count in model.filters),
    'model.projection_dim',
    'less than there are model.filters',
  )
  check_whole_words(config)
  batches = {
    phase.global_batch for phase in training_phases.check_phases(config)
  }
  if len(batches) > 1:
    raise ValueError(
      f'train.phases have global batches of {sorted(batches)}, expected one:'
      ' each row reads on where it stopped'
    )


def _is_filter(group: settings.Value) -> bool:
  return (
    isinstance(group, tuple | list)
    and len(group) == 2
    and all(isinstance(number, int) and number > 0 for number in group)
    and group[0] <= MAX_CHARACTERS
  )


def describe(model_config: ml_collections.ConfigDict) -> str:
  """Returns the sizes of an ELMo as text."""
  return (
    f'{model_config.num_layers} layers a direction of {model_config.lstm_dim}'
    f' cells, projected to {model_config.projection_dim}'
  )


def build_model(
  model_config: ml_collections.ConfigDict, vocab_size: int
) -> elmo.Elmo:
  """Returns the module of a config, ignoring other models' keys."""
  fields = model_fields(model_config)
  return elmo.Elmo(
    vocab_size=vocab_size,
    num_words=0 if fields['characters'] else vocab_size,
    max_characters=MAX_CHARACTERS,
    filters=tuple(map(tuple, fields['filters'])),
    num_samples=fields.get('num_samples', 0),  # a task has no softmax
    **{name: fields[name] for name in FIELDS},
  )


class NextWords(TextObjective):
  """The next word of two texts, one read in each direction."""

  loss_names = objectives.DIRECTIONS
  perplexities = MappingProxyType(
    {name: f'{name}_perplexity' for name in objectives.DIRECTIONS}
  )
  method = 'read_on'
  has_memory = True

  def __init__(
    self, config: ml_collections.ConfigDict, length: int, vocabulary: Vocabulary
  ):
    super().__init__(config, length, vocabulary)
    if vocabulary.unknown is None:
      raise ValueError(
        f'data.tokenizer={config.data.tokenizer!r} cuts words into pieces, but'
        " model.name='elmo' reads whole words: take train:words:N"
      )

  @classmethod
  def open_examples(
    cls,
    config: ml_collections.ConfigDict,
    store: Store,
    length: int,
    **options: bool,
  ) -> word_streams.WordStreamExamples:
    """Opens the streams of a split."""
    exponent = config.data.language_exponent
    return word_streams.WordStreamExamples(
      store, length, language_exponent=exponent, **options
    )

  batch_shapes = staticmethod(word_streams.batch_shapes)
  token_counts = staticmethod(word_streams.token_counts)

  @staticmethod
  def carry_shapes(
    model: elmo.Elmo, rows: int
  ) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of the LSTMs' states, a row of the batch first."""
    state = jax.eval_shape(lambda: elmo.empty_state(model, rows))
    return {
      name: jax.ShapeDtypeStruct((rows, *shape[:2], shape[3]), leaf.dtype)
      for name, leaf in zip(CARRIED, state, strict=True)
      for shape in [leaf.shape]
    }

  def transform(
    self, host_batch: Batch, keys_B: jax.Array
  ) -> dict[str, jax.Array]:
    """Returns both texts' words and targets; nothing is random."""
    del keys_B
    known = self.vocabulary.known
    batch = {'loss_weights': host_batch['loss_weights']}
    for text in TEXTS:
      types = host_batch[f'{text}type_ids']
      batch[f'{text}targets'] = known(host_batch[f'{text}targets'])
      if self.config.model.characters:
        batch[f'{text}type_ids'] = types
        batch[f'{text}characters'] = host_batch[f'{text}characters']
      else:
        batch[f'{text}type_ids'] = known(types)
    return batch

  def inputs(self, batch: Batch) -> tuple:
    """Returns the inputs of `models.elmo.Elmo.read_on`, both texts stacked."""
    words, characters, targets = (
      jnp.stack([batch[f'{text}{name}'] for text in TEXTS])
      if f'{TEXTS[0]}{name}' in batch
      else None
      for name in ('type_ids', 'characters', 'targets')
    )
    return words, characters, targets, *(batch[name] for name in CARRIED)

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns each direction's weight, see `objectives.bilm_weights`."""
    return objectives.bilm_weights(batch)

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns each direction's loss, see `objectives.bilm_losses`."""
    return objectives.bilm_losses(outputs, batch)

  def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns both texts' targets; both ends of a sentence count as its end."""
    targets = jnp.stack([batch[f'{text}targets'] for text in TEXTS])
    targets = jnp.where(targets == Words.begin_id, Words.end_id, targets)
    return targets, jnp.stack([batch['loss_weights']] * len(TEXTS))

  def carry(self, outputs: Outputs) -> dict[str, jax.Array]:
    """Returns the LSTMs' states."""
    return {name: outputs[name] for name in CARRIED}


def _keep_init(
  model: elmo.Elmo, params: Params, init_config: ml_collections.ConfigDict
) -> Params:
  """Returns the drawn parameters: ELMo's modules draw as its release does."""
  del model, init_config
  return params


def _encoder_flops(model: elmo.Elmo, rows: int, length: int) -> int:
  """Returns the FLOPs of both towers, which read vectors of words."""
  words = jax.ShapeDtypeStruct(
    (rows, length, model.projection_dim), model.dtype
  )
  lengths = jax.ShapeDtypeStruct((rows,), jnp.int32)
  return flops.forward(model, (words, lengths), vocab_size=0, method='embed')


ARCHITECTURE = Architecture(
  check=check_elmo,
  describe=describe,
  build_model=build_model,
  objectives={'lm': NextWords},
  adjust_init=_keep_init,
  print_samples=samples.print_likely_words,
  encoder_flops=_encoder_flops,
  default_config=elmo_section.get_config,
  reads_words=True,
  whole_words=True,
  form='elmo',
  usual_mfu=0.13,
)
