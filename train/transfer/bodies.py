"""The table of ELMo's task models, bodies above the vectors of words.

A body's module is imported when it is built: the table is read by all tasks.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn


@dataclasses.dataclass(frozen=True)
class Body:
  """A task model above the vectors of words.

  Attributes:
    build: (number of outputs, section `model`) -> module.
    reads: kinds of tasks -> numbers of texts an example may have.
    has_layers: whether `model.num_layers` may be other than 1.
    share: (module, name of a task) -> module of one of several tasks; None:
      the model is of one task only.
    variants: values of `model.variant`.
    mark_dim: see `reader.Reader`.
    char_dropout_rates: likewise.
    arrays: argument of the module -> array of a batch, besides the words.
    unit_vectors: variants that scale vectors of words to length 1.
    sums_words: variants of a tagger whose loss of a sentence is the sum over
      its words, not their mean.
    tells_words: the module's field `head_dim` is the number of features of the
      words' own vectors, which come first.
  """

  build: Callable[[int, Any], nn.Module]
  reads: Mapping[str, tuple[int, ...]]
  has_layers: bool = False
  share: Callable[[Any, str], nn.Module] | None = None
  variants: tuple[str, ...] = ('published',)
  mark_dim: int = 0
  char_dropout_rates: tuple[float, float] = (0.0, 0.0)
  arrays: Mapping[str, str] = dataclasses.field(default_factory=dict)
  unit_vectors: tuple[str, ...] = ()
  sums_words: tuple[str, ...] = ()
  tells_words: bool = False


def _build_bcn(num_outputs: int, model: Any) -> nn.Module:
  from models.elmo_tasks import bcn

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
  from models.elmo_tasks import esim

  return esim.Esim(
    num_outputs,
    lstm_dim=model.lstm_dim,
    hidden_dim=model.hidden_dim,
    dropout_rate=model.dropout_rate,
    dtype=jnp.dtype(model.dtype),
  )


def _build_tagger(num_outputs: int, model: Any) -> nn.Module:
  from models.elmo_tasks import bilstm_crf

  return bilstm_crf.BilstmTagger(
    num_outputs,
    lstm_dim=model.lstm_dim,
    num_layers=model.num_layers,
    dropout_rate=model.dropout_rate,
    dtype=jnp.dtype(model.dtype),
  )


def _build_attention(num_outputs: int, model: Any) -> nn.Module:
  from models.elmo_tasks import bilstm_attention

  return bilstm_attention.BilstmAttention(
    num_outputs,
    hidden_classifier=num_outputs > 1,
    lstm_dim=model.lstm_dim,
    num_layers=model.num_layers,
    classifier_dim=model.hidden_dim,
    dropout_rate=model.dropout_rate,
    dtype=jnp.dtype(model.dtype),
  )


def _share_attention(model: nn.Module, task: str) -> nn.Module:
  from models.elmo_tasks import bilstm_attention

  return bilstm_attention.SharedBilstmAttention(model, task)


def _build_srl(num_outputs: int, model: Any) -> nn.Module:
  from models.elmo_tasks import deep_srl

  return deep_srl.DeepSrl(
    num_outputs,
    lstm_dim=model.lstm_dim,
    num_layers=model.num_layers,
    dropout_rate=model.dropout_rate,
    variant=model.variant,
    dtype=jnp.dtype(model.dtype),
  )


# `model.variant` of an e2e_coref -> its fields, see `EndToEndCoref`.
_COREF = {
  'published': {'variant': '2017'},
  '2018': {'variant': '2018', 'max_width': 30, 'max_antecedents': 50},
  'allennlp': {'variant': 'allennlp', 'max_antecedents': 100},
}


def _build_coref(num_outputs: int, model: Any) -> nn.Module:
  from models.elmo_tasks.coref import model as coref

  return coref.EndToEndCoref(
    num_outputs,
    **_COREF[model.variant],
    lstm_dim=model.lstm_dim,
    num_layers=model.num_layers,
    hidden_dim=model.hidden_dim,
    dropout_rate=model.dropout_rate,
    # kentonl/e2e-coref: of the vectors of words 0.5, elsewhere 0.2.
    lexical_dropout_rate=0.5 if model.dropout_rate else 0.0,
    dtype=jnp.dtype(model.dtype),
  )


def _build_bidaf_plus(num_outputs: int, model: Any) -> nn.Module:
  from models.elmo_tasks import bidaf_plus

  del num_outputs
  return bidaf_plus.BidafPlus(
    gru_dim=model.lstm_dim,
    dropout_rate=model.dropout_rate,
    dtype=jnp.dtype(model.dtype),
  )


def _build_bidaf(num_outputs: int, model: Any) -> nn.Module:
  from models.elmo_tasks import bidaf

  del num_outputs
  return bidaf.Bidaf(
    lstm_dim=model.lstm_dim,
    num_layers=model.num_layers,
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
    share=_share_attention,
  ),
  'deep_srl': Body(
    _build_srl,
    {'roles': (1,)},
    has_layers=True,
    variants=('published', 'allennlp', 'allennlp_elmo'),
    sums_words=('published',),
    mark_dim=100,  # He et al. 2017 and AllenNLP 0.9.0 alike
  ),
  'e2e_coref': Body(
    _build_coref,
    {'coreference': (1,)},
    has_layers=True,
    variants=tuple(_COREF),
    arrays={
      'sentences_BT': 'sentences',
      'sentence_rows_BRV': 'sentence_rows',
      'speakers_BT': 'speakers',
      'genres_B': 'genres',
    },
    unit_vectors=('published', '2018'),
    tells_words=True,
  ),
  'bidaf_plus': Body(
    _build_bidaf_plus, {'span': (2,)}, char_dropout_rates=(0.2, 0.0)
  ),
  'bidaf': Body(
    _build_bidaf,
    {'span': (2,)},
    has_layers=True,
    char_dropout_rates=(0.0, 0.2),
  ),
}
