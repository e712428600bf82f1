"""Vectors of lines are kept, read again, and refused for other lines."""

import json
import pydoc_data.topics

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
