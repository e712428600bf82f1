"""AllenNLP 0.9.0's task models on PyTorch, and GLUE's baseline, which it lacks.

They are its own classes, put together as its training_config does. Shapes: B
batch, T position, L layers, D features, F cells of a direction.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import allennlp_reference as reference
import torch
from task_bodies import structured
from task_bodies.words import (
  Append,
  Words,
  allennlp,
  make_bilstm,
  make_layer,
)
from task_model_rows import Inputs, Recipe, Text, to_torch
from torch import Tensor, nn

from data.examples.pipeline import Batch


class Model(nn.Module):
  """A body above words: (texts, labels) -> AllenNLP's outputs.

  Its loss holds the penalty of the mixes' weights.
  """

  def __init__(self, inputs: Inputs, recipe: Recipe, seed: int) -> None:
    super().__init__()
    self.recipe = recipe
    self.words = Words(inputs, recipe, seed)
    self.body = BODIES[recipe.model](
      reference.Vocabulary(inputs.labels), self.words, recipe
    )

  def forward(self, texts: Sequence[Text], labels: Tensor) -> dict[str, Any]:
    """Returns 'loss' [], and logits or, in evaluation, 'tags' or 'answers'."""
    outputs = self.body(*texts, labels)
    penalty = self.recipe.mix_l2 * self.words.penalty()
    return outputs | {'loss': outputs['loss'] + penalty}


def _make_bcn(vocabulary: Any, words: Words, recipe: Recipe) -> nn.Module:
  theirs, adds = allennlp(), bool(words.added_dim)
  integrated = Append(words, 2 * recipe.dim).get_output_dim()

  class Elmo(nn.Module):
    """The mix for the output, which `words` has made."""

    _scalar_mixes = (None,)

    def get_output_dim(self) -> int:
      return words.added_dim

    def forward(self, _: Any) -> dict[str, list[Tensor]]:
      return {'elmo_representations': [words.added.pop(0)]}

  network = theirs.biattentive_classification_network
  body = network.BiattentiveClassificationNetwork(
    vocabulary,
    words,
    embedding_dropout=recipe.dropout,
    pre_encode_feedforward=make_layer(words.dim, recipe.hidden, dropout=0.25),
    encoder=make_bilstm(recipe.hidden, recipe),
    integrator=make_bilstm(6 * recipe.dim, recipe),
    integrator_dropout=0.1,
    output_layer=theirs.modules.Maxout(
      4 * integrated,
      len(recipe.maxout) + 1,
      [*recipe.maxout, vocabulary.get_vocab_size('labels')],
      4,
      [0.2, 0.3, 0.0],
    ),
    elmo=Elmo() if adds else None,
    use_integrator_output_elmo=adds,
  )
  if adds:
    forward = body.forward
    body.forward = lambda text, labels: forward(text | {'elmo': True}, labels)
  return body


def _make_esim(vocabulary: Any, words: Words, recipe: Recipe) -> nn.Module:
  theirs, F = allennlp(), recipe.dim
  encoder = make_bilstm(words.dim, recipe)
  append = Append(words, 2 * F)
  encode = encoder.forward
  encoder.get_output_dim = append.get_output_dim
  encoder.forward = lambda x, mask: append(encode(x, mask))
  draw = theirs.initializers.Initializer.by_name
  num_labels = vocabulary.get_vocab_size('labels')
  return theirs.esim.ESIM(
    vocabulary,
    words,
    encoder,
    theirs.dot_product.DotProductSimilarity(),
    make_layer(4 * encoder.get_output_dim(), recipe.hidden),
    make_bilstm(recipe.hidden, recipe),
    make_layer(8 * F, recipe.hidden, dropout=recipe.dropout),
    make_layer(recipe.hidden, num_labels, 'linear'),
    dropout=recipe.dropout,
    # training_config/esim.jsonnet
    initializer=theirs.initializers.InitializerApplicator(
      [
        ('linear_layers.*weight', draw('xavier_uniform')()),
        ('linear_layers.*bias', draw('zero')()),
        ('weight_ih', draw('xavier_uniform')()),
        ('weight_hh', draw('orthogonal')()),
        ('bias_ih', draw('zero')()),
        ('bias_hh', draw('lstm_hidden_bias')()),
      ]
    ),
  )


def _make_tagger(vocabulary: Any, words: Words, recipe: Recipe) -> nn.Module:
  body = allennlp().crf_tagger.CrfTagger(
    vocabulary,
    words,
    make_bilstm(words.dim, recipe, recipe.layers, recipe.dropout),
    feedforward=Append(words, 2 * recipe.dim),
    label_encoding='BIOUL',
    include_start_end_transitions=False,
    calculate_span_f1=False,
    dropout=recipe.dropout,
  )
  # AllenNLP also finds the best paths of the training set, for its metrics.
  decode = body.crf.viterbi_tags
  body.crf.viterbi_tags = lambda *args: [] if body.training else decode(*args)
  return body


class BilstmAttention(nn.Module):
  """GLUE's baseline for pairs (Wang et al. 2018), as ours computes it."""

  def __init__(self, vocabulary: Any, words: Words, recipe: Recipe) -> None:
    super().__init__()
    F, num_labels = recipe.dim, vocabulary.get_vocab_size('labels')
    self.words = words
    self.append = Append(words, 4 * F)
    self.dropout = nn.Dropout(recipe.dropout)
    self.encoder = make_bilstm(words.dim, recipe, recipe.layers)
    self.pair_encoder = make_bilstm(self.append.get_output_dim(), recipe)
    self.classifier = nn.Sequential(
      nn.Linear(8 * F, recipe.hidden),
      nn.Tanh(),
      nn.Linear(recipe.hidden, num_labels),
    )

  def forward(
    self, first: Text, second: Text, labels: Tensor
  ) -> dict[str, Tensor]:
    """Returns 'loss' and 'logits'."""
    util = allennlp().util
    masks = first['mask'], second['mask']
    x, y = (
      self.encoder(self.dropout(self.words(text)), text['mask'])
      for text in (first, second)
    )
    scores = x @ y.transpose(1, 2)
    pooled = []
    for one, other, mask, of_other, logits in (
      (x, y, *masks, scores),
      (y, x, *masks[::-1], scores.transpose(1, 2)),
    ):
      weights = util.masked_softmax(logits, of_other)
      attended = util.weighted_sum(other, weights)
      both = self.append(torch.cat([one, attended], dim=-1))
      modelled = self.dropout(self.pair_encoder(self.dropout(both), mask))
      modelled = util.replace_masked_values(modelled, mask.unsqueeze(-1), -1e7)
      pooled.append(modelled.amax(dim=1))
    u, v = pooled
    logits = self.classifier(torch.cat([u, v, (u - v).abs(), u * v], dim=-1))
    loss = nn.functional.cross_entropy(logits, labels)
    return {'loss': loss, 'logits': logits}


# Model of a recipe -> (vocabulary of labels, words, recipe) -> body.
BODIES = {
  'bcn': _make_bcn,
  'esim': _make_esim,
  'bilstm_crf': _make_tagger,
  'bilstm_attention': BilstmAttention,
  'deep_srl': structured.Roles,
  'e2e_coref': structured.Clusters,
  'bidaf': structured.Answers,
}
# Optimisers other than Adam by its defaults: AllenNLP's, and He et al. 2017's.
OPTIMIZERS = {
  'deep_srl': functools.partial(torch.optim.Adadelta, rho=0.95, eps=1e-6),
  'bidaf': functools.partial(torch.optim.Adam, betas=(0.9, 0.9)),
}


def make_step(model: Model, recipe: Recipe) -> Callable[[Batch], float]:
  """Returns a training step, batch -> loss, with its `optimizer`."""
  parameters = [p for p in model.parameters() if p.requires_grad]
  make = OPTIMIZERS.get(recipe.model, torch.optim.Adam)
  optimizer = make(parameters, lr=recipe.learning_rate)

  def step(batch: Batch) -> float:
    model.train()
    optimizer.zero_grad()
    loss = model(*to_torch(batch, recipe))['loss']
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, recipe.clip_norm)
    optimizer.step()
    return loss.item()

  step.optimizer = optimizer
  return step
