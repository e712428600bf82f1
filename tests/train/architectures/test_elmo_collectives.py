"""What travels between 16 chips in a step of ELMo, by the TPU's compiler."""

import math

import compile_step
import pytest

CHIPS, LENGTH, ROWS, SAMPLES, P = 16, 20, 384, 8192, 64
PADDED = 793_472  # 793,471 words and one row of padding


@pytest.fixture(scope='module')
def step():
  """elmo_1b's, of its vocabulary and batch; the rest is small."""
  return compile_step.compile_apart(
    'elmo_1b',
    f'v5e-{CHIPS}',
    {
      'model.num_layers': 1,
      'model.lstm_dim': 256,
      'model.projection_dim': P,
      'model.filters': [[1, 32], [2, 48]],
      'model.num_highway': 1,
    },
  )


@pytest.mark.slow
def test_of_the_softmax_only_rows_travel(step):
  assert step['parameters']['softmax/kernel'] == [PADDED, P]
  # Targets and samples of both directions.
  rows = 2 * LENGTH * ROWS + 2 * SAMPLES
  found = False
  for collective in step['collectives']:
    for _, shape in collective['shapes']:
      found |= shape == [rows, P]
      assert math.prod(shape) <= rows * P, collective
      assert not {PADDED, PADDED // CHIPS} & set(shape), collective
  assert found
  # Vectors there and back, in float32 at most: a twelfth of the table.
  softmax = [c['bytes'] for c in step['collectives'] if 'softmax' in c['name']]
  assert 0 < sum(softmax) < 2 * 4 * rows * (P + 1)


@pytest.mark.slow
def test_nothing_travels_inside_our_loops(step):
  """Over words, and parts of the distinct ones; the compiler has others."""
  assert step['collectives']
  for collective in step['collectives']:
    assert collective['times'] % LENGTH, collective
    assert 'while/body' not in collective['name'], collective


@pytest.mark.slow
def test_each_chip_holds_its_share_of_the_table_and_its_sums(step):
  # Adagrad's sums are as large as the table, whose bias is a number a word.
  share = 2 * 4 * PADDED * (P + 1) / CHIPS
  assert share < step['argument_bytes'] < 1.05 * share
