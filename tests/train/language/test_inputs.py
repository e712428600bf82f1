"""Files of prompts and questions; damaged lines are named."""

import contextlib
import os

import pytest

from train.language import inputs


@contextlib.contextmanager
def standard_input(path):
  before = os.dup(0)
  with path.open('rb') as file:
    os.dup2(file.fileno(), 0)
  try:
    yield
  finally:
    os.dup2(before, 0)
    os.close(before)


def test_prompt_files(tmp_path):
  path = tmp_path / 'prompts.jsonl'
  path.write_text('{"prompt": "a", "id": 7}\n\n{"prompt": "b"}\n')
  assert inputs.read_prompts(str(path)) == [
    {'prompt': 'a', 'id': 7},
    {'prompt': 'b'},
  ]
  with standard_input(path):
    assert inputs.read_prompts('-') == inputs.read_prompts(str(path))
  for text, message in (
    (
      '{"prompt": "a"}\n{"text": "b"}',
      'line 2: expected {"prompt": text}, and',
    ),
    ('{"prompt": ', 'line 1: not JSON'),
    ('\n', 'is empty; expected'),
    ('{"prompt": "a", "text": "b"}', 'line 1: expected .* none of the fields'),
    (r'{"prompt": "\ud800"}', 'line 1: holds U.D800, half a surrogate'),
  ):
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
      inputs.read_prompts(str(path))
  path.write_bytes(b'{"prompt": "\xff"}')
  with pytest.raises(ValueError, match='not UTF-8 at byte 12'):
    inputs.read_prompts(str(path))


@pytest.mark.parametrize(
  'line',
  [
    '{"context": "a", "choices": ["b"]}',
    '{"context": "a", "choices": ["b", "c"], "label": 2}',
    '{"choices": ["b", "c"]}',
    '[1]',
  ],
)
def test_damaged_choices_are_named(line, tmp_path):
  path = tmp_path / 'choices.jsonl'
  path.write_text('{"context": "a", "choices": ["b", "c"]}\n' + line + '\n')
  with pytest.raises(ValueError, match='line 2: expected {"context": text'):
    inputs.read_choices(str(path))


def test_texts_with_masks(tmp_path):
  path = tmp_path / 'texts'
  path.write_text('a [MASK]\n\nb\n')
  prompts = inputs.read_masked(str(path))
  assert prompts == ['a [MASK]', 'b']
  inputs.check_masked(prompts[:1])
  with pytest.raises(ValueError, match="found none in\n  text 2: 'b'"):
    inputs.check_masked(prompts)
  path.write_text('\n')
  with pytest.raises(ValueError, match='is empty, expected a text with'):
    inputs.read_masked(str(path))
