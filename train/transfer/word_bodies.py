"""ELMo's task models: for each a program with its inputs and its module.

The module (body) reads vectors of words. `train.transfer.bodies` has the table
of these programs.
"""

import jax.numpy as jnp
import ml_collections
import numpy as np
from flax import linen as nn

from models.elmo_tasks import (
  bcn,
  bidaf,
  bidaf_plus,
  bilstm_attention,
  bilstm_crf,
  deep_srl,
  esim,
)
from models.elmo_tasks.coref import loss as coref_loss
from models.elmo_tasks.coref import model as coref
from train.transfer.task_losses import Array, Batch, Outputs
from train.transfer.word_program import WordProgram


def _common(config: ml_collections.ConfigDict) -> dict[str, float | np.dtype]:
  """Returns the fields of all bodies."""
  model = config.model
  return {
    'dropout_rate': model.dropout_rate,
    'dtype': jnp.dtype(model.dtype),
  }


class Bcn(WordProgram):
  """A biattentive classification network."""

  reads = {'classification': (1,), 'regression': (1,)}

  def build_body(self) -> nn.Module:  # noqa: D102
    model = self.config.model
    F = model.lstm_dim
    return bcn.Bcn(
      self.num_outputs,
      hidden_dim=model.hidden_dim,
      lstm_dim=F,
      maxout_dims=(4 * F, 2 * F),  # 1,200 and 600 of 300, as published
      input_dropout_rate=model.dropout_rate,
      dtype=jnp.dtype(model.dtype),
    )


class Esim(WordProgram):
  """An enhanced sequential inference model."""

  reads = {'classification': (2,), 'regression': (2,), 'choice': (2,)}

  def build_body(self) -> nn.Module:  # noqa: D102
    model = self.config.model
    return esim.Esim(
      self.num_outputs,
      lstm_dim=model.lstm_dim,
      hidden_dim=model.hidden_dim,
      **_common(self.config),
    )


class BilstmCrf(WordProgram):
  """A BiLSTM that tags words, perhaps under a CRF."""

  reads = {'tagging': (1,)}
  has_layers = True

  def build_body(self) -> nn.Module:  # noqa: D102
    model = self.config.model
    return bilstm_crf.BilstmTagger(
      self.num_outputs,
      lstm_dim=model.lstm_dim,
      num_layers=model.num_layers,
      **_common(self.config),
    )


class BilstmAttention(WordProgram):
  """GLUE's baseline of ELMo, for one task or several."""

  reads = {'classification': (1, 2), 'regression': (1, 2), 'choice': (2,)}
  has_layers = True
  takes_several = True

  def build_body(self) -> nn.Module:  # noqa: D102
    model = self.config.model
    body = bilstm_attention.BilstmAttention(
      self.num_outputs,
      hidden_classifier=self.num_outputs > 1,
      lstm_dim=model.lstm_dim,
      num_layers=model.num_layers,
      classifier_dim=model.hidden_dim,
      **_common(self.config),
    )
    if not self.config.task.names:
      return body
    return bilstm_attention.SharedBilstmAttention(body, self.task.name)


class DeepSrl(WordProgram):
  """Alternating LSTMs that tag the words of a predicate's sentence."""

  reads = {'roles': (1,)}
  has_layers = True
  variants = ('published', 'allennlp', 'allennlp_elmo')
  mark_dim = 100  # He et al. 2017 and AllenNLP 0.9.0 alike

  @property
  def sums_words(self) -> bool:
    """Whether the loss of a sentence is the sum over its words."""
    return self.config.model.variant == 'published'

  def build_body(self) -> nn.Module:  # noqa: D102
    model = self.config.model
    return deep_srl.DeepSrl(
      self.num_outputs,
      lstm_dim=model.lstm_dim,
      num_layers=model.num_layers,
      variant=model.variant,
      **_common(self.config),
    )


# `model.variant` of an e2e_coref -> its fields, see `EndToEndCoref`.
_COREF = {
  'published': {'variant': '2017'},
  '2018': {'variant': '2018', 'max_width': 30, 'max_antecedents': 50},
  'allennlp': {'variant': 'allennlp', 'max_antecedents': 100},
}


class EndToEndCoref(WordProgram):
  """Documents, the clusters of their mentions."""

  reads = {'coreference': (1,)}
  has_layers = True
  variants = tuple(_COREF)
  unit_variants = ('published', '2018')
  arrays = {
    'sentences_BT': 'sentences',
    'sentence_rows_BRV': 'sentence_rows',
    'speakers_BT': 'speakers',
    'genres_B': 'genres',
  }

  def build_body(self) -> nn.Module:  # noqa: D102
    model = self.config.model
    # The features of the words' own vectors, which come first.
    head_dim = self.table.dim + sum(count for _, count in model.filters)
    return coref.EndToEndCoref(
      self.num_outputs,
      **_COREF[model.variant],
      head_dim=head_dim,
      lstm_dim=model.lstm_dim,
      num_layers=model.num_layers,
      hidden_dim=model.hidden_dim,
      # kentonl/e2e-coref: of the vectors of words 0.5, elsewhere 0.2.
      lexical_dropout_rate=0.5 if model.dropout_rate else 0.0,
      **_common(self.config),
    )

  def label_losses(self, outputs: Outputs, batch: Batch) -> tuple[Array, None]:
    """Returns the negative log-likelihoods of the documents' clusters."""
    return coref_loss.antecedent_losses(outputs, batch['labels']), None

  def answers(self, outputs: Outputs, batch: Batch) -> tuple[Array, Array]:
    """Returns the mentions with their antecedents, and how many are real."""
    del batch
    lengths = (outputs['starts'] >= 0).sum(axis=-1)
    return coref_loss.links(outputs), lengths


class BidafPlus(WordProgram):
  """The question model of allenai/document-qa."""

  reads = {'span': (2,)}
  char_dropout_rates = (0.2, 0.0)

  def build_body(self) -> nn.Module:  # noqa: D102
    return bidaf_plus.BidafPlus(
      gru_dim=self.config.model.lstm_dim,
      max_question=self.config.task.max_question,
      **_common(self.config),
    )


class Bidaf(WordProgram):
  """Bidirectional attention flow, as AllenNLP has it."""

  reads = {'span': (2,)}
  has_layers = True
  char_dropout_rates = (0.0, 0.2)

  def build_body(self) -> nn.Module:  # noqa: D102
    return bidaf.Bidaf(
      lstm_dim=self.config.model.lstm_dim,
      num_layers=self.config.model.num_layers,
      max_question=self.config.task.max_question,
      **_common(self.config),
    )
