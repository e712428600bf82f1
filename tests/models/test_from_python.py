"""The lines that models/README.md shows for Python run as they stand."""

import os
import pathlib
import pydoc_data.topics
import re
import subprocess
import sys

import pytest
import small_published

from data.vocabulary import tokenization

README = pathlib.Path(__file__).parents[2] / 'models/README.md'


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training('train:wordpiece:400'),
  )
  folder = tmp_path_factory.mktemp('bert')
  small_published.write_bert(folder, tokenizer)
  return folder


def test_the_lines_of_the_readme_run_in_any_folder(bert, tmp_path):
  section = README.read_text().split('## From Python\n')[1].split('\n## ')[0]
  blocks = re.findall(r'```python\n(.*?)```', section, re.DOTALL)
  assert len(blocks) == 3
  for block in blocks:
    assert sum(map(bool, block.splitlines())) <= 20  # blank ones apart
  heavy = ['tensorflow', 'train.main', 'train.run.command', 'torch']
  code = '\n'.join(blocks).replace("'WEIGHTS'", repr(str(bert)))
  code += f'\nimport sys\nprint(sys.modules.keys() & {heavy})'
  (tmp_path / 'script.py').write_text(code)
  for name in ('data', 'models', 'train'):
    (tmp_path / name).mkdir()
    (tmp_path / name / '__init__.py').write_text('raise SystemExit("not me")')
  done = subprocess.run(
    [sys.executable, '-P', 'script.py'],
    cwd=tmp_path,
    env=os.environ | {'PYTHONPATH': str(README.parents[1])},
    capture_output=True,
    text=True,
    check=False,
  )
  assert not done.returncode, done.stderr
  *_, shapes, pieces, loss, loaded = done.stdout.splitlines()
  assert shapes.startswith('3 (')
  assert pieces.startswith('[')
  assert float(loss.split()[1]) < 0.66  # at first log 2
  assert loaded == 'set()'
