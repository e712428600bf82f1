"""The name of a program in its help is the one that the user typed."""

import pathlib
import subprocess
import sys

import pytest

from data import program


@pytest.mark.parametrize(
  ('words', 'expected'),
  [
    (['python', '/bin/sesame', 'embed', '--help'], 'sesame embed'),
    (['python', '-m', 'train.embed', '--help'], 'python -m train.embed'),
    (['python', '/bin/sesame'], 'python -m train.embed'),
    (['python'], 'python -m train.embed'),
  ],
)
def test_called(words, expected, monkeypatch):
  monkeypatch.setattr(sys, 'orig_argv', words)
  assert program.called('train.embed') == expected


@pytest.mark.parametrize(
  ('name', 'usage'),
  [
    ('prepare', 'usage: sesame prepare [-h]'),
    ('train', 'Trains a model: sesame train --config NAME'),
  ],
)
def test_help_of_the_installed_script(name, usage, tmp_path):
  script = pathlib.Path(sys.executable).parent / 'sesame'
  assert script.exists(), 'pip install -e . makes it'
  done = subprocess.run(
    [script, name, '--help'],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.stdout.startswith(usage), done.stderr
