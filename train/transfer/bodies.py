"""The table of ELMo's task models, bodies above the vectors of words."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from models.elmo_tasks import bcn, bilstm_attention, bilstm_crf, esim


@dataclasses.dataclass(frozen=True)
class Body:
  """A task model above the vectors of words.

  Attributes:
    build: (number of outputs, section `model`) -> module.
    reads: kinds of tasks -> numbers of texts an example may have.
    has_layers: whether `model.num_layers` may be other than 1.
    share: (module, name of a task) -> module of one of several tasks; None:
      the model is of one task only.
  """

  build: Callable[[int, Any], nn.Module]
  reads: Mapping[str, tuple[int, ...]]
  has_layers: bool = False
  share: Callable[[Any, str], nn.Module] | None = None


def _build_bcn(num_outputs: int, model: Any) -> nn.Module:
  F = model.lstm_dim
  return bcn.Bcn(
    num_outputs,
    hidden_dim=model.hidden_dim,
    lstm_dim=F,
    maxout_dims=(4 * F, 2 * F),  # 1,200 and 600 of 300, as published
    input_dropout_rate=model.dropout_rate,
    dtype=jnp.dtype(model.dtype),
  )


def _build_esim(num_outputs: int, model: Any) -> nn.Module:
  return esim.Esim(
    num_outputs,
    lstm_dim=model.lstm_dim,
    hidden_dim=model.hidden_dim,
    dropout_rate=model.dropout_rate,
    dtype=jnp.dtype(model.dtype),
  )


def _build_tagger(num_outputs: int, model: Any) -> nn.Module:
  return bilstm_crf.BilstmTagger(
    num_outputs,
    lstm_dim=model.lstm_dim,
    num_layers=model.num_layers,
    dropout_rate=model.dropout_rate,
    dtype=jnp.dtype(model.dtype),
  )


def _build_attention(num_outputs: int, model: Any) -> nn.Module:
  return bilstm_attention.BilstmAttention(
    num_outputs,
    hidden_classifier=num_outputs > 1,
    lstm_dim=model.lstm_dim,
    num_layers=model.num_layers,
    classifier_dim=model.hidden_dim,
    dropout_rate=model.dropout_rate,
    dtype=jnp.dtype(model.dtype),
  )


BODIES = {
  'bcn': Body(_build_bcn, {'classification': (1,), 'regression': (1,)}),
  'esim': Body(
    _build_esim, {'classification': (2,), 'regression': (2,), 'choice': (2,)}
  ),
  'bilstm_crf': Body(_build_tagger, {'tagging': (1,)}, has_layers=True),
  'bilstm_attention': Body(
    _build_attention,
    {'classification': (1, 2), 'regression': (1, 2), 'choice': (2,)},
    has_layers=True,
    share=bilstm_attention.SharedBilstmAttention,
  ),
}
