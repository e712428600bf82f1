"""The notebooks: their commands exist, and all of their cells run."""

import ast
import json
import pathlib

import pytest

from train import cli

NOTEBOOKS = sorted(
  (pathlib.Path(__file__).parents[2] / 'train/notebooks').glob('*.ipynb')
)


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
  assert len(set(names)) > 8
  assert set(names) <= set(cli.doors().values())
  for cell in cells_of(path, 'markdown'):
    for part in ''.join(cell['source']).split('](')[1:]:
      assert (path.parent / part.partition(')')[0]).exists()


@pytest.mark.slow
def test_the_lecture_runs(tmp_path, monkeypatch):
  """With pre-trainings of two steps, whose figures say nothing."""
  nbformat = pytest.importorskip('nbformat', reason='pip install nbclient')
  nbclient = pytest.importorskip('nbclient', reason='pip install nbclient')
  monkeypatch.setenv('LECTURE_STEPS', '2')
  monkeypatch.setenv('JUPYTER_PLATFORM_DIRS', '1')
  (path,) = NOTEBOOKS
  notebook = nbformat.read(path, as_version=4)
  client = nbclient.NotebookClient(
    notebook, timeout=600, resources={'metadata': {'path': str(tmp_path)}}
  )
  client.execute()
  folder = tmp_path / 'runs/lecture'
  shown = {'elmo_score.html', 'value.png', 'gpt_score.html', 'bert_input.png'}
  shown |= {'attention.html', 'words.png'}
  assert shown <= {file.name for file in folder.iterdir()}
  outputs = [
    ''.join(x.get('text', '') for x in cell.get('outputs', ()))
    for cell in notebook.cells
  ]
  assert '\x1b' not in ''.join(outputs)
  assert '$ python -m train.predict' in outputs[-2]
  assert 'praise' in outputs[-2] and 'blame' in outputs[-2]
