"""That matrices of an ONNX file get their names back."""

import numpy as np
import onnx_weights
import pytest
from onnx import helper, numpy_helper

STEM = 'model.0.auto_model.encoder.layer.0.'
RNG = np.random.default_rng(0)
MATRICES = {
  name: RNG.normal(size=shape).astype(np.float32)
  for name, shape in {
    'attention.self.query.': (4, 4),
    'intermediate.dense.': (6, 4),
    'output.dense.': (4, 6),
  }.items()
}
TABLE = RNG.normal(size=(9, 4)).astype(np.float32)


def graph_of(*, biased=True):
  """Returns products of turned matrices, each with its bias added."""
  table = 'model.0.auto_model.embeddings.word_embeddings.weight'
  arrays, nodes = {table: TABLE}, []
  for number, (name, matrix) in enumerate(MATRICES.items()):
    arrays[f'onnx::MatMul_{number}'] = matrix.T
    arrays[f'{STEM}{name}bias'] = np.zeros(len(matrix), np.float32)
    product = f'product{number}'
    nodes.append(
      helper.make_node('MatMul', ['x', f'onnx::MatMul_{number}'], [product])
    )
    other = f'{STEM}{name}bias' if biased else 'x'
    nodes.append(helper.make_node('Add', [other, product], [f'sum{number}']))
  found = [numpy_helper.from_array(array, n) for n, array in arrays.items()]
  return helper.make_graph(nodes, 'graph', [], [], found)


def test_matrices_are_named_by_their_biases():
  found = onnx_weights.read(graph_of())
  for name, matrix in MATRICES.items():
    np.testing.assert_array_equal(
      found[f'encoder.layer.0.{name}weight'], matrix
    )
    assert not found[f'encoder.layer.0.{name}bias'].any()
  np.testing.assert_array_equal(
    found['embeddings.word_embeddings.weight'], TABLE
  )
  assert len(found) == 2 * len(MATRICES) + 1


def test_a_matrix_without_a_bias_is_named():
  with pytest.raises(ValueError, match='onnx::MatMul_0: no named bias'):
    onnx_weights.read(graph_of(biased=False))
