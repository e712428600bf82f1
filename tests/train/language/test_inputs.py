"""Files of prompts and questions; damaged lines are named."""

import contextlib
import os
import types

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
    (r'{"prompt": "\ud800"}', 'line 1: .*U.D800 .* is half a surrogate'),
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


def test_sources_of_ngrams_are_told_apart(tmp_path):
  for name, file in (('s', 'store.json'), ('w', 'config.json')):
    (tmp_path / name).mkdir()
    (tmp_path / name / file).touch()
  for name in ('a.txt', 'a.arpa', 'a.arpa.gz'):
    (tmp_path / name).touch()
  found = {
    name: inputs.ngram_source(str(tmp_path / name))
    for name in ('s', 'w', 'a.txt', '*.txt', 'a.arpa', 'a.arpa.gz')
  }
  assert list(found.values()) == [
    'store',
    'workdir',
    'files',
    'files',
    'arpa',
    'arpa',
  ]
  for name in ('none', 'none.arpa'):
    with pytest.raises(FileNotFoundError, match=name):
      inputs.ngram_source(str(tmp_path / name))


@pytest.mark.parametrize(
  ('kind', 'given', 'message'),
  [
    (
      'store',
      {'test': 'a'},
      '--test is of files and arpa, but T is of kind st',
    ),
    ('files', {'beside': ['a']}, '--beside is of store and workdir'),
    ('workdir', {'min_count': 2}, '--min_count is of files, but T'),
    ('arpa', {}, 'T: name the text to score by --test FILES'),
    ('store', {'mix': 1.5}, r'--mix=1.5: expected a number in \[0, 1\]'),
    (
      'store',
      {'arpa': 'a', 'kenlm': 'b', 'out': 'c', 'order': 2},
      '--arpa reads n-grams: leave --kenlm and --out and --order out',
    ),
    ('arpa', {'test': 'a', 'order': 2}, '--order is of files and store and wo'),
    ('arpa', {'test': 'a', 'smoothing': 'katz'}, '--smoothing is of files and'),
    (
      'store',
      {'kenlm': 'a', 'smoothing': 'katz'},
      '--kenlm estimates modified Kneser-Ney: leave --smoothing out',
    ),
    ('files', {'out': 'a.gz'}, '--out=a.gz: expected .* ends in .arpa or .arp'),
  ],
)
def test_options_that_do_not_fit_are_named(kind, given, message):
  names = 'order smoothing min_count test out beside tokens mix kenlm arpa'
  options = types.SimpleNamespace(
    text='T', **dict.fromkeys(names.split()) | given
  )
  with pytest.raises(ValueError, match=message):
    inputs.check_ngram_options(kind, options)


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('kneser', '--smoothing=kneser: expected one of modified_kneser_ney'),
    ('katz:1', 'katz:1: expected no numbers, found 1'),
    ('add_k:a', 'add_k:a: expected numbers behind the colon'),
    ('jelinek_mercer:0.5', 'jelinek_mercer:0.5: expected 2 numbers, found 1'),
  ],
)
def test_nonsense_about_smoothing_is_named(text, message):
  with pytest.raises(ValueError, match=message):
    inputs.parse_smoothing(text, 2)
