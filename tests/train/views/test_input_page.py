"""Rows of inputs as a page and as a picture, and what is refused."""

import functools
import json

import browser
import pytest
from plain_pages import HOSTILE, open_page, texts

from train import show_input
from train.vectors.trained_model import TrainedModel
from train.views import input_page, input_rows

A, B = 'My dog is cute.', 'He likes playing.'


@pytest.fixture(scope='module')
def driver():
  with browser.chromium() as driver:
    yield driver


@pytest.fixture
def run(run_command):
  """Returns a function from arguments of the command to its output."""
  return functools.partial(run_command, show_input)


def test_what_is_refused(small_bert, small_elmo_folder, run, tmp_path):
  for arguments, message in (
    ([small_bert, 'a ' * 70], '72 tokens, 2 symbols included; expected 64'),
    ([small_bert, A, ' '], "text 2 is empty: ' '"),
    ([small_bert, A, B, '--both_orders'], 'found 2 and a bert'),
    ([small_bert, A, '--mask', '--seed=-1'], '--seed=-1: expected 0 to'),
    ([small_bert, A, '--out', 'a.txt'], r'ends in .html, .png or .json'),
    ([tmp_path, A], 'neither a workdir of train.main nor published'),
    ([small_bert, '\u200b'], 'the text has no token'),
  ):
    with pytest.raises(SystemExit, match=message):
      run(*arguments)
  assert not list(tmp_path.iterdir())


def test_a_picture_and_its_limit(small_bert, run, tmp_path):
  import matplotlib.image

  run(small_bert, f'{A} $5', B, '--mask', '--out', 'a.png')
  height, width, _ = matplotlib.image.imread(tmp_path / 'a.png').shape
  assert width > height > 200
  rows = input_rows.describe(TrainedModel(small_bert), ['a ' * 60])
  with pytest.raises(ValueError, match='found 248 tokens, expected 200'):
    input_page.check_size('a.png', rows * 4)


@pytest.mark.parametrize('name', HOSTILE)
def test_pages_hold_texts_as_they_are(
  name, driver, small_elmo_folder, run, tmp_path
):
  page = tmp_path / 'a.html'
  out = run(small_elmo_folder, HOSTILE[name], '--out', page, '--json').out
  open_page(driver, page)
  rows = json.loads(out)['rows']
  cells = [
    str(value)
    for row in rows
    for first in range(0, len(row['part']), input_page.PAGE_COLUMNS)
    for line in ('word', 'character', 'id')
    for value in row.get(line, [])[first : first + input_page.PAGE_COLUMNS]
  ]
  assert texts(driver, '.grid td') == cells
  assert texts(driver, 'h2') == [row['title'] for row in rows]
