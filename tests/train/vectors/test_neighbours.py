"""Nearest lines against brute force, and vectors of lines that are kept."""

import json
import pydoc_data.topics

import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train import similarity
from train.vectors import line_index, neighbours
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

LINES = ['the cat sat', 'a dog', 'a mat', 'the cat sat', 'dogs and cats', 'a']
REQUEST = Request('sentence', choice=Choice('top'), normalize=True)


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


def test_an_index_is_read_in_place_of_computing(
  weights, tmp_path, monkeypatch, run_command
):
  file, index = tmp_path / 'lines.txt', tmp_path / 'index'
  file.write_text('\n'.join(LINES) + '\n')
  queries = ['a cat', 'the cat sat']
  (tmp_path / 'queries.txt').write_text('\n'.join(queries) + '\n')
  found = TrainedModel(weights)
  expected = list(neighbours.nearest(found, queries, file, REQUEST, top_k=3))
  assert [record['query'] for record in expected] == sorted(queries * 3)
  assert [record['line'] for record in expected[3:5]] == [1, 4]
  embedded = []
  compute = TrainedModel.numbered_vectors

  def counting(self, texts, request, **options):
    texts = list(texts)
    embedded.extend(texts)
    return compute(self, texts, request, **options)

  monkeypatch.setattr(TrainedModel, 'numbered_vectors', counting)
  for options in (
    ['--queries', 'queries.txt'],
    ['--query', queries[0], '--query', queries[1]],
  ):
    options += ['--index', 'index', '--top_k', '3', '--json']
    printed = run_command(similarity, weights, file, *options).out
    records = list(map(json.loads, printed.splitlines()))
    for ours, theirs in zip(records, expected, strict=True):
      assert abs(ours.pop('similarity') - theirs['similarity']) < 1e-5
      assert ours.items() <= theirs.items()
  assert sorted(embedded) == sorted(LINES + queries * 2)
  printed = run_command(similarity, weights, file, '--query', 'a', '--top_k=1')
  assert printed.out.split() == ['1.0000', 'a']
  assert index.is_dir()


def test_an_index_of_something_else_is_refused(weights, tmp_path):
  file, index = tmp_path / 'lines.txt', tmp_path / 'index'
  file.write_text('\n'.join(LINES) + '\n')
  found = TrainedModel(weights)
  vectors_ND = line_index.open_index(found, file, REQUEST, index)
  assert vectors_ND.shape == (6, found.dim)
  by_cls = Request('sentence', 'cls', Choice('top'), normalize=True)
  with pytest.raises(ValueError, match='index was made with other request'):
    line_index.open_index(found, file, by_cls, index)
  (tmp_path / 'other.txt').write_text('another line\n')
  with pytest.raises(ValueError, match='index was made with other lines'):
    line_index.open_index(found, tmp_path / 'other.txt', REQUEST, index)
  cut = index / line_index.VECTORS_FILE
  cut.write_bytes(cut.read_bytes()[:-4])
  with pytest.raises(ValueError, match='bytes, expected .*; remove it'):
    line_index.open_index(found, file, REQUEST, index)
  with pytest.raises(ValueError, match='is no index of lines'):
    line_index.open_index(found, file, REQUEST, tmp_path)
  with pytest.raises(FileNotFoundError, match='there is no folder'):
    line_index.open_index(found, file, REQUEST, tmp_path / 'no' / 'index')


def test_options_belong_to_queries(weights, tmp_path, run_command, capsys):
  file = tmp_path / 'pairs.txt'
  file.write_text('a\tb\n')
  for option in ('--index=x', '--top_k=3'):
    with pytest.raises(SystemExit):
      run_command(similarity, weights, file, option)
    assert 'is of --query and --queries' in capsys.readouterr().err
