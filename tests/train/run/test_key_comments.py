"""A config is printed with what each key is for."""

import pathlib
import subprocess
import sys

import pytest

from train.run import key_comments, settings


@pytest.mark.parametrize('name', settings.shipped_names())
def test_every_key_stands_beside_its_value_and_comment(name):
  config = settings.with_overrides(
    settings.load_config(name), {'train.seed': 41}
  )
  lines = key_comments.as_text(config).splitlines()
  assert len(lines) == len(settings.flatten(config))
  assert all('  # ' in line for line in lines)
  assert 'train.seed = 41  # of parameters, order, pairs, masks' in '\n'.join(
    lines
  )


def test_a_comment_above_and_beside_are_one():
  found = key_comments.comments(settings.load_config('bert_tiny'))
  assert found['optim.weight_decay'] == (
    'Of all parameters but biases, layer norms and the weights of layer mixes.'
  )
  assert found['mesh.data'] == (
    'Copies of the model; -1: all devices that the other axes leave.'
  )


@pytest.mark.parametrize(
  ('name', 'key', 'expected'),
  [
    ('transfer', 'data.source', 'A folder of the official files'),
    ('transfer', 'train.eval_every', 'Empty: an epoch'),
    ('transfer', 'data.tokenizer', 'Empty: the tokenizer of init.weights'),
    ('transfer', 'init.layers', "'every:2'"),
    ('bert_tiny', 'model.window', '0: all layers see all tokens'),
    ('word2vec_novels', 'model.window', 'largest distance of neighbours'),
    ('nnlm_tiny', 'model.max_length', 'longest'),
    ('gpt_tiny', 'model.max_length', 'position table'),
  ],
)
def test_a_key_has_the_comment_of_its_own_section(name, key, expected):
  found = key_comments.comments(settings.load_config(name))
  assert expected in found[key]


def run_main(*arguments):
  return subprocess.run(
    [sys.executable, '-m', 'train.main', *arguments],
    capture_output=True,
    text=True,
    cwd=pathlib.Path(__file__).parents[3],
  )


def test_the_command_prints_it_and_stops(tmp_path):
  done = run_main(
    '--config=bert_tiny', '--print_config', '--config.train.steps=7',
    f'--workdir={tmp_path / "run"}',
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert 'train.steps = 7  # Replaces the steps of a single' in done.stdout
  assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('word', ['--help', '-h'])
def test_help_is_no_error(word):
  done = run_main(word)
  assert done.returncode == 0 and not done.stderr
  assert '--[no]print_config: Print each key' in done.stdout
