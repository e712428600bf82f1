"""The interface between the engine and a family of language models."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from configs import base
from data.examples import transforms
from data.examples.pipeline import Examples
from data.store.corpus import Store
from train.engine import flops
from train.engine.steps import Objective


class Vocabulary(NamedTuple):
  """The facts about a tokenizer that models and objectives use.

  Attributes:
    size: V, unpadded: pieces, or the words that a softmax knows.
    specials: ids of BERT's special tokens; None where there are none.
    continuations: bool [V], the pieces that continue a word; where whole words
      are masked.
    unknown: id of the word that stands for all beyond V; None where there are
      none.
  """

  size: int
  specials: transforms.Specials | None = None
  continuations: Any = None
  unknown: int | None = None

  @classmethod
  def of(cls, tokenizer: Any) -> 'Vocabulary':
    """Returns that of a tokenizer."""
    if hasattr(tokenizer, 'softmax_size'):
      return cls(tokenizer.softmax_size, unknown=tokenizer.unk_id)
    if not hasattr(tokenizer, 'mask_id'):
      return cls(tokenizer.vocab_size)
    return cls(
      size=tokenizer.vocab_size,
      specials=transforms.Specials(
        pad=tokenizer.pad_id,
        cls=tokenizer.cls_id,
        sep=tokenizer.sep_id,
        mask=tokenizer.mask_id,
      ),
      continuations=tokenizer.continuations(),
    )

  @classmethod
  def of_size(cls, size: int) -> 'Vocabulary':
    """Returns one without a tokenizer, to plan or to measure with."""
    specials = transforms.Specials(pad=0, cls=2, sep=3, mask=4)
    return cls(size, specials, jnp.zeros(size, bool), unknown=2)


def _no_carry(model: Any, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
  del model, rows
  return {}


def count_encoder(
  model: Any, rows: int, length: int, num_inputs: int = 3
) -> int:
  """Returns the FLOPs of a module that reads `num_inputs` arrays [B, T]."""
  ids = jax.ShapeDtypeStruct((rows, length), jnp.int32)
  return flops.forward(model, (ids,) * num_inputs, vocab_size=0, train=False)


class Architecture(NamedTuple):
  """A family of models and how it is pre-trained, as functions.

  Attributes:
    keys: of `config.model` that others do not have.
    check: (config) -> raises a ValueError if its own keys make no sense.
    describe: (config.model) -> its sizes, for people.
    build_model: (config.model, V) -> module.
    objectives: `train.objective` -> the function (config, length, vocabulary)
      -> Objective that builds it.
    open_examples: (store, length, held_out=) -> examples of one split.
    batch_shapes: (length, rows) -> shapes of a host batch.
    adjust_init: (model, fresh parameters, config.init) -> parameters.
    print_samples: (model, parameters, store, length) shows people something.
    carry_shapes: (model, rows) -> shapes of the memory that rows carry from
      batch to batch, see `Objective.carry`; zeros before the first.
    token_counts: store -> int [V], how often each is a target in training.
    with_heads: (model, train.objective) -> the model with the heads that this
      objective trains; none other has parameters.
    encoder_flops: (model, rows, length) -> FLOPs of a forward pass without
      heads and vocabulary.
    default_config: () -> the config of all defaults.
    reads_words: whether texts are read as whole words, letter by letter, so
      that no vocabulary is needed.
    needs_mask: whether its vocabulary must have [CLS], [SEP] and [MASK].
    num_unpublished: symbols that end its vocabulary and that published weights
      have no rows of.
    uses: uses of trained weights: 'embed', 'score' (each token has a
      probability), 'generate', 'fill_masks'.
    form: of the rows of a task, one of `data.inputs.framing.FORMS`.
    finds_spans: whether it can be fine-tuned to find spans.
    below_head: (model, whether the head reads the pooler) -> the model with
      what a task's head needs of its own heads.
    frame: tokenizer -> ids before and after each text.
    text_inputs: (tokens, mask, positions) of one text a row, each [B, T] ->
      the first inputs of the module.
    reads_both_ways: model -> whether a token sees the tokens after it.
  """

  keys: frozenset[str]
  check: Callable[[Any], None]
  describe: Callable[[Any], str]
  build_model: Callable[[Any, int], nn.Module]
  objectives: Mapping[str, Callable[[Any, int, Vocabulary], Objective]]
  open_examples: Callable[..., Examples]
  batch_shapes: Callable[[int, int], dict[str, jax.ShapeDtypeStruct]]
  adjust_init: Callable[[Any, Any, Any], Any]
  print_samples: Callable[[nn.Module, Any, Store, int], None]
  carry_shapes: Callable[[Any, int], dict[str, jax.ShapeDtypeStruct]] = (
    _no_carry
  )
  token_counts: Callable[[Store], np.ndarray] = lambda store: store.counts
  with_heads: Callable[[Any, str], nn.Module] = lambda model, objective: model
  encoder_flops: Callable[[Any, int, int], int] = count_encoder
  default_config: Callable[[], Any] = base.get_config
  reads_words: bool = False
  needs_mask: bool = False
  num_unpublished: int = 0
  uses: tuple[str, ...] = ()
  form: str = 'gpt'
  finds_spans: bool = False
  below_head: Callable[[Any, bool], nn.Module] = lambda model, pooler: model
  frame: Callable[[Any], tuple[list[int], list[int]]] = lambda _: ([], [])
  text_inputs: Callable[..., tuple[jax.Array, ...]] = lambda *inputs: inputs
  reads_both_ways: Callable[[Any], bool] = lambda model: False

  @property
  def has_memory(self) -> bool:
    """Whether rows read on from batch to batch, see `Objective.carry`."""
    return self.carry_shapes is not _no_carry


TRANSFORMER_KEYS = frozenset({'embed_dim', 'num_heads', 'mlp_dim'})


def describe_transformer(model_config: Any) -> str:
  """Returns the sizes of a BERT or GPT."""
  return f'{model_config.num_layers} layers of {model_config.embed_dim}'


def model_fields(model_config: Any) -> dict[str, Any]:
  """Returns the fields of a module that stand in `config.model`."""
  fields = dict(model_config)
  del fields['name']
  return fields | {'dtype': jnp.dtype(fields['dtype'])}
