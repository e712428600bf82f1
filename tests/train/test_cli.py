"""The command `sesame`, in a folder with files of the user's own."""

import importlib.util
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
    (('configs',), 'bert_tiny  +auto  BERT-Tiny on the documentation'),
    (('configs',), 'bert_base  +tpu   BERT-Base as published'),
    (('tables',), 'bert/glue .*Table 1: GLUE'),
    (('--help',), 'embed +Vectors of texts'),
    (('completion', 'bash'), '--config.*bert_tiny'),
    (('completion', 'zsh'), 'bashcompinit'),
  ],
)
def test_lists(arguments, line, monkeypatch, capsys):
  monkeypatch.setattr(sys, 'argv', ['sesame', *arguments])
  cli.main()

  assert re.search(line, capsys.readouterr().out)


def test_completions_are_shell(tmp_path):
  script = tmp_path / 'completion'
  script.write_text(
    cli.completion('bash')
    + '\nCOMP_WORDS=(sesame train --config bert_t) COMP_CWORD=3; _sesame\n'
    + 'echo "${COMPREPLY[@]}"\n'
  )
  done = subprocess.run(
    ['bash', script], capture_output=True, text=True, check=True
  )
  assert done.stdout == 'bert_tiny\n' and not done.stderr


def test_an_unknown_name_is_refused(monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['sesame', 'trian'])
  with pytest.raises(SystemExit, match='sesame trian: expected one of .*train'):
    cli.main()
