"""Nearest lines against brute force."""

import pydoc_data.topics

import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train import similarity
from train.vectors import neighbours


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training('train:wordpiece:400'),
  )
  folder = tmp_path_factory.mktemp('bert')
  small_published.write_bert(folder, tokenizer)
  return folder


@pytest.mark.parametrize('block', [7, 64, 1000])
def test_search_is_brute_force(block):
  rng = np.random.default_rng(0)
  rows_ND = rng.normal(size=(500, 16))
  rows_ND[100:120] = rows_ND[3]  # as near as one another
  rows_ND = (rows_ND / np.linalg.norm(rows_ND, axis=1)[:, None]).astype('f4')
  queries_QD = rows_ND[[3, 250, 499]]
  blocks = (rows_ND[i : i + block] for i in range(0, 500, block))
  results = neighbours.search(queries_QD, blocks, 12)
  for query_D, (similarities, lines) in zip(queries_QD, results, strict=True):
    exact = (rows_ND * query_D.astype(float)).sum(axis=1)
    expected = np.lexsort([np.arange(500), -exact])[:12]
    np.testing.assert_array_equal(lines, expected)
    np.testing.assert_allclose(similarities, exact[expected], atol=1e-12)
  assert results[0][1].tolist() == [3, *range(100, 111)]


def test_fewer_lines_than_are_asked_for():
  rows_ND = np.eye(3, dtype='f4')
  ((similarities, lines),) = neighbours.search(rows_ND[:1], [rows_ND], 10)
  assert lines.tolist() == [0, 1, 2] and similarities.tolist() == [1, 0, 0]


def test_options_belong_to_queries(weights, tmp_path, run_command, capsys):
  file = tmp_path / 'pairs.txt'
  file.write_text('a\tb\n')
  for option in ('--index=x', '--top_k=3'):
    with pytest.raises(SystemExit):
      run_command(similarity, weights, file, option)
    assert 'is of --query and --queries' in capsys.readouterr().err
