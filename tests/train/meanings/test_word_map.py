"""The command of one word: its files, its figures, and what is refused."""

import functools
import json

import matplotlib.image
import numpy as np
import pytest
from sklearn.metrics import pairwise

from data.tasks.senses.occurrences import Occurrence
from train import senses
from train.meanings import inputs, word_map, word_vectors
from train.vectors.trained_model import TrainedModel

TEXT = 'the value of a value\nit returns a value\nthe Value is a class\n'


@pytest.fixture
def run(run_command, tmp_path):
  """Returns a function (arguments) -> what the command printed."""
  (tmp_path / 'text').write_text(TEXT)
  return functools.partial(run_command, senses)


@pytest.mark.parametrize('kind', ['bert', 'elmo'])
def test_figures(kind, small_bert, small_elmo_folder, run, tmp_path):
  weights = small_bert if kind == 'bert' else small_elmo_folder
  options = ('text', '--word', 'value', '--out', 'a.json')
  printed = json.loads(run(weights, *options, '--json').out)
  found = json.loads((tmp_path / 'a.json').read_text())
  vectors = word_vectors.embed(
    TrainedModel(weights),
    inputs.find_word('text', 'value', False),
    positions=False,
  )
  assert [row['where'] for row in found['rows']] == [
    f'text, line {number}' for number in (1, 1, 2, 3)
  ]
  assert [row['place'] for row in found['rows']] == [1, 4, 3, 1]
  names = ['0 (embeddings)', '1', '2']
  for number, (name, layer) in enumerate(
    zip(names, found['layers'], strict=True)
  ):
    own = vectors[:, number].astype(np.float64)
    cosines = pairwise.cosine_similarity(own)
    np.testing.assert_allclose(layer['cosines'], cosines, atol=1e-6)
    mean = (cosines.sum() - 4) / 12
    assert printed[f'layer {name}, mean cosine'] == pytest.approx(mean)
    assert np.array(layer['points']).shape == (4, 2)
  (tmp_path / 'a.json').write_text('old')
  run(weights, *options, '--overwrite')
  assert json.loads((tmp_path / 'a.json').read_text()) == found


def test_layer_0_knows_no_place(small_bert, run, tmp_path):
  """One word has one vector, and other layers are as they were."""
  run(small_bert, 'text', '--word', 'value', '--out', 'a.json')
  first, *_ = json.loads((tmp_path / 'a.json').read_text())['layers']
  np.testing.assert_allclose(first['cosines'], 1, atol=1e-6)
  model = TrainedModel(small_bert)
  found = inputs.find_word('text', 'value', False)
  with_places = word_vectors.embed(model, found)
  without = word_vectors.embed(model, found, positions=False)
  np.testing.assert_array_equal(without[:, 1:], with_places[:, 1:])
  assert np.abs(with_places[0, 0] - with_places[2, 0]).max() > 0.01


def test_sentences_of_a_picture_are_cut_around_the_word():
  words = ['a'] * 60 + ['word'] + ['b'] * 60
  rows = [{'words': words, 'place': 60}, {'words': ['word'], 'place': 0}]
  first, second = word_map._sentences(rows, 40)
  assert second == '2  [word]'
  assert len(first) <= 44 and '… a a' in first and 'a [word] b' in first
  assert first.endswith('…')


@pytest.mark.parametrize('count', [1, 30])
def test_a_picture(count, tmp_path):
  vectors = np.random.default_rng(0).normal(1, 1, (count, 7, 4))
  places = [Occurrence(f'line {i}', ('$a',), 0) for i in range(count)]
  figures = word_map.describe('$a', 'weights', places, vectors)
  word_map.write(figures, tmp_path / 'a.png')
  image = matplotlib.image.imread(tmp_path / 'a.png')
  assert image.shape[1] == 120 * 5 * word_map.PANEL  # five layers in a row
  assert image[..., :3].std() > 0.05
  if count == 1:  # neither a mean nor a spread
    assert figures['layers'][0]['mean_cosine'] is None
    assert figures['layers'][0]['points'] == [[0.0, 0.0]]
    assert list(word_map.summary(figures)) == ['places']


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (('--word', 'value', '--out', 'a.svg'), 'ends in .html, .png or .json'),
    (('--word', 'value', '--out', 'there.html'), 'there.html is already there'),
    (('--word', 'value', '--out', 'none/a.html'), 'no such folder to write to'),
    (('--word', 'class', '--out', 'a.html'), "line 1: found no 'class'"),
    (('--word', 'value'), 'give SENTENCES, --word and --out'),
    (('--word', 'a', '--out', 'a.html', '--wic', 'b'), 'give SENTENCES'),
  ],
)
def test_bad_input_is_refused_before_the_model(
  run, tmp_path, capsys, arguments, message
):
  (tmp_path / 'there.html').touch()
  with pytest.raises(SystemExit) as error:
    run('none', 'text', *arguments)
  assert message in f'{error.value} {capsys.readouterr().err}'
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    'text',
    'there.html',
  ]


def test_more_places_than_a_page_shows():
  word_map.check_places('a.json', 101)
  word_map.check_places('a.html', 100)
  with pytest.raises(ValueError, match='in 101 places, expected 100 at most'):
    word_map.check_places('a.html', 101)
