"""Sentences in batches have the vectors that each has alone; and state."""

import numpy as np
import pytest
from small_elmo import NEAR, embed_alone, small_elmo

from data.vocabulary import characters
from train.vectors import elmo_vectors
from train.vectors.request import Choice


@pytest.fixture(scope='module')
def small():
  return small_elmo()


@pytest.fixture(scope='module')
def sentences():
  """20 of few lengths, from 60 words."""
  rng = np.random.default_rng(1)
  words = [f'{"abcde"[i % 5] * (i % 7)}{i}' for i in range(60)]
  return [
    [str(word) for word in rng.choice(words, rng.choice([1, 5, 14]))]
    for _ in range(20)
  ]


@pytest.fixture(scope='module')
def alone(small, sentences):
  return [embed_alone(*small, sentence)[0] for sentence in sentences]


def assert_near(found, expected):
  found = list(found)
  assert len(found) == len(expected)
  for ours, theirs in zip(found, expected, strict=True):
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, **NEAR)


@pytest.mark.parametrize(
  'options',
  [
    {},
    {'batch_tokens': 1},  # each by itself
    {'batch_tokens': 50, 'window_words': 80, 'table_words': 40},
    {'table_words': 7},  # far fewer than there are
  ],
)
def test_a_sentence_depends_on_nothing_but_itself(
  small, sentences, alone, options
):
  found = elmo_vectors.embed_sentences(*small, iter(sentences), **options)
  assert_near(found, alone)


def test_neighbours_do_not_matter(small, sentences, alone):
  found = list(
    elmo_vectors.embed_sentences(*small, sentences[::-1] + sentences)
  )
  assert_near(found, alone[::-1] + alone)


def test_rows_go_on_from_the_batch_before(small, sentences):
  """With two sentences that are empty, and a last batch of two rows."""
  model, params = small
  sentences = sentences[:17]
  sentences[4] = sentences[16] = []
  states, expected = [None] * 3, []
  for number, sentence in enumerate(sentences):
    vectors, after = embed_alone(model, params, sentence, states[number % 3])
    expected.append(vectors)
    if sentence:  # else the state stays
      states[number % 3] = after
  for window_words in (1, 10_000):
    found = elmo_vectors.embed_sentences(
      *small, sentences, stateful=True, batch_size=3, window_words=window_words
    )
    assert_near(found, expected)
  lone, _ = embed_alone(model, params, sentences[3])
  assert np.abs(lone - expected[3]).max() > 0.01


def test_layers(small, sentences, alone):
  model, _ = small
  sentences, alone = [*sentences[:6], []], [*alone[:6], np.zeros((3, 0, 12))]
  assert alone[0].shape == (3, len(sentences[0]), 2 * model.projection_dim)
  for layers, choose in {
    'all': lambda x: x,
    'mean': lambda x: x.mean(0),
    'top': lambda x: x[-1],
    (-1, 0): lambda x: x[[2, 0]],
    (1,): lambda x: x[[1]],
  }.items():
    found = elmo_vectors.embed_sentences(
      *small, sentences, choice=Choice(layers)
    )
    assert_near(found, [choose(array) for array in alone])
  found = elmo_vectors.embed_sentences(
    *small, sentences, choice=Choice('all', 'mix', (0.5, -1, 2, 1.5))
  )
  shares = np.exp([0.5, -1, 2]) / np.exp([0.5, -1, 2]).sum()
  assert_near(
    found, [1.5 * np.einsum('L,LTD->TD', shares, array) for array in alone]
  )


def test_each_word_is_spelt_once(small, sentences, monkeypatch):
  seen = []

  sound = characters.encode_words

  def spell(words):
    seen.extend(words)
    return sound(words)

  monkeypatch.setattr(elmo_vectors.characters, 'encode_words', spell)
  words = [word for sentence in sentences for word in sentence]
  half = len(sentences) // 2
  table = elmo_vectors.ElmoWordTable(*small, max_words=70)
  for part in (sentences[:half], sentences[half:], sentences):
    table.add(part)
  assert sorted(seen) == sorted({*words, '<S>', '</S>'})
  assert len(seen) < len(words) / 2
  rows = table.rows(sentences[0])
  assert len(rows) == len(sentences[0]) + 2
  # With room for fewer, all are forgotten once they are too many.
  table = elmo_vectors.ElmoWordTable(*small, max_words=len(seen) - 1)
  seen.clear()
  table.add(sentences[:1])
  table.add([words[:1]])
  kept = {*sentences[0], '<S>', '</S>'}
  assert sorted(seen) == sorted(kept)
  table.add([[f'new{i}' for i in range(table.vectors_NP.shape[0])]])
  with pytest.raises(KeyError):
    table.rows(sentences[0][-1:])
