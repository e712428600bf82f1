"""Coreference against AllenNLP's on PyTorch."""

import functools
import warnings

import allennlp_reference as reference
import coref_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elmo_task_cases import D, E, F

from models.elmo_tasks.coref import loss, mentions, spans


def make_theirs(torch, added):
  """AllenNLP's model; `added` are appended to what its BiLSTM returns."""
  theirs = reference.load(
    'models.coreference_resolution.coref',
    'modules',
    'modules.seq2seq_encoders.pytorch_seq2seq_wrapper',
    'nn',
  )

  class Encoder(theirs.pytorch_seq2seq_wrapper.PytorchSeq2SeqWrapper):
    def get_output_dim(self):
      return super().get_output_dim() + E

    def forward(self, inputs, mask):
      outputs = super().forward(inputs, mask)
      return torch.cat([outputs, added.pop(0)], dim=-1)

  def make_layers(inputs):
    relu = theirs.nn.Activation.by_name('relu')()
    return theirs.modules.FeedForward(inputs, 2, cases.HIDDEN, relu, 0.2)

  encoder = Encoder(torch.nn.LSTM(D, F, bidirectional=True, batch_first=True))
  width = 2 * encoder.get_output_dim() + cases.FEATURES + D
  found = theirs.coref.CoreferenceResolver(
    vocab=reference.Vocabulary('a'),
    text_field_embedder=reference.make_embedder(torch, D),
    context_layer=encoder,
    mention_feedforward=make_layers(width),
    antecedent_feedforward=make_layers(3 * width + cases.FEATURES),
    feature_size=cases.FEATURES,
    max_span_width=cases.WIDTH,
    spans_per_word=cases.KEPT,
    max_antecedents=cases.ANTECEDENTS,
    lexical_dropout=0.5,
  )
  reference.disturb(torch, found)
  return found.eval()


def params_of(theirs, gradients=False):
  def linear(layer):
    return reference.linear(layer, gradients)

  def table(embedding):
    weight = embedding.weight
    return (weight.grad if gradients else weight).detach().numpy().copy()

  def scorer(layers, score):
    return {
      'hidden_0': linear(layers._module._linear_layers[0]),
      'hidden_1': linear(layers._module._linear_layers[1]),
      'score': linear(score._module),
    }

  return {
    'encoder': reference.bilstm(theirs._context_layer._module, gradients),
    'head': linear(theirs._attentive_span_extractor._global_attention._module),
    'widths': table(theirs._endpoint_span_extractor._span_width_embedding),
    'distances': table(theirs._distance_embedding),
    'mention_scorer': scorer(*theirs._mention_pruner._scorer),
    'pair_scorer': scorer(
      theirs._antecedent_feedforward, theirs._antecedent_scorer
    ),
  }


def spans_of(lengths):
  """All candidates, in order: first and last word in the document."""
  found, start = [], 0
  for length in lengths:
    found += [
      (start + t, start + end)
      for t in range(length)
      for end in range(t, min(t + cases.WIDTH, length))
    ]
    start += length
  return found


def test_equals_allennlp_with_its_gradient(torch, monkeypatch):
  documents = cases.Documents()
  added, texts = (
    [
      torch.tensor(values[b, documents.mask[b]][None], requires_grad=True)
      for b in range(2)
    ]
    for values in (documents.added, documents.x)
  )
  theirs = make_theirs(torch, [*added])
  vectors, outputs = [], []
  extract = {
    name: getattr(theirs, f'_{name}_span_extractor').forward
    for name in ('endpoint', 'attentive')
  }
  for b, text in enumerate(texts):
    candidates = spans_of(cases.LENGTHS[b])
    clusters = {(i, j): c for i, j, c in cases.MENTIONS[b].tolist()}
    found = {}

    def keep(name, found, *arguments):
      found[name] = extract[name](*arguments)
      return found[name]

    for name in extract:
      getattr(theirs, f'_{name}_span_extractor').forward = functools.partial(
        keep, name, found
      )
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # masks of bytes, by the old program
      outputs.append(
        theirs(
          {'vectors': text, 'mask': torch.ones(text.shape[:2]).long()},
          torch.tensor([candidates]),
          torch.tensor([[clusters.get(span, -1) for span in candidates]]),
        )
      )
    vectors.append(torch.cat([*found.values()], dim=-1)[0].detach().numpy())
  sum(found['loss'] for found in outputs).backward()

  params = params_of(theirs)
  padded, golden = cases.pad()
  losses, found, (by_params, by_x, by_added) = cases.make_step('allennlp')(
    params, padded, golden
  )
  np.testing.assert_allclose(
    losses[[*cases.PLACES]], [x['loss'].item() for x in outputs], rtol=1e-5
  )
  for number, b in enumerate(cases.PLACES):
    ours = cases.real(found, b, number)
    kept = np.stack([ours['starts'], ours['ends']], axis=-1)
    np.testing.assert_array_equal(kept, outputs[number]['top_spans'][0].numpy())
    places = outputs[number]['predicted_antecedents'][0].numpy()
    K = len(places)
    expected = np.where(places < 0, -1, np.arange(K) - 1 - places)
    chosen = loss.links(found)[b, :K, 2]
    np.testing.assert_array_equal(chosen, expected)
    for got, tensors in ((by_x, texts), (by_added, added)):
      expected = tensors[number].grad[0].numpy()
      np.testing.assert_allclose(
        got[b][padded.mask[b]],
        expected,
        rtol=0,
        atol=1e-4 * np.abs(expected).max(),
      )
  cases.assert_close_trees(by_params, params_of(theirs, gradients=True), 1e-4)
  assert not by_x[~padded.mask].any()

  ours = vectors_of(cases.MODELS['allennlp'], params, documents, monkeypatch)
  is_candidate = np.asarray(spans.candidates(documents.sentences, cases.WIDTH))
  for b in range(2):
    np.testing.assert_allclose(
      ours[b, is_candidate[b]], vectors[b], rtol=0, atol=1e-5
    )


def vectors_of(module, params, documents, monkeypatch):
  """Returns the vectors of all candidates, [B, N, S]."""
  make_vectors, found = mentions.span_vectors, []

  def record(widths_WP, words, places, drop):
    every = np.arange(documents.mask.shape[1] * cases.WIDTH)
    # Candidates at the end reach over the edge: look-ups stop there.
    every = jnp.broadcast_to(every, (len(places), len(every)))
    found.append(make_vectors(widths_WP, words, every, drop))
    raise StopIteration

  @jax.jit
  def read(params):
    with pytest.raises(StopIteration):
      cases.apply(module, params, documents.x, documents.added, documents)
    return found.pop()

  with monkeypatch.context() as patch:
    patch.setattr(mentions, 'span_vectors', record)
    return np.asarray(read(params))
