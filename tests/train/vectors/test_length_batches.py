"""Batches of texts of similar length: little padding, few shapes."""

import numpy as np

from train.vectors import length_batches


def test_little_is_padding_and_few_programs_are_compiled():
  rng = np.random.default_rng(0)
  lengths = rng.lognormal(3, 0.6, 5000).astype(int).clip(1)
  assert 22 < lengths.mean() < 26 and lengths.max() > 100
  window = [(i, ['a'] * length) for i, length in enumerate(lengths)]
  batches = list(length_batches.batches_by_length(window, 1024, added=2))
  assert sorted(i for batch in batches for i in batch.numbers) == list(
    range(5000)
  )
  computed = sum(batch.rows * batch.length for batch in batches)
  assert (lengths + 2).sum() / computed > 0.9
  assert max(batch.rows * batch.length for batch in batches) <= 1024
  assert len({(batch.rows, batch.length) for batch in batches}) < 30
  for batch in batches:
    assert max(map(len, batch.texts)) + 2 <= batch.length
  lengths = list(map(length_batches.round_length, range(1, 1025)))
  assert lengths == sorted(lengths) and len(set(lengths)) == 16 + 6 * 8


def test_a_length_is_kept_until_the_padding_costs_a_program():
  texts = [(i, ['a'] * length) for i, length in enumerate(range(1, 101))]
  found = {}
  for padding in (0, 60, 10**6):
    batches = length_batches.batches_by_length(
      texts, 256, added=0, most_padding=padding
    )
    found[padding] = [(batch.rows, batch.length) for batch in batches]
  assert len(set(found[0])) == 15
  assert len(set(found[60])) == 10
  assert {length for _, length in found[10**6]} == {104}
  computed = {
    padding: sum(rows * length for rows, length in batches)
    for padding, batches in found.items()
  }
  assert computed[60] < computed[0] + 10 * 60


def test_rows_are_padded_behind():
  ids, lengths = length_batches.pad([[5, 6], [], [7, 8, 9]], 4, 5)
  np.testing.assert_array_equal(
    ids, [[5, 6, 0, 0, 0], [0] * 5, [7, 8, 9, 0, 0], [0] * 5]
  )
  np.testing.assert_array_equal(lengths, [2, 0, 3, 0])


def test_one_array_is_computed_while_another_is_used():
  begun = []

  def compute():
    for number in range(3):
      begun.append(number)
      yield number, np.full(2, number)

  for number, array in length_batches.on_host(compute()):
    assert array.tolist() == [number] * 2
    assert begun[-1] == min(number + 1, 2)
  assert not list(length_batches.on_host([]))


def test_numbered_values_come_in_order():
  numbered = [(2, 'c'), (0, 'a'), (1, 'b'), (3, 'd')]
  assert list(length_batches.in_order(numbered)) == ['a', 'b', 'c', 'd']
