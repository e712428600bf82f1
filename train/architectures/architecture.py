"""What the engine asks of a language model, whatever it is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.examples import transforms
from data.examples.pipeline import Examples
from data.store.corpus import Store
from train.engine.steps import Objective
from train.run.training_phases import Phase


class Vocabulary(NamedTuple):
  """What models and objectives know of a tokenizer.

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


class Architecture(NamedTuple):
  """A family of models and how it is pre-trained, as functions.

  Attributes:
    keys: of `config.model` that others do not have.
    check: (config) -> raises a ValueError if its own keys make no sense.
    describe: (config.model) -> its sizes, for people.
    build_model: (config.model, V) -> module.
    build_objective: (config, length, vocabulary) -> objective.
    open_examples: (store, length, held_out=) -> examples of one split.
    batch_shapes: (length, rows) -> shapes of a host batch.
    adjust_init: (model, fresh parameters, config.init) -> parameters.
    num_parameters: (parameters, V) -> their number as published.
    step_flops: (config, phase, V) -> model FLOPs of a training step.
    print_samples: (model, parameters, store, length) shows people something.
    carry_shapes: (model, rows) -> shapes of what goes from one batch to the
      next, see `Objective.carry`; zeros before the first.
    token_counts: store -> int [V], how often each is a target in training.
    with_heads: (model, train.objective) -> the model with the heads that this
      objective trains; none other has parameters.
    reads_words: whether texts are read as whole words, letter by letter, so
      that no vocabulary is needed.
    uses: uses of trained weights: 'embed', 'score' (each token has a
      probability), 'generate', 'fill_masks'.
    frame: tokenizer -> ids before and after each text.
    text_inputs: (tokens, mask, positions) of one text a row, each [B, T] ->
      the first inputs of the module.
    reads_both_ways: model -> whether a token sees the tokens after it.
  """

  keys: frozenset[str]
  check: Callable[[Any], None]
  describe: Callable[[Any], str]
  build_model: Callable[[Any, int], nn.Module]
  build_objective: Callable[[Any, int, Vocabulary], Objective]
  open_examples: Callable[..., Examples]
  batch_shapes: Callable[[int, int], dict[str, jax.ShapeDtypeStruct]]
  adjust_init: Callable[[Any, Any, Any], Any]
  num_parameters: Callable[[Any, int], int]
  step_flops: Callable[[Any, Phase, int], int]
  print_samples: Callable[[nn.Module, Any, Store, int], None]
  carry_shapes: Callable[[Any, int], dict[str, jax.ShapeDtypeStruct]] = (
    lambda model, rows: {}
  )
  token_counts: Callable[[Store], np.ndarray] = lambda store: store.counts
  with_heads: Callable[[Any, str], nn.Module] = lambda model, objective: model
  reads_words: bool = False
  uses: tuple[str, ...] = ()
  frame: Callable[[Any], tuple[list[int], list[int]]] = lambda _: ([], [])
  text_inputs: Callable[..., tuple[jax.Array, ...]] = lambda *inputs: inputs
  reads_both_ways: Callable[[Any], bool] = lambda model: False


def expect_objective(config: Any, *names: str) -> None:
  """Raises a ValueError if `train.objective` is none of the names."""
  found = config.train.objective
  if found not in names:
    raise ValueError(
      f'train.objective={found!r}: model.name={config.model.name!r} is trained'
      f' with {" or ".join(map(repr, names))}'
    )


TRANSFORMER_KEYS = frozenset({'embed_dim', 'num_heads', 'mlp_dim'})


def describe_transformer(model_config: Any) -> str:
  """Returns the sizes of a BERT or GPT."""
  return f'{model_config.num_layers} layers of {model_config.embed_dim}'


def model_fields(model_config: Any) -> dict[str, Any]:
  """Returns the fields of a module that stand in `config.model`."""
  fields = dict(model_config)
  del fields['name']
  return fields | {'dtype': jnp.dtype(fields['dtype'])}
