"""Counts of n-grams: by hand, against a dictionary, in blocks."""

import collections

import numpy as np
import pytest
from ngram_texts import count_lines, draw_lines

from data.ngrams.counts import BEGIN


def spelt(counts, words, order):
  """Returns every n-gram of an order as a tuple of words, in order."""
  numbers, found = np.arange(len(counts.orders[order - 1].keys)), []
  for n in range(order, 1, -1):
    numbers, last = np.divmod(counts.orders[n - 1].keys[numbers], len(words))
    found.append(last)
  grams = zip(numbers, *found[::-1], strict=True)
  return [tuple(words[i] for i in gram) for gram in grams]


def test_counts_by_hand(tmp_path):
  counts, words = count_lines(tmp_path, ['a b a', '', 'a b'], 3)
  assert words == ('<unk>', '<s>', '</s>', 'a', 'b')
  found = [
    dict(zip(spelt(counts, words, n), order.counts.tolist(), strict=True))
    for n, order in enumerate(counts.orders, start=1)
  ]
  one = {'<unk>': 0, '<s>': 2, '</s>': 2, 'a': 3, 'b': 2}
  assert found[0] == {(word,): times for word, times in one.items()}
  assert found[1] == {
    ('<s>', 'a'): 2,
    ('a', 'b'): 2,
    ('b', 'a'): 1,
    ('a', '</s>'): 1,
    ('b', '</s>'): 1,
  }
  assert found[2] == {
    ('<s>', 'a', 'b'): 2,
    ('a', 'b', 'a'): 1,
    ('b', 'a', '</s>'): 1,
    ('a', 'b', '</s>'): 1,
  }


@pytest.mark.parametrize('block_size', [1 << 22, 101, 7])
def test_blocks_of_any_size_give_the_same(tmp_path, block_size):
  lines = draw_lines(60)
  counts, words = count_lines(tmp_path, lines, 4, block_size=block_size)
  for n, order in enumerate(counts.orders, start=1):
    expected = collections.Counter()
    for line in lines:
      text = ['<s>', *line.split(), '</s>']
      expected.update(tuple(text[i : i + n]) for i in range(len(text) - n + 1))
    grams = spelt(counts, words, n)
    found = dict(zip(grams, order.counts.tolist(), strict=True))
    assert {gram: times for gram, times in found.items() if times} == expected
    assert (np.diff(order.keys) > 0).all()
    if n > 1:
      shorter = spelt(counts, words, n - 1)
      assert [shorter[i] for i in order.suffixes] == [g[1:] for g in grams]


def test_texts_shorter_than_n_have_none(tmp_path):
  counts, _ = count_lines(tmp_path, ['a', 'b'], 5)
  assert [len(order.keys) for order in counts.orders] == [5, 4, 2, 0, 0]
  assert counts.orders[0].counts[BEGIN] == 2
