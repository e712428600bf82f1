"""Smoothing: by hand, by the papers' formulas word by word, and NLTK's."""

import collections
import itertools
import math
import random

import numpy as np
import pytest
from ngram_texts import count_lines, draw_lines
from nltk.lm import KneserNeyInterpolated
from nltk.util import everygrams

from data.ngrams import smoothing
from data.ngrams.counts import BEGIN


def probability(model, *gram):
  """Returns the probability of the last word after the others."""
  ids = np.array([model.ids[word] for word in gram])
  starts = np.arange(len(ids)) == 0
  return math.exp(model.log_probs(ids, starts)[-1])


@pytest.fixture
def small(tmp_path):
  return count_lines(tmp_path, ['a b a', 'a b'], 2)


@pytest.mark.parametrize('name', smoothing.METHODS)
def test_probabilities_sum_to_one(tmp_path, name):
  counts, words = count_lines(tmp_path, draw_lines(60), 3)
  model = smoothing.METHODS[name](counts, words, 3)
  assert model.order == 3
  histories = [('<s>',), ('<s>', 'w2'), ('w2', 'w1'), ('w9', '<unk>'), ('w5',)]
  for history in histories:
    found = [
      probability(model, *history, word)
      for i, word in enumerate(words)
      if i != BEGIN
    ]
    assert sum(found) == pytest.approx(1, abs=1e-5)


def test_maximum_likelihood_by_hand(small):
  model = smoothing.maximum_likelihood(*small, 2)
  assert probability(model, '<s>', 'a') == pytest.approx(1)
  assert probability(model, 'a', 'b') == pytest.approx(2 / 3)
  assert probability(model, 'b', 'a') == pytest.approx(1 / 2)
  assert probability(model, 'b', 'b') == 0
  # An unseen history is shortened.
  assert probability(model, '<unk>', 'b') == pytest.approx(2 / 7)


def test_add_k_by_hand(small):
  model = smoothing.add_k(*small, 2, 0.5)
  # Four words may follow: a, b, the end and the unknown one.
  assert probability(model, 'a', 'b') == pytest.approx(2.5 / 5)
  assert probability(model, 'b', 'b') == pytest.approx(0.5 / 4)
  assert probability(model, '<unk>', 'b') == pytest.approx(1 / 4)
  with pytest.raises(ValueError, match='k 0: expected a number above 0'):
    smoothing.add_k(*small, 2, 0)


def test_jelinek_mercer_by_hand(small):
  model = smoothing.jelinek_mercer(*small, 2, (0.7, 0.6))
  single = 0.7 * 2 / 7 + 0.3 / 4
  assert probability(model, 'a', 'b') == pytest.approx(
    0.6 * 2 / 3 + 0.4 * single
  )
  assert probability(model, 'b', 'b') == pytest.approx(0.4 * single)
  assert probability(model, '<unk>', 'b') == pytest.approx(single)
  with pytest.raises(ValueError, match='weights 0.5: expected 2 numbers'):
    smoothing.jelinek_mercer(*small, 2, (0.5,))


def test_fitted_weights_are_best_for_words_left_out(tmp_path):
  lines = [' '.join(sorted(line.split())) for line in draw_lines(60)]
  counts, words = count_lines(tmp_path, lines, 2)
  once, twice = (order.counts for order in counts.orders)
  total = once.sum() - once[BEGIN]

  def loss(weights):
    value = 0
    for key, times in zip(counts.orders[1].keys, twice, strict=True):
      head, word = divmod(int(key), len(words))
      others = once[head] - 1  # every word but the end has a follower
      probability = weights[0] * (once[word] - 1) / (total - 1)
      probability += (1 - weights[0]) / (len(words) - 1)
      if others > 0:
        share = weights[1] * (times - 1) / others
        probability = share + (1 - weights[1]) * probability
      value -= times * math.log(probability)
    return value

  found = smoothing.jelinek_mercer(counts, words, 2).method
  found = [float(part) for part in found.split('weights ')[1].split()]
  steps = (-0.02, 0, 0.02)
  best = min(
    itertools.product(steps, steps),
    key=lambda step: loss(np.clip(np.add(found, step), 1e-3, 1 - 1e-3)),
  )
  assert best == (0, 0)


def katz_by_hand(lines):
  """Katz 1987 of pairs of words, in plain Python."""
  pairs, once = collections.Counter(), collections.Counter()
  for line in lines:
    text = ['<s>', *line.split(), '</s>']
    pairs.update(itertools.pairwise(text))
    once.update(text[1:])

  def kept(times):
    n = collections.Counter(times)
    most = 6 * n[6] / n[1]
    return {
      r: ((r + 1) * n[r + 1] / (r * n[r]) - most) / (1 - most)
      for r in range(1, 6)
    }

  shares = kept(pairs.values())
  assert all(0 < share <= 1 for share in shares.values())
  total = once.total() + 1  # all are frequent: one is left for the unknown
  found = {}
  for head in {head for head, _ in pairs}:
    after = {w: c for (h, w), c in pairs.items() if h == head}
    whole = sum(after.values())
    found |= {(head, w): shares.get(c, 1) * c / whole for w, c in after.items()}
    left = 1 - sum(found[head, w] for w in after)
    if left < 1e-9:
      whole += 1
      found |= {(head, w): c / whole for w, c in after.items()}
      left = 1 / whole
    others = 1 - sum(once[w] / total for w in after)
    found |= {
      (head, w): left / others * once[w] / total
      for w in once.keys() - after.keys()
    }
  return found


def test_katz_is_the_papers(tmp_path):
  rng, ranks = random.Random(1), range(1, 31)
  shares = [1 / rank for rank in ranks]
  lines = [
    ' '.join(rng.choices([f'w{r}' for r in ranks], shares, k=8))
    for _ in range(300)
  ]
  counts, words = count_lines(tmp_path, lines, 2)
  assert all(counts.orders[0].counts[3:] > 5)  # single words stay as they are
  model = smoothing.katz(counts, words, 2)
  expected = katz_by_hand(lines)
  for (head, word), value in expected.items():
    found = probability(model, head, word)
    assert found == pytest.approx(value, rel=1e-5), (head, word)


def modified_by_hand(lines, order):
  """Chen and Goodman 1998, section 3, in plain Python: gram -> probability."""
  raw = [collections.Counter() for _ in range(order + 1)]
  for line in lines:
    text = ('<s>', *line.split(), '</s>')
    for n in range(1, order + 1):
      raw[n].update(text[i : i + n] for i in range(len(text) - n + 1))
  adjusted = {order: raw[order]}
  for n in range(1, order):
    adjusted[n] = collections.Counter(g[1:] for g in raw[n + 1])
    adjusted[n] |= {g: c for g, c in raw[n].items() if g[0] == '<s>'}
  del adjusted[1][('<s>',)]
  discounts = {}
  for n, table in adjusted.items():
    t = collections.Counter(table.values())
    y = t[1] / (t[1] + 2 * t[2])
    discounts[n] = [0.0] + [
      c - (c + 1) * y * t[c + 1] / t[c] for c in (1, 2, 3)
    ]
  vocabulary = {w for (w,) in raw[1]} - {'<s>'} | {'<unk>'}

  def probability(gram):
    n = len(gram)
    if n == 0:
      return 1 / len(vocabulary)
    lower = probability(gram[1:])
    same = {g: c for g, c in adjusted[n].items() if g[:-1] == gram[:-1]}
    total = sum(same.values())
    if not total:
      return lower
    d = discounts[n]
    weight = sum(d[min(c, 3)] for c in same.values()) / total
    own = same.get(gram, 0)
    return (own - d[min(own, 3)]) / total + weight * lower

  return probability, vocabulary, discounts


def test_modified_kneser_ney_is_the_papers(tmp_path):
  lines = draw_lines(300, words=60)
  counts, words = count_lines(tmp_path, lines, 3)
  model = smoothing.modified_kneser_ney(counts, words, 3)
  expected, vocabulary, discounts = modified_by_hand(lines, 3)
  for row, wanted in zip(
    model.method.split('discounts ')[1].split('; '), (1, 2, 3), strict=True
  ):
    np.testing.assert_allclose(
      [float(d) for d in row.split()], discounts[wanted][1:], atol=6e-4
    )
  for history in (('w1', 'w2'), ('<s>', 'w2'), ('w7', 'w3'), ('w5', '<unk>')):
    for word in sorted(vocabulary)[::3]:
      found = probability(model, *history, word)
      assert found == pytest.approx(expected((*history, word)), rel=1e-5)


def test_one_discount_is_nltks(tmp_path):
  lines = draw_lines(50, words=12)
  counts, words = count_lines(tmp_path, lines, 3)
  model = smoothing.kneser_ney(counts, words, 3, 0.7)
  texts = [['<s>', *line.split(), '</s>'] for line in lines]
  theirs = KneserNeyInterpolated(3, discount=0.7)
  theirs.fit(
    [everygrams(text, max_len=3) for text in texts],
    [word for text in texts for word in text],
  )
  grams = {
    (*text[i : i + 2], word)
    for text in texts
    for i in range(len(text) - 2)
    for word in ('w2', 'w3', 'w9', '</s>')
  }
  assert len(grams) > 100
  for gram in grams:
    expected = theirs.score(gram[-1], gram[:-1])
    assert probability(model, *gram) == pytest.approx(expected, rel=1e-5)
  with pytest.raises(ValueError, match=r'discount 2: expected .* \[0, 1\]'):
    smoothing.kneser_ney(counts, words, 3, 2)


def test_a_tiny_text_has_the_usual_discounts(small):
  model = smoothing.modified_kneser_ney(*small, 2)
  assert model.method.endswith('0.500 1.000 1.500; 0.500 1.000 1.500')


def test_an_order_that_was_not_counted_is_refused(small):
  with pytest.raises(ValueError, match='order 3: expected 1 to 2'):
    smoothing.katz(*small, 3)


def test_a_text_without_an_ngram_of_the_order_names_it(tmp_path):
  with pytest.raises(ValueError, match='order 5: no text has 5 words'):
    smoothing.jelinek_mercer(*count_lines(tmp_path, ['a b'], 5), 5)


@pytest.mark.parametrize('lines', [['a b'], ['a b a a', 'b b a', 'a c']])
@pytest.mark.parametrize('order', [1, 2, 3])
def test_katz_gives_back_mass_that_nothing_takes(tmp_path, lines, order):
  """The unknown word is seen too, so no word is left."""
  counts, words = count_lines(tmp_path, lines, order, min_count=2)
  model = smoothing.katz(counts, words, order)
  for history in ((), *((word,) for word in words if word != '</s>')):
    if order == 1 and history:
      continue
    found = [
      probability(model, *history, word) for word in words if word != '<s>'
    ]
    assert sum(found) == pytest.approx(1, abs=1e-5)
