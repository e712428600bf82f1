"""Vocabularies that no publisher writes are refused by name."""

import json

import pytest
from etils import epath

from data.vocabulary import bpe_files, tokenization, wordpiece


@pytest.mark.parametrize(
  'content, message',
  [
    ('[' * 100_000, 'lists and objects inside one another'),
    ('{"x": ' * 60 + '1' + '}' * 60, 'lists and objects inside one another'),
    ('{"x": NaN}', 'NaN is no number of JSON'),
    ('{"x": ' + '9' * 5000 + '}', 'Exceeds the limit'),
    ('{"x": 1, "x": 2}', "'x' stands in it twice"),
  ],
)
def test_hostile_json(content, message, tmp_path):
  file = tmp_path / 'encoder.json'
  file.write_text(content)
  with pytest.raises(ValueError, match=message) as caught:
    bpe_files.read_object(epath.Path(file))
  assert str(caught.value).startswith(f'{file}: ')
  assert len(str(caught.value)) < 500


PIECES = [*wordpiece.SPECIALS, 'a', '##b']


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'type': ['wordpiece']}, 'type'),
    ({'max_word_chars': -1}, 'max_word_chars is -1'),
    ({'max_word_chars': 10**30}, 'max_word_chars is 1'),
    ({'max_word_chars': '9'}, 'max_word_chars is "9"'),
    ({'cased': 'no'}, 'cased is "no"'),
    ({'strip_accents': []}, r'strip_accents is \[\]'),
    ({'added': 5}, 'added'),
    ({'added': ['x']}, 'added'),
    ({'added': [{'content': 5}]}, 'added'),
    ({'added': [{'content': '\ud800'}]}, 'added|surrogate'),
    ({'added': [{'content': ''}]}, 'added'),
  ],
)
def test_hostile_settings(settings, message, tmp_path):
  (tmp_path / 'vocab.txt').write_text('\n'.join(PIECES))
  file = tmp_path / bpe_files.SETTINGS_FILE
  file.write_text(json.dumps({'type': 'wordpiece'} | settings))
  with pytest.raises(ValueError, match=message) as caught:
    tokenization.load(tmp_path)
  assert str(file) in str(caught.value)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'max_input_chars_per_word': -1}, 'max_input_chars_per_word is -1'),
    ({'max_input_chars_per_word': 1 << 70}, 'max_input_chars_per_word is 1'),
    ({'vocab': {**{p: i for i, p in enumerate(PIECES)}, '\ud800': 7}}, 'surr'),
    ({'vocab': [1]}, 'found list'),
    ({'vocab': {'a': True}}, 'id True'),
  ],
)
def test_hostile_models(changes, message, tmp_path):
  vocab = {piece: i for i, piece in enumerate(PIECES)}
  model = {'type': 'WordPiece', 'unk_token': '[UNK]', 'vocab': vocab} | changes
  file = tmp_path / 'tokenizer.json'
  file.write_text(
    json.dumps(
      {
        'model': model,
        'normalizer': {'type': 'BertNormalizer', 'lowercase': True},
        'pre_tokenizer': {'type': 'BertPreTokenizer'},
      }
    )
  )
  with pytest.raises(ValueError, match=message) as caught:
    tokenization.load(tmp_path)
  assert str(tmp_path) in str(caught.value)
