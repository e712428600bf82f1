"""Held-out text by every family, against each token scored by itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import word_models
from elmo_store import WORDS, build_words, write_topics

from data.store import corpus
from models import elmo
from train.language import held_out, scoring


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  folder = tmp_path_factory.mktemp('words')
  text = write_topics(folder, 0, 30)
  return corpus.open_store(build_words(text, folder / 'store'))


@pytest.fixture(scope='module')
def text(store):
  """A few sentences of a held-out document, with words beyond the softmax."""
  whole = max(held_out.read(store), key=lambda text: len(text.tokens))
  end = int(whole.sentences[np.searchsorted(whole.sentences, 40)])
  found = held_out.Text(
    whole.tokens[:end], whole.sentences[whole.sentences < end]
  )
  assert len(found.sentences) > 1 and (found.tokens >= WORDS).any()
  return found


def known(text):
  return np.where(text.tokens < WORDS, text.tokens, 2).astype(np.int32)


def test_documents_and_passages(store, monkeypatch):
  documents = held_out.read(store)
  sizes = [len(text.tokens) for text in documents]
  bounds = store.sentences[store.documents]
  expected = np.diff(bounds)[store.held_out]
  assert sizes == expected[expected > 1].tolist()
  monkeypatch.setattr(held_out, 'PASSAGE', 32)
  all_passages = held_out.read(store, 10**9)
  joined = np.concatenate([text.tokens for text in all_passages])
  np.testing.assert_array_equal(
    joined, np.concatenate([text.tokens for text in documents])
  )
  some = held_out.read(store, 100)
  assert len(some) == 4
  for text in some:
    assert text.sentences[0] == 0
    assert (np.diff([*text.sentences, len(text.tokens)]) > 0).all()


@pytest.mark.parametrize('name', ['gpt', 'nnlm'])
def test_left_to_right(store, text, name):
  found = word_models.trained(name, store.tokenizer)
  (scores,) = held_out.score(found, store, [text])['']
  expected = scoring.score_tokens(
    found.model, found.params, known(text), context=24, stride=12
  )
  np.testing.assert_array_equal(scores, expected)
  assert len(scores) == len(text.tokens) - 1


def test_bert_hides_one_token_at_a_time(store, text):
  found = word_models.trained('bert', store.tokenizer)
  tokens = known(text)[:20]  # one window
  short = held_out.Text(tokens, text.sentences[:1])
  (scores,) = held_out.score(found, store, [short])['pseudo']
  row = np.array([[0, *tokens, 1]])
  shape = np.ones_like(row, bool), np.zeros_like(row), np.arange(22)[None]
  apply = jax.jit(functools.partial(found.model.apply, train=False))
  expected = []
  for place in range(1, 20):
    hidden = row.copy()
    hidden[0, place + 1] = 2
    outputs = apply(
      {'params': found.params}, hidden, *shape, np.array([[place + 1]])
    )
    log_probs = jax.nn.log_softmax(outputs['mlm_logits'][0, 0])
    expected.append(float(log_probs[tokens[place]]))
  np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_bert_reads_long_texts_in_windows(store, text):
  found = word_models.trained('bert', store.tokenizer)
  (scores,) = held_out.score(found, store, [text])['pseudo']
  assert len(scores) == len(text.tokens) - 1 > found.model.max_length
  assert (scores < 0).all()
  # The first tokens do not see the last ones' window.
  cut = held_out.Text(text.tokens[:22], text.sentences[:1])
  (first,) = held_out.score(found, store, [cut])['pseudo']
  np.testing.assert_allclose(scores[:10], first[:10], atol=1e-5)


def test_elmo_reads_both_ways(store, text):
  """Against its vectors of sentences, and the softmax by hand."""
  found = word_models.trained('elmo', store.tokenizer)
  readings = held_out.score(found, store, [text])
  softmax = found.params['softmax']
  kernel, bias = (
    np.asarray(softmax[name])[:WORDS] for name in ('kernel', 'bias')
  )
  width, read = found.model.projection_dim, jax.jit(found.model.apply)
  empty = elmo.empty_state(found.model, 1)
  words, ids = store.tokenizer, known(text)
  bounds = [*text.sentences, len(text.tokens)]
  for tower, (begin, end) in enumerate(
    ((words.begin_id, None), (None, words.end_id))
  ):
    state, expected = empty, np.zeros(len(ids))
    for first, last in zip(bounds, bounds[1:], strict=False):
      types = [
        i for i in (begin, *text.tokens[first:last], end) if i is not None
      ]
      layers, state = read(
        {'params': found.params},
        jnp.asarray(words.characters[np.array([types])]),
        jnp.array([len(types)]),
        state,
      )
      hidden = layers[-1, 0, :, tower * width : (tower + 1) * width]
      log_probs = np.asarray(jax.nn.log_softmax(hidden @ kernel.T + bias))
      for at, word in enumerate(range(first, last)):
        # The place before, or the one after.
        expected[word] = log_probs[at + tower, ids[word]]
    (scores,) = readings[('forward', 'backward')[tower]]
    np.testing.assert_allclose(scores, expected[1:], atol=1e-4)


def test_elmo_reads_long_texts_in_windows(store, text, monkeypatch):
  found = word_models.trained('elmo', store.tokenizer)
  whole = held_out.score(found, store, [text])
  monkeypatch.setattr(held_out, 'CONTEXT', 16)
  cut = held_out.score(found, store, [text])
  for name, (scores,) in cut.items():
    assert (scores < 0).all()
    np.testing.assert_allclose(scores[:5], whole[name][0][:5], atol=1e-4)
    assert not np.allclose(scores, whole[name][0], atol=1e-4)


def test_a_model_without_predictions_is_refused(store, text):
  model = word_models.make('bert', store.tokenizer.softmax_size)
  found = word_models.trained(
    'bert', store.tokenizer, model=model.clone(heads=('pooler',))
  )
  with pytest.raises(ValueError, match='no head for masked pieces'):
    held_out.score(found, store, [text])
