"""AllenNLP 0.9.0's models of roles, coreference and answers to questions.

They are its own classes, put together as its training_config does. In
evaluation each returns `answers`, an array of each example in the form of
`data.scoring.answers`. Shapes: B batch, T position, K tags or kept spans, F
cells of a direction.
"""

import warnings
from typing import Any

import numpy as np
import torch
from task_bodies.words import Words, allennlp, make_bilstm, make_layer
from task_model_rows import MAX_WIDTH, Recipe, Text
from torch import Tensor, nn

from data.vocabulary import tag_schemes

MARK_DIM = 100  # features of a word that tell whether it is the predicate
# training_config/coref.jsonnet
FEATURE_DIM, KEPT_PER_WORD, MAX_ANTECEDENTS = 20, 0.4, 100
LEXICAL_DROPOUT = 0.5


def _check_places(recipe: Recipe) -> None:
  if 'output' in recipe.places:
    raise ValueError(
      f"--mix_at {recipe.mix_at}: expected 'input' for the model {recipe.model}"
    )


class Roles(nn.Module):
  """A SemanticRoleLabeler; its tags are our best paths of its logits."""

  def __init__(self, vocabulary: Any, words: Words, recipe: Recipe) -> None:
    super().__init__()
    _check_places(recipe)
    theirs = allennlp()
    lstm = theirs.stacked_alternating_lstm.StackedAlternatingLstm(
      words.dim + MARK_DIM,
      recipe.dim,
      recipe.layers,
      recurrent_dropout_probability=recipe.dropout,
    )
    draw = theirs.initializers.Initializer.by_name
    # Its metrics would run a program.
    self.labeler = theirs.semantic_role_labeler.SemanticRoleLabeler(
      vocabulary,
      words,
      theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper(lstm),
      binary_feature_dim=MARK_DIM,
      initializer=theirs.initializers.InitializerApplicator(
        [('tag_projection_layer.*weight', draw('orthogonal')())]
      ),
      ignore_span_metric=True,
      srl_eval_path=None,
    )
    names = [*vocabulary.labels.values()]
    self.allowed = torch.tensor(tag_schemes.allowed(names))

  def forward(self, text: Text, labels: Tensor) -> dict[str, Any]:
    """Returns 'loss', 'logits' [B, T, K], and 'answers'."""
    about = [{'words': [], 'verb': ''}] * len(labels)
    outputs = self.labeler(text, text['marks'], labels, about)
    if not self.training:
      lengths = text['mask'].sum(dim=1).tolist()
      outputs['answers'] = best_paths(outputs['logits'], lengths, self.allowed)
    return outputs


def best_paths(
  logits: Tensor, lengths: list[int], allowed: Tensor
) -> list[np.ndarray]:
  """Returns one-hot tags [T, K] of the best allowed paths, as ours decodes.

  These have the highest sums of log-probabilities, where AllenNLP adds
  probabilities.

  Args:
    logits: [B, T, K].
    lengths: of the sentences.
    allowed: bool [K + 2, K + 2], see `tag_schemes.allowed`.
  """
  K = logits.shape[-1]
  never = torch.finfo(torch.float64).min
  scores = logits.double().log_softmax(dim=-1)
  best = scores[:, 0].masked_fill(~allowed[K, :K], never)
  sums, before = [best], []
  for t in range(1, logits.shape[1]):
    paths = best[:, :, None].masked_fill(~allowed[:K, :K], never)
    best, places = paths.max(dim=1)
    best = best + scores[:, t]
    sums.append(best)
    before.append(places)
  found, is_last = [], allowed[:K, K + 1]
  for b, length in enumerate(lengths):
    last = sums[length - 1][b].masked_fill(~is_last, never)
    path = [int(last.argmax())]
    for places in reversed(before[: length - 1]):
      path.append(int(places[b, path[-1]]))
    found.append(np.eye(K, dtype=np.float32)[path[::-1]])
  return found


class Clusters(nn.Module):
  """A CoreferenceResolver."""

  def __init__(self, vocabulary: Any, words: Words, recipe: Recipe) -> None:
    super().__init__()
    _check_places(recipe)
    theirs = allennlp()
    encoder = make_bilstm(words.dim, recipe)
    width = 2 * encoder.get_output_dim() + FEATURE_DIM + words.dim

    def make_layers(inputs: int) -> nn.Module:
      return make_layer(inputs, recipe.hidden, dropout=recipe.dropout, layers=2)

    draw = theirs.initializers.Initializer.by_name
    normal, orthogonal = draw('xavier_normal'), draw('orthogonal')
    self.resolver = theirs.coref.CoreferenceResolver(
      vocabulary,
      words,
      encoder,
      make_layers(width),
      make_layers(3 * width + FEATURE_DIM),
      feature_size=FEATURE_DIM,
      max_span_width=MAX_WIDTH,
      spans_per_word=KEPT_PER_WORD,
      max_antecedents=MAX_ANTECEDENTS,
      lexical_dropout=LEXICAL_DROPOUT if recipe.dropout else 0.0,
      # training_config/coref.jsonnet
      initializer=theirs.initializers.InitializerApplicator(
        [
          ('.*linear_layers.*weight', normal()),
          ('.*scorer._module.weight', normal()),
          ('_distance_embedding.weight', normal()),
          ('_span_width_embedding.weight', normal()),
          ('_context_layer._module.weight_ih.*', normal()),
          ('_context_layer._module.weight_hh.*', orthogonal()),
        ]
      ),
    )

  def forward(self, text: Text, labels: Tensor) -> dict[str, Any]:
    """Returns 'loss' and 'answers', of one document."""
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # masks of bytes, by the old program
      outputs = self.resolver(text, text['spans'], labels)
    if not self.training:
      (chosen,) = outputs['predicted_antecedents']
      places = outputs['antecedent_indices'].gather(
        1, chosen.clamp(min=0)[:, None]
      )[:, 0]
      places = torch.where(chosen < 0, -1, places)
      (spans,) = outputs['top_spans']
      found = torch.cat([spans, places[:, None]], dim=1)
      outputs['answers'] = [found.numpy()]
    return outputs


class Answers(nn.Module):
  """A BidirectionalAttentionFlow; answers are read off its logits by ours."""

  def __init__(self, vocabulary: Any, words: Words, recipe: Recipe) -> None:
    super().__init__()
    _check_places(recipe)
    theirs, F = allennlp(), recipe.dim
    # It finds the best span of each text of the training set, for its metrics.
    theirs.bidaf.get_best_span = lambda *logits: logits[0]
    self.flow = theirs.bidaf.BidirectionalAttentionFlow(
      vocabulary,
      words,
      num_highway_layers=2,
      phrase_layer=make_bilstm(words.dim, recipe),
      similarity_function=theirs.linear.LinearSimilarity(
        2 * F, 2 * F, 'x,y,x*y'
      ),
      modeling_layer=make_bilstm(8 * F, recipe, recipe.layers, recipe.dropout),
      span_end_encoder=make_bilstm(14 * F, recipe),
      dropout=recipe.dropout,
    )

  def forward(
    self, question: Text, passage: Text, labels: Tensor
  ) -> dict[str, Any]:
    """Returns 'loss' and 'answers'; windows without their answer have no loss.

    `labels` are [B, 2], the answers' first and last words, -1 without.
    """
    if self.training:
      is_there = (labels >= 0).all(dim=1)
      if not is_there.any():
        return {'loss': 0 * sum(x.sum() for x in self.parameters())}
      question, passage = (
        {name: x[is_there] for name, x in text.items()}
        for text in (question, passage)
      )
      labels = labels[is_there]
    first, last = labels.clamp(min=0)[:, :, None].unbind(dim=1)
    outputs = self.flow(question, passage, first, last)
    if not self.training:
      logits = [outputs[f'span_{name}_logits'] for name in ('start', 'end')]
      outputs['answers'] = [*torch.stack(logits, dim=-1).detach().numpy()]
    return outputs
