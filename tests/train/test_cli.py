"""The command `sesame`, in a folder with files of the user's own."""

import importlib.util
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from train import cli


def sesame(*arguments, folder):
  """Runs it as an installed script does: the folder is not on the path."""
  return subprocess.run(
    [sys.executable, '-P', '-m', 'train.cli', *arguments],
    cwd=folder,
    capture_output=True,
    text=True,
    timeout=120,
  )


def test_every_door_is_a_program():
  found = cli.doors()
  assert {'train', 'prepare', 'phrases', 'embed', 'tables'} <= found.keys()
  for module in found.values():
    assert importlib.util.find_spec(module), module
    assert cli._module_title(module), module


@pytest.mark.parametrize('arguments', ['tables', 'topologies'])
def test_a_reader_may_leave_early(arguments, tmp_path):
  """As `head` does; 141 is what a shell has of a program that SIGPIPE ends."""
  done = subprocess.run(
    f'({shlex.quote(sys.executable)} -P -m train.cli {arguments};'
    ' echo $? > status) | true; cat status',
    cwd=tmp_path,
    shell=True,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.stdout == '141\n' and not done.stderr


def test_files_of_the_user_are_not_taken_for_ours(tmp_path):
  (tmp_path / 'train.py').write_text('raise SystemExit("the user\'s")')
  for name in ('data', 'models', 'configs'):
    (tmp_path / name).mkdir()
    (tmp_path / name / '__init__.py').write_text('raise SystemExit("theirs")')
  done = sesame('report', '--help', folder=tmp_path)
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith('usage: python -m train.report')
  done = sesame('topologies', folder=tmp_path)
  assert 'h100-N, N of NVIDIA H100' in done.stdout
  done = sesame('report', 'nothing', folder=tmp_path)
  assert done.returncode == 1
  assert 'nothing' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
  ('arguments', 'line'),
  [
    (('configs',), 'bert_tiny  +2 CPU cores, 3 to 12 minutes +BERT-Tiny'),
    (('configs',), 'bert_base  +v5litepod-16  +BERT-Base as published'),
    (('tables',), r'bert/glue +\d+ runs .*Table 1: GLUE'),
    (('tables',), r'lm/brown +\d+ runs +\d+\.\d h +Bengio'),
    (('tables',), r'small/bert_tasks +\d+ runs +\d+\.\d h +Devlin'),
    (('--help',), 'embed +Vectors of texts'),
    (('help',), 'embed +Vectors of texts'),
    (('version',), r'\d+\.\d+'),
    (('completion', 'bash'), '--config.*bert_tiny'),
    (('completion', 'zsh'), r'autoload -Uz compinit .*\n.* bashcompinit\n'),
  ],
)
def test_lists(arguments, line, monkeypatch, capsys):
  monkeypatch.setattr(sys, 'argv', ['sesame', *arguments])
  cli.main()

  assert re.search(line, capsys.readouterr().out)


def test_the_readme_names_the_hardware_of_the_configs():
  """Its table has the hardware of the docstrings."""
  shown = cli.shipped_configs()
  readme = pathlib.Path(cli.__file__).parents[1] / 'README.md'
  section = readme.read_text().split('\n## Configs\n')[1].split('\n## ')[0]
  rows = [line.strip('| ').split(' | ') for line in section.splitlines()]
  found = {
    name: hardware
    for cell, *_, hardware in (row for row in rows if len(row) == 4)
    for name in re.findall(r'`(\w+)', cell)
  }
  assert len(found) > 20
  for name, hardware in found.items():
    assert shown[name].startswith(f'{hardware}  '), name


@pytest.mark.parametrize(
  ('words', 'expected'),
  [
    ('train --config bert_t', 'bert_tiny'),
    ('train --config = bert_t', 'bert_tiny'),
    ('train --config=bert_t', '--config=bert_tiny'),  # a word of zsh
    ('preflight --topology v5litepod-12', 'v5litepod-128'),
    ('tables --table bert/sq', 'bert/squad bert/squad_v2_leaderboard'),
    ('completion z', 'zsh'),
    ('emb', 'embed'),
    ('embed --norm', '--normalize'),
  ],
)
def test_completions_are_shell(words, expected, tmp_path):
  script = tmp_path / 'completion'
  count = len(words.split())
  script.write_text(
    f'PATH={pathlib.Path(sys.executable).parent}:$PATH\n'
    + cli.completion('bash')
    + f'\nCOMP_WORDS=(sesame {words}) COMP_CWORD={count}; _sesame\n'
    + 'echo "${COMPREPLY[@]}"\n'
  )
  done = subprocess.run(
    ['bash', script], capture_output=True, text=True, check=True
  )
  assert done.stdout == f'{expected}\n' and not done.stderr


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    ('trian', 'sesame trian: expected one of .*train'),
    ('completion', 'sesame completion: expected bash or zsh'),
    ('configs --help', 'sesame configs takes no --help: it prints a list'),
  ],
)
def test_what_is_no_program_is_refused(words, message, monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['sesame', *words.split()])
  with pytest.raises(SystemExit, match=message):
    cli.main()
