"""AllenNLP 0.9.0's task models on PyTorch, and GLUE's baseline, which it lacks.

They are its own classes, put together as its training_config does. Shapes: B
batch, T position, L layers, D features, F cells of a direction.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import allennlp_reference as reference
import torch
from task_model_rows import Inputs, Recipe, Text, to_torch
from torch import Tensor, nn

from data.examples.pipeline import Batch

CHARACTER_WIDTH = 3
NUM_CHARACTERS = 262  # with padding, AllenNLP's 0


@functools.cache
def allennlp() -> Any:
  """Returns AllenNLP's modules, each under the last part of its name."""
  return reference.load(
    'models.biattentive_classification_network',
    'models.crf_tagger',
    'models.esim',
    'modules',
    'modules.scalar_mix',
    'modules.seq2seq_encoders.pytorch_seq2seq_wrapper',
    'modules.seq2vec_encoders.cnn_encoder',
    'modules.similarity_functions.dot_product',
    'modules.token_embedders.embedding',
    'modules.token_embedders.token_characters_encoder',
    'nn',
    'nn.initializers',
    'nn.util',
  )


class Words(nn.Module):
  """Embeds texts; the mixes for the body's output wait in `added`."""

  _token_embedders = {}

  def __init__(self, inputs: Inputs, recipe: Recipe, seed: int) -> None:
    super().__init__()
    theirs, table, dims = allennlp(), inputs.table, []
    self.added: list[Tensor] = []
    self.parts = nn.ModuleDict()
    if table.num_rows:
      self.parts['rows'] = theirs.embedding.Embedding(
        table.num_rows,
        table.dim,
        weight=torch.from_numpy(table.initial(seed)),
        trainable=not recipe.fixed,
      )
      dims.append(table.dim)
    if recipe.characters:
      encode = theirs.token_characters_encoder.TokenCharactersEncoder
      self.parts['characters'] = encode(
        theirs.embedding.Embedding(NUM_CHARACTERS, recipe.char_dim),
        theirs.cnn_encoder.CnnEncoder(
          recipe.char_dim, recipe.characters, (CHARACTER_WIDTH,)
        ),
      )
      dims.append(recipe.characters)
    L, D = inputs.layers_shape
    self.mixes = nn.ModuleDict(
      {
        place: theirs.scalar_mix.ScalarMix(L, recipe.layer_norm)
        for place in recipe.places
      }
    )
    self.dropout = nn.Dropout(recipe.mix_dropout)
    self.dim = sum(dims) + D * ('input' in recipe.places)
    self.added_dim = D * ('output' in recipe.places)

  def get_output_dim(self) -> int:
    """Returns the width of the embedded words, which AllenNLP asks for."""
    return self.dim

  def mix(self, place: str, text: Text) -> Tensor:
    """Returns one vector a word, [B, T, D], of the language model's layers."""
    layers = text['layers'].unbind(2)
    return self.dropout(self.mixes[place](layers, text['mask']))

  def penalty(self) -> Tensor | int:
    """Returns the sum of the squares of the mixes' weights."""
    return sum(
      parameter.square().sum()
      for mix in self.mixes.values()
      for parameter in mix.scalar_parameters
    )

  def forward(self, text: Text) -> Tensor:
    """Returns the words' vectors [B, T, dim]."""
    found = [module(text[name]) for name, module in self.parts.items()]
    if 'input' in self.mixes:
      found.append(self.mix('input', text))
    if 'output' in self.mixes:
      mask = text['mask'].unsqueeze(-1)
      self.added.append(self.mix('output', text) * mask)
    return torch.cat(found, dim=-1)


class Append(nn.Module):
  """Appends to vectors [B, T, width] the next of `words.added`, if any."""

  def __init__(self, words: Words, width: int) -> None:
    super().__init__()
    # In a tuple, so that they are not a part.
    self.words, self.width = (words,), width

  def get_input_dim(self) -> int:
    """Returns the width, which AllenNLP asks for."""
    return self.width

  def get_output_dim(self) -> int:
    """Returns the width of the result, which AllenNLP asks for."""
    return self.width + self.words[0].added_dim

  def forward(self, x: Tensor) -> Tensor:
    """Returns [B, T, width + added]."""
    (words,) = self.words
    return torch.cat([x, words.added.pop(0)], -1) if words.added_dim else x


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
    """Returns 'loss' [], and logits or, in evaluation of a tagger, 'tags'."""
    outputs = self.body(*texts, labels)
    penalty = self.recipe.mix_l2 * self.words.penalty()
    return outputs | {'loss': outputs['loss'] + penalty}


def make_bilstm(
  width: int, recipe: Recipe, layers: int = 1, dropout: float = 0.0
) -> nn.Module:
  """Returns a BiLSTM of packed sequences, (x [B, T, width], mask) -> 2 F."""
  return allennlp().pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper(
    nn.LSTM(
      *(width, recipe.dim, layers),
      bidirectional=True,
      batch_first=True,
      dropout=dropout,
    )
  )


def _layer(
  width: int, outputs: int, activation: str = 'relu', dropout: float = 0.0
) -> nn.Module:
  found = allennlp().nn.Activation.by_name(activation)()
  return allennlp().modules.FeedForward(width, 1, outputs, found, dropout)


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
    pre_encode_feedforward=_layer(words.dim, recipe.hidden, dropout=0.25),
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
    _layer(4 * encoder.get_output_dim(), recipe.hidden),
    make_bilstm(recipe.hidden, recipe),
    _layer(8 * F, recipe.hidden, dropout=recipe.dropout),
    _layer(recipe.hidden, num_labels, 'linear'),
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
}


def make_step(model: Model, recipe: Recipe) -> Callable[[Batch], float]:
  """Returns a training step, batch -> loss, with its `optimizer`."""
  parameters = [p for p in model.parameters() if p.requires_grad]
  optimizer = torch.optim.Adam(parameters, lr=recipe.learning_rate)

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
