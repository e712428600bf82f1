"""The command: a page and its numbers, all or nothing."""

import functools
import json
import re
import shutil

import pytest
from small_elmo import small_elmo

from models.pretrained import elmo as pretrained
from train import attention

TEXT = 'The yield statement'


@pytest.fixture
def run(run_command):
  """Returns a function from arguments of the command to its output."""
  return functools.partial(run_command, attention)


def test_page_and_numbers(small_bert, run, tmp_path):
  given = [small_bert, '--text', TEXT, '--out', 'a.html', '--json', 'a.json']
  printed = run(*given, '--pair', 'is used', '--beside', 'An object').out
  assert re.search(r'layers +2\n +heads +2\n', printed)
  figures = json.loads((tmp_path / 'a.json').read_text())
  assert figures['weights'] == small_bert.name and not figures['causal']
  texts = figures['texts']
  assert [(each['text'], each['pair']) for each in texts] == [
    (TEXT, 'is used'),
    ('An object', None),
  ]
  of_pair = [{'other_text'} & each['shares'].keys() for each in texts]
  assert of_pair == [{'other_text'}, set()]
  page = (tmp_path / 'a.html').read_text()
  assert TEXT in page and '{{' not in page
  before = page, (tmp_path / 'a.json').read_text()
  for name in ('a.html', 'a.json'):
    with pytest.raises(SystemExit, match=f'{name} is already there; --overw'):
      run(*given)
    (tmp_path / name).rename(tmp_path / f'{name}.kept')
  (tmp_path / 'a.html.kept').rename(tmp_path / 'a.html')
  run(*given, '--precise', '--overwrite')
  assert (tmp_path / 'a.html').read_text() != before[0]


def test_a_figure_of_a_file(small_bert, run, tmp_path):
  path = tmp_path / 'lines.txt'
  path.write_text(f'{TEXT}\nis used\n')
  printed = run(small_bert, '--sentences', path, '--out', 'a.png').out
  assert re.search(r'texts +2\n +mean share of first token +0\.', printed)
  figures = json.loads((tmp_path / 'a.json').read_text())
  assert figures['texts'] == 2 and figures['sentences'] == str(path)
  path.write_text(f'{TEXT}\n{"a " * 70}\n')
  with pytest.raises(SystemExit, match=r'lines.txt, line 2 has 72 tokens'):
    run(small_bert, '--sentences', path, '--out', 'b.png')
  assert not (tmp_path / 'b.png').exists()


def test_what_is_refused(small_bert, run, tmp_path):
  elmo, damaged = tmp_path / 'elmo', tmp_path / 'damaged'
  pretrained.write_folder(elmo, *small_elmo())
  shutil.copytree(small_bert, damaged)
  file = damaged / 'model.safetensors'
  file.write_bytes(file.read_bytes()[:-100])
  out = ['--out', 'a.html']
  text = ['--text', TEXT, *out]
  for arguments, message in (
    ([elmo, *text], 'kind elmo, which has no attention: its layers are LSTMs'),
    ([damaged, *text], 'model.safetensors is damaged'),
    ([tmp_path, *text], 'neither a workdir of train.main nor published'),
    ([small_bert, '--text', 'a ' * 70, *out], 'and the model 64 positions'),
    ([small_bert, '--text', ' ', *out], "--text is ' ', expected a text"),
    ([small_bert, *out], 'no text: expected --text, --example, --sentences'),
    ([small_bert, '--text', TEXT, '--out', 'a.txt'], 'ends in .html or .htm'),
    ([small_bert, '--text', TEXT, '--out', 'x/a.html'], 'no such folder'),
    ([small_bert, *text, '--json', 'a.html'], 'a.html is named twice'),
    ([small_bert, '--winobias', tmp_path, *out], 'a name that ends in .png'),
    (
      [small_bert, '--winobias', tmp_path, '--text', 'a', '--out', 'b.png'],
      'give no --text with it',
    ),
    (
      [small_bert, '--winobias', tmp_path, '--out', 'b.png'],
      'female_occupations.txt',
    ),
    (
      [small_bert, '--winobias', 'a', '--sentences', 'a', '--out', 'b.png'],
      '--sentences and --winobias: each draws a figure of its own',
    ),
    ([small_bert, '--sentences', 'a', *out], 'a name that ends in .png'),
    ([small_bert, '--sentences', 'a', '--out', 'b.png'], 'a: no such file'),
  ):
    with pytest.raises(SystemExit, match=re.escape(message)):
      run(*arguments)
  assert {path.name for path in tmp_path.iterdir()} == {'elmo', 'damaged'}
