"""Files of vectors by transformers, and the commands that make and use them."""

import json
import pydoc_data.topics

import h5py
import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train import embed, similarity
from train.vectors import request, vector_files
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

TEXT = 'The cat sat.\n\nA mat,  \tthe cat\nThe cat sat.\nnaïve cat\n'
LINES = TEXT.split('\n')[:-1]


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  """A folder with a small BERT, random."""
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training('train:wordpiece:400'),
  )
  folder = tmp_path_factory.mktemp('bert')
  small_published.write_bert(folder, tokenizer)
  return folder


@pytest.fixture
def run(run_command, tmp_path):
  """Returns `run_command`, in a folder with text.txt."""
  (tmp_path / 'text.txt').write_text(TEXT)
  return run_command


@pytest.mark.parametrize('unit', ['token', 'word', 'sentence'])
def test_both_formats_hold_what_is_computed(bert, run, tmp_path, unit):
  found = TrainedModel(bert)
  request = Request(unit, choice=Choice((0, -1)))
  expected = list(found.vectors(LINES, request))
  options = ['--layers=0,-1'] + ([] if unit == 'token' else [f'--unit={unit}'])
  printed = run(embed, bert, 'text.txt', 'out.h5', *options, '--json')
  figures = json.loads(printed.out)
  assert figures['lines'] == 5 and figures['lines_without_tokens'] == 1
  assert figures['tokens'] == sum(vectors.num_tokens for vectors in expected)
  run(embed, bert, 'text.txt', 'out.jsonl', *options)
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    'out.h5',
    'out.jsonl',
    'text.txt',
  ]
  lines = (tmp_path / 'out.jsonl').read_text(encoding='utf-8').split('\n')
  records = [json.loads(line) for line in lines[:-1]]
  assert [record['index'] for record in records] == [0, 1, 2, 3, 4]
  key = None if unit == 'sentence' else f'{unit}s'
  with h5py.File('out.h5') as file:
    index = json.loads(file['sentence_to_index'][0])
    assert index == {line.strip(): str(LINES.index(line)) for line in LINES}
    for i, vectors in enumerate(expected):
      np.testing.assert_array_equal(file[str(i)], vectors.array)
      array = np.array(records[i]['vectors'], np.float32)
      np.testing.assert_array_equal(
        array.reshape(vectors.array.shape), vectors.array
      )
      if key:
        assert json.loads(file[key][i]) == records[i][key] == vectors.labels
    assert file.keys() == {*'01234', 'sentence_to_index'} | ({key} - {None})
  if unit == 'word':
    assert records[4]['words'] == ['naïve', 'cat']


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['out.npy'], 'out.npy: expected a name that ends in .hdf5, .h5 or .jsonl'),
    (['text.txt'], 'ends in'),
    (['old.h5'], 'old.h5 is already there; --overwrite'),
    (['no/out.h5'], 'no such folder'),
    (['out.h5', '--stateful'], 'holds a bert, which has no --stateful'),
    (['out.h5', '--layers=9'], '--layers=9: expected .* from -3 to 2'),
    (['out.h5', '--layers=last'], '--layers=last: expected all, mean, top'),
    (['out.h5', '--combine=sum'], '--layers=top --combine=sum: that is one'),
    (['out.h5', '--layers=0,1', '--combine=mix'], '--mix belongs to --combine'),
    (
      ['out.h5', '--layers=0,1', '--combine=mix', '--mix=1,2,3:1'],
      '--mix has 3 weights and a scale, expected a weight for each of the 2',
    ),
    (
      ['out.h5', '--layers=0,1', '--combine=mix', '--mix=1,2'],
      '--mix=1,2: expected numbers as in',
    ),
    (['out.h5', '--pool=mean'], '--pool=mean: a token has a vector of its own'),
    (['out.h5', '--running'], '--running finds words, found --unit=token'),
    (['out.h5', '--window=65'], '--window=65: expected 3 to 64'),
  ],
)
def test_refused_before_weights_are_read(
  bert, run, tmp_path, monkeypatch, arguments, message
):
  monkeypatch.setattr(TrainedModel, 'params', property(pytest.fail))
  (tmp_path / 'old.h5').touch()
  before = set(tmp_path.iterdir())
  with pytest.raises(SystemExit, match=message):
    run(embed, bert, 'text.txt', *arguments)
  assert before == set(tmp_path.iterdir())


@pytest.mark.parametrize(
  'content, message',
  [(b'', 'is empty, expected'), (b'a\nb\xff\n', r'not UTF-8 .* in line 2')],
)
def test_what_is_no_text_is_refused(
  bert, run, tmp_path, monkeypatch, content, message
):
  monkeypatch.setattr(TrainedModel, 'params', property(pytest.fail))
  (tmp_path / 'text.txt').write_bytes(content)
  for command, *rest in (embed, 'out.h5'), (similarity, '--query=a'):
    with pytest.raises(SystemExit, match=message):
      run(command, bert, 'text.txt', *rest)
  assert [path.name for path in tmp_path.iterdir()] == ['text.txt']


def test_mix_of_a_file(bert, run, tmp_path):
  mix = {'mix_weights': [0.1, 0.2, -1], 'mix_scale': 2}
  (tmp_path / 'mix.json').write_text(json.dumps(mix))
  arrays = []
  for text in ('mix.json', '0.1,.2,-1:2'):
    options = ['--layers=all', '--combine=mix', f'--mix={text}', '--overwrite']
    run(embed, bert, 'text.txt', 'out.h5', *options)
    with h5py.File('out.h5') as file:
      arrays.append(file['0'][()])
  assert arrays[0].ndim == 2
  np.testing.assert_array_equal(*arrays)


def test_bfloat16_is_near(bert, run):
  """Commands refuse it on CPUs; this test computes it nevertheless."""
  arrays = []
  for dtype in request.DTYPES:
    found = TrainedModel(bert, dtype=dtype)
    arrays.append([each.array for each in found.vectors(LINES, Request())])
    assert arrays[-1][0].dtype == np.float32
  for one, other in zip(*arrays, strict=True):
    assert 0 < np.abs(one - other).max() < 0.1
  for command, *rest in (embed, 'out.h5'), (similarity, '--query=a'):
    with pytest.raises(SystemExit, match='on a CPU XLA converts every product'):
      run(command, bert, 'text.txt', *rest, '--dtype=bfloat16')


def test_similarity(bert, run, tmp_path):
  found = TrainedModel(bert)
  vectors = np.stack(
    [vectors.array for vectors in found.vectors(LINES, Request())]
  )
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  expected = vectors @ vectors[4]
  printed = run(
    similarity, bert, 'text.txt', '--query=naïve cat', '--top_k=3', '--json'
  )
  ours = [json.loads(line) for line in printed.out.splitlines()]
  order = np.argsort(-expected, kind='stable')[:3]
  assert [near['line'] - 1 for near in ours] == list(order)
  assert [near['text'] for near in ours] == [LINES[i] for i in order]
  np.testing.assert_allclose(
    [near['similarity'] for near in ours], expected[order], atol=1e-5
  )
  assert abs(ours[0]['similarity'] - 1) < 1e-5
  pairs = tmp_path / 'pairs.tsv'
  texts = [line.replace('\t', ' ') for line in LINES]
  pairs.write_text(''.join(f'{text}\tnaïve cat\n' for text in texts))
  found = [
    json.loads(line)['similarity']
    for line in run(similarity, bert, pairs, '--json').out.splitlines()
  ]
  np.testing.assert_allclose(found, expected, atol=1e-5)
  with pytest.raises(SystemExit, match='line 1: 1 texts, expected 2 with a'):
    run(similarity, bert, 'text.txt')


def test_what_would_fail_at_the_end_fails_at_the_beginning(tmp_path):
  new, old = tmp_path / 'new.h5', tmp_path / 'old.h5'
  old.touch()
  vector_files.check_new(new, overwrite=False)
  for path, overwrite, error, message in (
    (tmp_path / 'no' / 'a.h5', True, FileNotFoundError, 'no such folder'),
    (tmp_path, True, FileExistsError, 'is a folder'),
    (old, False, FileExistsError, 'is already there; --overwrite'),
  ):
    with pytest.raises(error, match=message):
      vector_files.check_new(path, overwrite=overwrite)
  vector_files.check_new(old, overwrite=True)
