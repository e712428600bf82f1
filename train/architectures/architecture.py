"""The interface between the engine and a family of language models."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn
from jax.sharding import Mesh
from ml_collections import ConfigDict

from configs import base
from data.examples import transforms
from data.examples.pipeline import Examples
from data.store.corpus import Store
from data.vocabulary import tokenization
from data.vocabulary.tokenizer import Tokenizer
from models.layers import Params
from train.engine import flops
from train.engine.steps import Objective
from train.run import settings

Frame = tuple[list[int], list[int]]  # ids before and after a text


class Vocabulary(NamedTuple):
  """The facts about a tokenizer that models and objectives use.

  Attributes:
    size: V, unpadded: pieces, or the words of a softmax.
    specials: ids of BERT's special tokens; None without.
    continuations: bool [V], pieces that continue a word, for whole-word masks.
    unknown: id for all words beyond V; None without.
    counts: int [V], how often each is in the training text; None if unknown.
    words: the words of a softmax; None if unknown.
  """

  size: int
  specials: transforms.Specials | None = None
  continuations: np.ndarray | jax.Array | None = None
  unknown: int | None = None
  counts: np.ndarray | None = None
  words: Sequence[str] | None = None

  @classmethod
  def of(
    cls, tokenizer: Tokenizer, counts: np.ndarray | None = None
  ) -> 'Vocabulary':
    """Returns the vocabulary of a tokenizer, with the counts of a text."""
    if not isinstance(tokenizer, tokenization.MaskingTokenizer):
      return cls(tokenizer.vocab_size, counts=counts)
    size = getattr(tokenizer, 'softmax_size', None)
    return cls(
      size=tokenizer.vocab_size if size is None else size,
      unknown=None if size is None else tokenizer.unk_id,
      specials=transforms.Specials(
        pad=tokenizer.pad_id,
        cls=tokenizer.cls_id,
        sep=tokenizer.sep_id,
        mask=tokenizer.mask_id,
        separators=tokenizer.separators,
      ),
      continuations=tokenizer.continuations(),
      counts=counts,
      words=None if size is None else tokenizer.pieces[:size],
    )

  def known(self, ids: jax.Array) -> jax.Array:
    """Returns ids, with the unknown word's in place of each beyond V."""
    if self.unknown is None:
      return ids
    return jnp.where(ids < self.size, ids, self.unknown)

  @classmethod
  def of_size(cls, size: int) -> 'Vocabulary':
    """Returns a vocabulary without a tokenizer, for plans and measurements."""
    specials = transforms.Specials(pad=0, cls=2, sep=3, mask=4)
    return cls(size, specials, jnp.zeros(size, bool), unknown=1)


class TextObjective(Objective):
  """An objective of pre-training, for rows of one length.

  Its class is all that a new one needs: the examples that it makes of a text,
  the shapes of their batches, and the heads that it puts on a model.

  Attributes:
    has_memory: whether rows keep memory from batch to batch, see `carry`.
    num_steps: of the run, before the first phase that restarts its schedule.
    teacher: another model that reads each batch of a training step, too.
  """

  has_memory = False
  num_steps = 1
  teacher: nn.Module | None = None

  def __init__(self, config: ConfigDict, length: int, vocabulary: Vocabulary):
    self.config, self.length, self.vocabulary = config, length, vocabulary

  @classmethod
  def check_beside(cls, config: ConfigDict) -> None:
    """Checks the model that `beside` gives, before a run reads its text."""

  @classmethod
  def open_examples(
    cls,
    config: ConfigDict,
    store: Store,
    length: int,
    *,
    held_out: bool,
    units: bool = False,
  ) -> Examples:
    """Opens the examples of one split; with `units`, marked by their units."""
    raise NotImplementedError

  @staticmethod
  def batch_shapes(length: int, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of a host batch."""
    raise NotImplementedError

  @staticmethod
  def token_counts(store: Store) -> np.ndarray:
    """Returns how often each token is a target in training text, int [V]."""
    return token_counts(store)

  @staticmethod
  def with_heads(model: nn.Module) -> nn.Module:
    """Returns a model with this objective's heads and types of tokens."""
    return model

  @staticmethod
  def carry_shapes(
    model: nn.Module, rows: int
  ) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of `carry`; a run begins with zeros."""
    del model, rows
    return {}

  def beside(self, mesh: Mesh, *, shapes: bool = False) -> tuple:
    """Returns the arguments of a training step after state and batch.

    They are on the devices of a mesh; with `shapes`, ShapeDtypeStructs.
    """
    del mesh, shapes
    return ()


def token_counts(store: Store) -> np.ndarray:
  """Returns how often each token of the vocabulary is in training text."""
  vocabulary = Vocabulary.of(store.tokenizer)
  counts = np.array(store.counts[: vocabulary.size])
  if vocabulary.unknown is not None:
    counts[vocabulary.unknown] += store.counts[vocabulary.size :].sum()
  return counts


def count_encoder(
  model: nn.Module, rows: int, length: int, num_inputs: int = 3
) -> int:
  """Returns the FLOPs of a module that reads `num_inputs` arrays [B, T]."""
  ids = jax.ShapeDtypeStruct((rows, length), jnp.int32)
  return flops.forward(model, (ids,) * num_inputs, vocab_size=0, train=False)


class Architecture(NamedTuple):
  """A family of models and its pre-training, as functions.

  Attributes:
    check: (config) -> None; ValueError if the family's keys make no sense.
    describe: (config.model) -> its sizes as text.
    build_model: (config.model, V) -> module.
    objectives: `train.objective` -> the class.
    packed: likewise, of rows packed with whole documents.
    adjust_init: (model, fresh parameters, config.init) -> parameters.
    print_samples: (model, parameters, store, length) -> None.
    write_outputs: (config, parameters, store, workdir) -> None; writes files of
      the family at the end of a run.
    encoder_flops: (model, rows, length) -> forward FLOPs without heads.
    default_config: () -> the config of all defaults, which has the keys that
      the family reads.
    reads_words: whether it reads words by characters, without a vocabulary.
    whole_words: whether its vocabulary is of whole words.
    needs_mask: whether its vocabulary must have [CLS], [SEP] and [MASK].
    num_unpublished: how many symbols at the end of its vocabulary have no
      published rows.
    form: how the rows of a task are framed, a name in
      `data.inputs.framing.FORMS`.
    finds_spans: whether it can be fine-tuned to find spans.
    below_head: (model, whether a task's head reads the pooler, whether tokens
      are predicted beside the task) -> the model with its own heads for these.
    frame: tokenizer -> ids before and after each text.
    text_inputs: (tokens, mask, positions), each [B, T], one text a row -> the
      first inputs of the module.
    reads_both_ways: model -> whether a token sees the tokens after it.
    usual_mfu: a guess of the share of a device's peak that training steps
      reach, from the compiler's estimates on TPUs (results/preflight.md).
  """

  check: Callable[[ConfigDict], None]
  describe: Callable[[ConfigDict], str]
  build_model: Callable[[ConfigDict, int], nn.Module]
  objectives: Mapping[str, type[TextObjective]]
  adjust_init: Callable[[nn.Module, Params, ConfigDict], Params]
  print_samples: Callable[[nn.Module, Params, Store, int], None]
  write_outputs: Callable[[ConfigDict, Params, Store, epath.Path], None] = (
    lambda *_: None
  )
  packed: Mapping[str, type[TextObjective]] = MappingProxyType({})
  encoder_flops: Callable[[nn.Module, int, int], int] = count_encoder
  default_config: Callable[[], ConfigDict] = base.get_config
  reads_words: bool = False
  whole_words: bool = False
  needs_mask: bool = False
  num_unpublished: int = 0
  form: str = 'gpt'
  finds_spans: bool = False
  below_head: Callable[[nn.Module, bool, bool], nn.Module] = (
    lambda model, pooler, lm: model
  )
  frame: Callable[[Tokenizer], Frame] = lambda _: ([], [])
  text_inputs: Callable[..., tuple[jax.Array, ...]] = lambda *inputs: inputs
  reads_both_ways: Callable[[nn.Module], bool] = lambda model: False
  usual_mfu: float = 0.4  # of BERT and GPT; results/preflight.md

  def __hash__(self) -> int:
    # jax.jit takes it as a static argument.
    return hash(self.build_model)


def check_whole_words(config: ConfigDict) -> None:
  """Checks the tokenizer of a family of whole words.

  A named store is checked when it is opened.
  """
  training = tokenization.parse_training(config.data.tokenizer)
  settings.expect(
    config,
    config.data.folder is not None
    or training is None
    or training.kind == 'words',
    'data.tokenizer',
    'train:words:N, or a vocabulary of words:'
    f' model.name={config.model.name!r} reads whole words',
  )


def describe_transformer(model_config: ConfigDict) -> str:
  """Returns the sizes of a BERT or GPT as text."""
  return f'{model_config.num_layers} layers of {model_config.embed_dim}'


def model_fields(model_config: ConfigDict) -> dict[str, Any]:
  """Returns the module's fields in `config.model`, with a parsed dtype."""
  fields = dict(model_config)
  del fields['name']
  return fields | {'dtype': jnp.dtype(fields['dtype'])}
