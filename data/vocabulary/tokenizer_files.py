"""The files of a Hugging Face folder that tell of a tokenizer, as they stand.

What they may say is checked in `tokenizer_json`; here, that they are whole.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from data.vocabulary import bpe_files

TOKENIZER_FILE = 'tokenizer.json'
CONFIG_FILE = 'tokenizer_config.json'
ADDED_FILE = 'added_tokens.json'
SPECIAL_FILE = 'special_tokens_map.json'
FLAGS = ('single_word', 'lstrip', 'rstrip', 'normalized', 'special')

_SEQUENCES = {'normalizer': 'normalizers', 'pre_tokenizer': 'pretokenizers'}
_NAMES = {
  dict: 'an object',
  list: 'a list',
  str: 'a string',
  int: 'a number',
  bool: 'true or false',
  type(None): 'null',
}


def read(folder: epath.Path) -> tuple[dict[str, Any], ...]:
  """Reads tokenizer_config, tokenizer, added_tokens and special_tokens_map.

  Returns:
    The four objects, {} where there is no file. A sequence of one normaliser
    or pre-tokeniser is that one.

  Raises:
    ValueError: if one is damaged; all places, with file and key.
  """
  config, whole, legacy, special = (
    bpe_files.read_object(file) if file.exists() else {}
    for name in (CONFIG_FILE, TOKENIZER_FILE, ADDED_FILE, SPECIAL_FILE)
    for file in [folder / name]
  )
  damages = [
    f'{file}: {key} is {json.dumps(found)[:60]}, expected '
    + ' or '.join(_NAMES[type_] for type_ in types)
    for file, key, found, *types in _parts(config, whole, legacy)
    if type(found) not in types
  ] or [*_check_around(whole), *_check_values(config, whole)]
  if damages:
    raise ValueError(
      f'{folder} has damaged files of a tokenizer:\n  '
      + '\n  '.join(damages)
      + '\nCopy them again'
    )
  for key, parts in _SEQUENCES.items():
    section = whole.get(key) or {}
    if section.get('type') == 'Sequence' and len(section.get(parts, ())) == 1:
      (whole[key],) = section[parts]
  return config, whole, legacy, special


def around(processor: Mapping[str, Any] | None) -> list[str]:
  """Returns the symbols that a post-processor puts round a text."""
  if processor is None or processor.get('type') == 'ByteLevel':
    return []
  if processor.get('type') == 'BertProcessing':
    return [processor['cls'][0], processor['sep'][0]]
  if processor.get('type') == 'TemplateProcessing':
    return [
      part['SpecialToken']['id']
      for part in processor['single']
      if 'SpecialToken' in part
    ]
  return [str(processor.get('type'))]


def _parts(
  config: Mapping[str, Any], whole: Mapping[str, Any], legacy: Mapping[str, Any]
) -> Iterator[tuple[Any, ...]]:
  """Yields file, key, what stands there, and the types that it may have."""
  for key in ('model', 'normalizer', 'pre_tokenizer', 'post_processor'):
    yield TOKENIZER_FILE, key, whole.get(key), dict, type(None)
  for key, parts in _SEQUENCES.items():
    if isinstance(section := whole.get(key), dict) and parts in section:
      yield TOKENIZER_FILE, f'{key}.{parts}', section[parts], list
      if isinstance(section[parts], list):
        for i, part in enumerate(section[parts]):
          yield TOKENIZER_FILE, f'{key}.{parts}[{i}]', part, dict
  if isinstance(model := whole.get('model'), dict):
    key = 'max_input_chars_per_word'
    yield TOKENIZER_FILE, f'model.{key}', model.get(key), int, type(None)
  for key in ('do_lower_case', 'strip_accents'):
    yield CONFIG_FILE, key, config.get(key), bool, type(None)
  tokens = whole.get('added_tokens')
  yield TOKENIZER_FILE, 'added_tokens', tokens, list, type(None)
  if isinstance(tokens, list):
    for i, token in enumerate(tokens):
      yield from _token_parts(TOKENIZER_FILE, f'added_tokens[{i}]', token)
      if isinstance(token, dict):
        yield TOKENIZER_FILE, f'added_tokens[{i}].id', token.get('id'), int
  tokens = config.get('added_tokens_decoder')
  yield CONFIG_FILE, 'added_tokens_decoder', tokens, dict, type(None)
  if isinstance(tokens, dict):
    for i, token in tokens.items():
      key = f'added_tokens_decoder.{i}'
      yield from _token_parts(CONFIG_FILE, key, token)
      # More digits than Python turns into a number are none.
      number = int(i) if i.isdecimal() and len(i) < 20 else i
      yield CONFIG_FILE, f'{key}, its id', number, int
  for name, i in legacy.items():
    yield ADDED_FILE, repr(name), i, int


def _token_parts(file: str, key: str, token: Any) -> Iterator[tuple[Any, ...]]:
  yield file, key, token, dict
  if isinstance(token, dict):
    yield file, f'{key}.content', token.get('content'), str
    for flag in FLAGS:
      yield file, f'{key}.{flag}', token.get(flag, False), bool


def is_length(value: Any) -> bool:
  """Returns whether a value can be the longest word that is not unknown."""
  return value is None or (type(value) is int and 0 < value < 2**31)


def _check_values(
  config: Mapping[str, Any], whole: Mapping[str, Any]
) -> Iterator[str]:
  """Of what has the right type: numbers out of range, tokens of nothing."""
  key = 'max_input_chars_per_word'
  found = (whole.get('model') or {}).get(key)
  if not is_length(found):
    yield f'{TOKENIZER_FILE}: model.{key} is {found}, expected 1 to {2**31 - 1}'
  decoder = config.get('added_tokens_decoder') or {}
  for file, tokens in (
    (TOKENIZER_FILE, whole.get('added_tokens') or ()),
    (CONFIG_FILE, decoder.values()),
  ):
    if any(not token['content'] for token in tokens):
      yield f'{file}: the content of an added token is empty'


def _check_around(whole: Mapping[str, Any]) -> Iterator[str]:
  processor = whole.get('post_processor')
  try:
    around(processor)
  except (AttributeError, IndexError, KeyError, TypeError):
    yield (
      f'{TOKENIZER_FILE}: post_processor is {json.dumps(processor)[:80]}, '
      'which does not say what it puts round a text'
    )
