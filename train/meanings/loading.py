"""Models opened and checked before the first is loaded."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp

from models.pretrained.weights import Weights
from train.params import opened, trained
from train.vectors.request import Request
from train.vectors.text_plan import TextPlan


def load_each(
  names: Sequence[str],
  tokenizer: str | None,
  request: Request,
  dtype: str = 'float32',
  *,
  elmo: bool = False,
) -> Iterator[Weights]:
  """Returns BERTs, GPTs and GPT-2s of workdirs or publishers, loaded in turn.

  All are opened and checked at once; each is loaded when it is asked for.
  `tokenizer` is of the first, see `opened.open_weights`; all must be able to
  answer `request`. Raises ValueError for a model of another family; with
  `elmo` an ELMo will do, too.
  """
  opened_weights = [
    opened.open_weights(name, None if number else tokenizer)
    for number, name in enumerate(names)
  ]
  for weights in opened_weights:
    if weights.name in trained.TRANSFORMERS:
      weights.check_complete()
      TextPlan(weights, request)
    elif weights.reads_words and not elmo:
      raise ValueError(
        f'{weights.folder} holds an {weights.name}, which has vectors of words'
        ' alone, and no positions; expected'
        f' {" or ".join(trained.TRANSFORMERS)}'
      )

  def load(weights: Weights) -> Weights:
    if weights.reads_words:
      model, params, _ = trained.load_elmo(weights)
      found = weights._replace(model=model, params=params)
    else:
      found = trained.load(weights, expected=trained.TRANSFORMERS)
    return found._replace(model=found.model.clone(dtype=jnp.dtype(dtype)))

  return map(load, opened_weights)
