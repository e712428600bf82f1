"""Words on a plane: the numbers, the page, the picture, and refusals."""

import functools
import json

import browser
import matplotlib.image
import numpy as np
import pytest
from plain_pages import HOSTILE, open_page, texts

from data.vocabulary.word2vec import vector_files
from train import analogies
from train.meanings import geometry
from train.meanings.words import plane

# A word has no white space.
STRANGE = ['_'.join(text.split())[:60] for text in HOSTILE.values()]
WORDS = ['man', 'woman', 'king', 'queen', *STRANGE]
PAIRS = ['man:woman', 'king:queen']


@pytest.fixture
def vectors(tmp_path):
  """Vectors of the words, [W, 5], that are in vectors.txt."""
  drawn = np.random.default_rng(0).normal(0, 1, (len(WORDS), 5))
  drawn = drawn.astype(np.float32)
  (tmp_path / 'vectors.txt').write_bytes(
    b''.join(vector_files.as_text(WORDS, drawn))
  )
  (tmp_path / 'words.txt').write_text('\n'.join(WORDS[2:]) + '\n')
  return drawn


@pytest.fixture
def run(run_command):
  """Returns a function from arguments of the command to its output."""
  return functools.partial(run_command, analogies, 'vectors.txt')


@pytest.fixture(scope='module')
def driver():
  with browser.chromium() as driver:
    yield driver


def test_numbers_and_page_are_of_the_vectors(vectors, driver, run, tmp_path):
  given = ['--map', 'words.txt', '--pairs', *PAIRS, '--json']
  (found,) = json.loads(run(*given, '--out', 'a.html').out)['maps']
  assert found['words'] == [*WORDS[2:], *WORDS[:2]]
  rows = [WORDS.index(word) for word in found['words']]
  picture = geometry.project(vectors[rows])
  np.testing.assert_allclose(found['points'], picture.points, atol=1e-4)
  first, second = vectors[1] - vectors[0], vectors[3] - vectors[2]
  cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
  assert found['offset_cosine'] == pytest.approx(float(cosine), abs=1e-4)

  open_page(driver, tmp_path / 'a.html')
  assert texts(driver, 'svg text') == found['words']
  assert texts(driver, 'th bdi') == found['words']
  cells = texts(driver, 'tbody td')
  shown = [f'{value:.4f}' for point in found['points'] for value in point]
  assert cells == shown
  assert len(texts(driver, 'svg .arrow')) == 2
  places = np.array(
    driver.execute_script(
      'return [...document.querySelectorAll("svg circle")].map((each) =>'
      ' [each.getAttribute("cx"), each.getAttribute("cy")])'
    ),
    float,
  )
  points = np.array(found['points']) * [1, -1]
  scale = np.ptp(places[:, 0]) / np.ptp(points[:, 0])
  np.testing.assert_allclose(
    places - places[0], scale * (points - points[0]), atol=0.2
  )
  assert ((places > 0) & (places < [plane.WIDTH, plane.HEIGHT])).all()


def test_maps_stand_side_by_side(
  vectors, small_bert, small_elmo_folder, run, tmp_path
):
  """Files, a BERT's layer 0, and an ELMo's layers in the contexts of a text."""
  (tmp_path / 'words.txt').write_text('king\nqueen\nwoman\n')
  given = ['--map', 'words.txt', '--pairs', PAIRS[0]]
  out = run(*given, '--beside', small_elmo_folder, '--out', 'a.png').out
  titles = [line for line in out.splitlines() if not line.startswith(' ')]
  assert titles == [
    'vectors.txt',
    f'{small_elmo_folder}, layer 0',
    'the map is a.png',
  ]
  assert 'mean cosine' not in out  # of a single arrow there is none
  height, width, _ = matplotlib.image.imread(tmp_path / 'a.png').shape
  assert width == pytest.approx(2 * 150 * plane.PANEL[0], abs=1)
  assert height == pytest.approx(150 * plane.PANEL[1], abs=1)
  (tmp_path / 'text.txt').write_text('the king saw a woman\nA queen , a man\n')
  more = ['--beside', small_elmo_folder, '--contexts', 'text.txt', '--json']
  found = json.loads(run(*given, *more, '--out', 'b.json').out)
  assert found == json.loads((tmp_path / 'b.json').read_text())
  assert [each['layer'] for each in found['maps']] == [
    None,
    '0 (embeddings)',
    '1',
    '2',
  ]
  with pytest.raises(SystemExit, match='has no vector of'):  # [UNK] to a BERT
    strange = f'king:{STRANGE[3]}'
    run('--pairs', strange, '--beside', small_bert, '--out', 'c.html')


def test_what_is_refused(vectors, run, tmp_path):
  for arguments, message in (
    (['--pairs', 'man:wolf', 'elf:man'], 'vectors.txt: has no vector of wolf'),
    (['--pairs', 'man'], '--pairs man: expected two words with a colon'),
    (['--map', 'none.txt'], 'none.txt'),
    (['--map', 'words.txt', '--tokenizer', 'a'], '--tokenizer is of weights'),
  ):
    with pytest.raises(SystemExit, match=message):
      run(*arguments, '--out', 'a.html')
  with pytest.raises(SystemExit, match='ends in .html, .png or .json'):
    run('--map', 'words.txt', '--out', 'a.txt')
  for arguments in (
    ['--map', 'words.txt'],
    ['--map', 'words.txt', '--questions', 'q', '--out', 'a.html'],
    ['--questions', 'q', '--out', 'a.html'],
    ['--map', 'words.txt', '--words', 'w', '--out', 'a.html'],
  ):
    with pytest.raises(SystemExit) as ended:
      run(*arguments)
    assert ended.value.code == 2
  with pytest.raises(ValueError, match='found 101 words to draw, expected 100'):
    plane.words_of([str(i) for i in range(101)], [])
  left = {path.name for path in tmp_path.iterdir()}
  assert left == {'vectors.txt', 'words.txt'}
