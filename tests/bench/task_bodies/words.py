"""Words as AllenNLP 0.9.0 embeds them, and the layers that its models share.

Shapes: B batch, T position, L layers, D features, F cells of a direction.
"""

import functools
from typing import Any

import allennlp_reference as reference
import torch
from task_model_rows import Inputs, Recipe, Text
from torch import Tensor, nn

NUM_CHARACTERS = 262  # with padding, AllenNLP's 0


@functools.cache
def allennlp() -> Any:
  """Returns AllenNLP's modules, each under the last part of its name."""
  return reference.load(
    'models.biattentive_classification_network',
    'models.coreference_resolution.coref',
    'models.crf_tagger',
    'models.esim',
    'models.reading_comprehension.bidaf',
    'models.semantic_role_labeler',
    'modules',
    'modules.scalar_mix',
    'modules.seq2seq_encoders.pytorch_seq2seq_wrapper',
    'modules.seq2vec_encoders.cnn_encoder',
    'modules.similarity_functions.dot_product',
    'modules.similarity_functions.linear',
    'modules.stacked_alternating_lstm',
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
          recipe.char_dim, recipe.characters, (recipe.char_width,)
        ),
        recipe.char_dropout,
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


def make_bilstm(
  width: int, recipe: Recipe, layers: int = 1, dropout: float = 0.0
) -> nn.Module:
  """Returns a BiLSTM of packed sequences, (x [B, T, width], mask) -> 2 F."""
  return allennlp().pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper(
    nn.LSTM(
      width,
      recipe.dim,
      layers,
      bidirectional=True,
      batch_first=True,
      dropout=dropout,
    )
  )


def make_layer(
  width: int,
  outputs: int,
  activation: str = 'relu',
  dropout: float = 0.0,
  layers: int = 1,
) -> nn.Module:
  """Returns AllenNLP's linear layers, each with an activation and dropout."""
  found = allennlp().nn.Activation.by_name(activation)()
  return allennlp().modules.FeedForward(width, layers, outputs, found, dropout)
