"""The notebooks: their commands exist, and all of their cells run."""

import ast
import glob
import json
import os
import pathlib
import shutil
import sys
import types

import nbclient
import notebooks
import pyarrow as pa
import pytest
import small_tasks
from pyarrow import parquet

from train import cli

FOLDER = pathlib.Path(__file__).parents[2] / 'train/notebooks'
NOTEBOOKS = sorted(FOLDER.glob('*.ipynb'))

# A command of a notebook, and the same without a whole start.
STARTED = """subprocess.run(
    [sys.executable, '-m', name, *told],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    env=PLAIN,
    text=True,
    check=False,
  )"""
FORKED = """__import__('launch').run(['-m', name, *told], PLAIN)
  done.stdout += done.stderr"""


def cells_of(path, kind):
  found = json.loads(path.read_text())['cells']
  return [cell for cell in found if cell['cell_type'] == kind]


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_commands_exist_and_nothing_is_stored(path):
  assert NOTEBOOKS
  names = []
  for cell in cells_of(path, 'code'):
    assert not cell['outputs'] and cell['execution_count'] is None
    for node in ast.walk(ast.parse(''.join(cell['source']))):
      if isinstance(node, ast.Call) and ast.unparse(node.func) == 'run':
        names += [
          part.value for part in node.args[:1] if isinstance(part, ast.Constant)
        ]
  assert len(set(names)) > (8 if path.stem == 'lecture' else 3)
  assert set(names) <= set(cli.doors().values())
  for cell in cells_of(path, 'markdown'):
    for part in ''.join(cell['source']).split('](')[1:]:
      link = part.partition(')')[0]
      if not link.startswith('https://'):
        assert (path.parent / link.partition('#')[0]).exists()


class Install:
  """The cell of colab.ipynb that installs, run in a folder.

  Attributes:
    inputs: what takes the place of /kaggle/input.
    said: the commands that it would have run.
  """

  def __init__(self, folder):
    self.inputs, self.said = folder / 'inputs', []
    self._files = (pathlib.Path('setup.py'), pathlib.Path('train/main.py'))

  def write_code(self, folder):
    for file in self._files:
      (folder / file).parent.mkdir(parents=True, exist_ok=True)
      (folder / file).touch()

  def run(self, code='sesame.tar.gz'):
    (cell,) = [
      ''.join(cell['source'])
      for cell in cells_of(FOLDER / 'colab.ipynb', 'code')
      if 'archives = ' in ''.join(cell['source'])
    ]
    assert cell.count("'/kaggle/input'") == 1
    record = types.SimpleNamespace(
      run=lambda words, check: self.said.append(words)
    )
    exec(
      cell.replace("'/kaggle/input'", repr(str(self.inputs))),
      {
        **{'CODE': code, 'subprocess': record, 'glob': glob, 'os': os},
        **{'pathlib': pathlib, 'shutil': shutil, 'sys': sys},
      },
    )
    assert self.said[-1][-1].startswith('code[')

  def has_code(self):
    return all((pathlib.Path('code') / file).exists() for file in self._files)


@pytest.fixture
def install(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  return Install(tmp_path)


@pytest.mark.parametrize('place', ['.', 'inputs/mine'])
def test_colab_installs_an_archive(install, tmp_path, place):
  install.write_code(tmp_path / 'clone')
  (tmp_path / place).mkdir(parents=True, exist_ok=True)
  shutil.make_archive(tmp_path / place / 'sesame', 'gztar', tmp_path / 'clone')
  install.run()
  assert install.has_code()


@pytest.mark.parametrize('place', ['sesame', 'inputs/mine/sesame'])
def test_colab_installs_an_unpacked_archive(install, tmp_path, place):
  other = install.inputs / 'other'
  other.mkdir(parents=True)
  (other / 'setup.py').touch()  # of something else
  install.write_code(tmp_path / place)
  install.run()
  assert install.has_code()


def test_colab_tells_what_to_upload(install):
  with pytest.raises(FileNotFoundError, match='sesame.tar.gz is not here. Mak'):
    install.run()
  assert not install.said


def test_colab_installs_a_clone(install):
  install.run('https://host/sesame')
  assert install.said[0][:2] == ['git', 'clone']


@pytest.mark.slow
def test_the_lecture_runs(tmp_path, monkeypatch):
  """With pre-trainings of two steps, whose figures say nothing."""
  monkeypatch.setenv('LECTURE_STEPS', '2')
  monkeypatch.setenv('JUPYTER_PLATFORM_DIRS', '1')
  outputs = notebooks.run_cells(
    FOLDER / 'lecture.ipynb', tmp_path, {STARTED: FORKED}
  )
  folder = tmp_path / 'runs/lecture'
  shown = {'elmo_score.html', 'value.png', 'gpt_score.html', 'bert_input.png'}
  shown |= {'attention.html', 'words.png'}
  assert shown <= {file.name for file in folder.iterdir()}
  assert '\x1b' not in ''.join(outputs)
  assert '$ python -m train.predict' in outputs[-1]
  assert 'praise' in outputs[-1] and 'blame' in outputs[-1]


@pytest.mark.slow
def test_a_run_of_colab_goes_on_in_the_next_session(
  small_bert, tmp_path, monkeypatch
):
  """On CPUs; the first session ends when the first checkpoint is there."""
  monkeypatch.setenv('JUPYTER_PLATFORM_DIRS', '1')
  data = tmp_path / 'reviews'
  (data / 'data').mkdir(parents=True)
  for seed, (split, count) in enumerate([('train', 96), ('validation', 32)]):
    rows = [
      {'text': text, 'label': label}
      for text, label in small_tasks.sentences(count, seed)
    ]
    parquet.write_table(
      pa.Table.from_pylist(rows), data / f'data/{split}-00000-of-00001.parquet'
    )
  kept = tmp_path / 'kept'
  here = {
    "'google-bert/bert-base-uncased'": repr(str(small_bert)),
    "'hf:cornell-movie-review-data/rotten_tomatoes'": repr(f'hf:{data}'),
    "pathlib.Path('kept')": f'pathlib.Path({str(kept)!r})',
    "pathlib.Path('env/bin/python')": f'pathlib.Path({sys.executable!r})',
    'length=128': 'length=32',
    'checkpoint_every=200': 'checkpoint_every=4',
  }
  over = 'raise EOFError("over")'
  ends = {
    'time.time() < end': "not any(WORKDIR.glob('checkpoints/[0-9]*'))",
    '        keep(WORKDIR)': f'        keep(WORKDIR)\n    {over}',
  }
  first, second = tmp_path / 'first', tmp_path / 'second'
  first.mkdir()
  second.mkdir()
  path = FOLDER / 'colab.ipynb'
  with pytest.raises(nbclient.exceptions.CellExecutionError, match='over'):
    notebooks.run_cells(path, first, here | ends)
  assert not (first / 'runs/reviews/results.json').exists()
  assert [file.name for file in kept.iterdir()] == ['reviews.tar']
  outputs = notebooks.run_cells(path, second, here)
  said = '\n'.join(outputs)
  assert 'brought back' in said and 'Continuing after step' in said
  results = json.loads((second / 'runs/reviews/results.json').read_text())
  assert results['metrics']
  assert (second / 'reviews-transformers/config.json').exists()
  assert {file.name for file in kept.iterdir()} == {
    'reviews.tar',
    'reviews-transformers.tar',
  }
  assert '\x1b' not in said
