"""The settings of a tokenizer in the files of a Hugging Face folder.

`tokenizers` writes tokenizer.json, `transformers` the other files. Settings
that would give other ids than the tokenizers of BERT, GPT, GPT-2, ModernBERT
and RoBERTa are refused.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tokenizers
from etils import epath
from tokenizers import AddedToken

from data.vocabulary import bpe_files
from data.vocabulary.tokenizer import FLAGS

TOKENIZER_FILE = 'tokenizer.json'
CONFIG_FILE = 'tokenizer_config.json'
ADDED_FILE = 'added_tokens.json'
SPECIAL_FILE = 'special_tokens_map.json'
# The symbols of each kind, never found in a text whatever a folder says.
SYMBOLS = {
  'wordpiece': ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'),
  'bpe': ('<unk>',),
  'bytebpe': ('<|endoftext|>',),
  'modernbert': ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'),
  'roberta': ('<pad>', '<unk>', '<s>', '</s>', '<mask>'),
}


class EncoderForm(NamedTuple):
  """The form of a byte-level BPE with the symbols of an encoder.

  Attributes:
    composed: whether texts are composed (NFC) first.
    separators: how many [SEP] stand between two texts.
  """

  composed: bool
  separators: int


ENCODERS = {
  # answerdotai/ModernBERT-base
  'modernbert': EncoderForm(composed=True, separators=1),
  # FacebookAI/roberta-base
  'roberta': EncoderForm(composed=False, separators=2),
}
# fmt: off
_BERTS = (
  'Bert', 'ConvBert', 'DPRContextEncoder', 'DPRQuestionEncoder', 'DPRReader',
  'DistilBert', 'Electra', 'LayoutLM', 'MobileBert', 'RetriBert', 'SqueezeBert',
)
# fmt: on
_CLASSES = {
  'wordpiece': tuple(f'{name}Tokenizer' for name in _BERTS),
  'bpe': ('OpenAIGPTTokenizer',),
  'bytebpe': ('GPT2Tokenizer',),
  'modernbert': (),
  'roberta': ('RobertaTokenizer',),
}
# These leave everything to tokenizer.json.
_ANY_CLASS = (None, 'PreTrainedTokenizer', 'TokenizersBackend')


def _named(kind: str) -> dict[str, tuple[str | None, ...]]:
  """Returns the keys of a configuration that name symbols -> their values."""
  names = ('pad', 'unk', 'cls', 'sep', 'mask')
  return {
    f'{name}_token': (symbol, None)
    for name, symbol in zip(names, SYMBOLS[kind], strict=True)
  }


# Key of tokenizer_config.json -> allowed values, the default first.
_CONFIG = {
  'wordpiece': {
    'tokenize_chinese_chars': (True,),
    'do_basic_tokenize': (True,),
    'never_split': (None, []),
    **_named('wordpiece'),
  },
  'bpe': {'unk_token': ('<unk>',)},
  'bytebpe': {'add_prefix_space': (False,), 'add_bos_token': (False,)},
  'modernbert': _named('modernbert'),
  'roberta': {
    **_named('roberta'),
    'bos_token': ('<s>', None),
    'eos_token': ('</s>', None),
  },
}
# Keys of tokenizer.json that change no id, or are read elsewhere.
_LONGEST = 'max_input_chars_per_word'
_PREFIX_SPACE = 'add_prefix_space'
_OF_BYTES = ('vocab', 'merges', 'unk_token', 'fuse_unk', 'trim_offsets')
_FREE = {
  'wordpiece': ('vocab', _LONGEST, 'lowercase', 'strip_accents'),
  'bpe': ('vocab', 'merges'),
  'bytebpe': _OF_BYTES,
  **dict.fromkeys(ENCODERS, (*_OF_BYTES, _PREFIX_SPACE)),
}
# Other values that mean the same as null.
_LIKE_NULL = {
  'dropout': 0,
  'continuing_subword_prefix': '',
  'end_of_word_suffix': '',
  'strip_accents': True,  # of lower-cased text
}
_SEQUENCES = {'normalizer': 'normalizers', 'pre_tokenizer': 'pretokenizers'}
# Types of a post-processor -> keys of the symbols that it puts round a text.
_PROCESSORS = {
  'ByteLevel': (),
  'BertProcessing': ('cls', 'sep'),
  'RobertaProcessing': ('cls', 'sep'),
  'TemplateProcessing': ('single',),
}
# Types that name no pair -> how many separators they set between two texts.
_SEPARATORS = {'BertProcessing': 1, 'RobertaProcessing': 2}
_FLAG_TYPES = (bool, type(None))


# The content of tokenizer_config.json, tokenizer.json, added_tokens.json and
# special_tokens_map.json.
Files = tuple[dict[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings beside a vocabulary; None where no file says.

  Attributes:
    cased, strip_accents, max_word_chars: as in `wordpiece.WordPiece`.
    prefix_space: as in `encoder_byte_bpe.EncoderByteBPE`.
    added: tokens found in the text before all others, in the order of ids.
      Tokens that the vocabulary does not hold follow it.
    following: the pieces that follow the vocabulary, symbols included.
  """

  cased: bool | None = None
  strip_accents: bool | None = None
  max_word_chars: int | None = None
  prefix_space: bool | None = None
  added: tuple[AddedToken, ...] = ()
  following: tuple[str, ...] = ()


def read(
  folder: epath.Path,
  kind: str,
  pieces: Sequence[str],
  like: tokenizers.Tokenizer,
  *,
  cased: bool | None = None,
  files: Files | None = None,
) -> Settings:
  """Reads and checks the settings beside a vocabulary.

  `folder` holds the settings that `save` wrote, which then count alone; or any
  of tokenizer.json, tokenizer_config.json, and of older releases
  added_tokens.json and special_tokens_map.json. `kind` is a key of `SYMBOLS`;
  `like` a tokenizer of the kind, with any vocabulary: tokenizer.json must have
  its settings. `cased` overrides the files, which are read unless given. Raises
  ValueError, with file, key and expected value, at damage or settings of
  another tokenizer.
  """
  ours = folder / bpe_files.SETTINGS_FILE
  if ours.exists():
    return _saved(ours, cased)
  files = config, whole, *_ = files or read_files(folder)
  problems = [*_check_config(kind, config)]
  if whole:
    problems += _check_whole(kind, whole, pieces, json.loads(like.to_str()))
    problems += _check_processor(kind, config, whole)
  strip_accents = None
  if kind == 'wordpiece' and cased is None and not problems:
    cased, strip_accents, problems = _case(config, whole)
  prefix_space = None
  if kind in ENCODERS:
    prefix_space, found = _prefix_space(kind, config, whole)
    problems += found
  added, following, added_problems = _check_added(kind, pieces, files)
  if problems := [*problems, *added_problems]:
    raise ValueError(
      f'{folder} has settings of a tokenizer that are not supported: ids would '
      "differ from the publisher's:\n  "
      + '\n  '.join(problems)
      + '\nCopy a damaged file again; else take weights of another kind'
    )
  max_word_chars = whole.get('model', {}).get(_LONGEST)
  return Settings(
    cased, strip_accents, max_word_chars, prefix_space, added, following
  )


def declared(files: Files) -> set[str]:
  """Returns the added and special tokens that a folder's files name."""
  config, whole, legacy, special = files
  named = [config.get('added_tokens_decoder'), whole.get('added_tokens')]
  return {*legacy, *_strings(special), *_strings(named)}


def encoder_kind(vocab_file: epath.Path) -> str | None:
  """Returns the kind of a byte-level BPE's symbols; None for GPT-2's.

  It has all symbols of the kind; a folder may also name the tokenizer's class.
  """
  files = config, *_ = read_files(vocab_file.parent)
  if _class(config) in _CLASSES['bytebpe']:
    return None
  named, text = declared(files), vocab_file.read_bytes()
  for kind in ENCODERS:
    if _class(config) in _CLASSES[kind] or all(
      symbol in named or json.dumps(symbol).encode() in text
      for symbol in SYMBOLS[kind]
    ):
      return kind
  return None


def read_files(folder: epath.Path) -> Files:
  """Returns the four files, {} if missing; unwraps sequences of one."""
  config, whole, legacy, special = (
    bpe_files.read_object(file) if file.exists() else {}
    for name in (CONFIG_FILE, TOKENIZER_FILE, ADDED_FILE, SPECIAL_FILE)
    for file in [folder / name]
  )
  for key, parts in _SEQUENCES.items():
    section = whole.get(key)
    if isinstance(section, dict) and section.get('type') == 'Sequence':
      only = section.get(parts)
      if isinstance(only, list) and len(only) == 1:
        whole[key] = only[0]
  return config, whole, legacy, special


def _saved(file: epath.Path, cased: bool | None) -> Settings:
  """Returns the settings that `save` wrote; see `read`."""
  found = bpe_files.read_object(file)
  added = found.get('added', [])
  tokens = [*map(_token, added)] if isinstance(added, list) else [None]
  right = {
    'cased': type(found.get('cased')) in _FLAG_TYPES,
    'strip_accents': type(found.get('strip_accents')) in _FLAG_TYPES,
    'max_word_chars': _is_length(found.get('max_word_chars')),
    'prefix_space': type(found.get('prefix_space')) in _FLAG_TYPES,
    'added': None not in tokens,
  }
  for key in (key for key in right if not right[key]):
    raise ValueError(
      f'{file}: {key} is {json.dumps(found[key])[:80]}, which no tokenizer'
      ' wrote. Copy the folder again'
    )
  return Settings(
    found.get('cased'),
    found.get('strip_accents') if cased is None else None,
    found.get('max_word_chars'),
    found.get('prefix_space'),
    tuple(tokens),
  )


def _token(found: Any) -> AddedToken | None:
  """Returns the added token of a JSON object, None if it is damaged."""
  try:
    special = found.get('special', False)
    flags = {'special': special, 'normalized': not special}
    flags |= {flag: found[flag] for flag in FLAGS if flag in found}
    return AddedToken(found['content'], **flags) if found['content'] else None
  except (AttributeError, KeyError, TypeError):
    return None


def _is_length(value: Any) -> bool:
  return value is None or (type(value) is int and 0 < value < 2**31)


def _strings(value: Any) -> Iterator[str]:
  """Yields all strings in a JSON value."""
  if isinstance(value, str):
    yield value
  elif isinstance(value, dict | list):
    for part in value.values() if isinstance(value, dict) else value:
      yield from _strings(part)


def _differs(file: str, key: str, found: Any, allowed: Iterable[Any]) -> str:
  expected = ' or '.join(dict.fromkeys(json.dumps(value) for value in allowed))
  return f'{file}: {key} is {json.dumps(found)[:80]}, expected {expected}'


def _check_flags(file: str, table: Any, *keys: str) -> Iterator[str]:
  for key in keys if isinstance(table, dict) else ():
    if type(table.get(key)) not in _FLAG_TYPES:
      yield _differs(file, key, table[key], (True, False, None))


def _check_config(kind: str, config: Mapping[str, Any]) -> Iterator[str]:
  allowed_classes = (*_CLASSES[kind], *_ANY_CLASS)
  if (name := _class(config)) not in allowed_classes:
    expected = ' or '.join(filter(None, allowed_classes))
    yield f'{CONFIG_FILE}: tokenizer_class is {name!r}, expected {expected}'
  for key, allowed in _CONFIG[kind].items():
    found = config.get(key, allowed[0])
    # A token may be written with its flags.
    if isinstance(found, dict):
      found = found.get('content')
    if found not in allowed:
      yield _differs(CONFIG_FILE, key, found, allowed)
  yield from _check_flags(CONFIG_FILE, config, 'do_lower_case', 'strip_accents')


def _check_whole(
  kind: str,
  whole: Mapping[str, Any],
  pieces: Sequence[str],
  ours: Mapping[str, Any],
) -> Iterator[str]:
  """Yields the differences between a tokenizer.json and our own."""
  for section in ('model', 'normalizer', 'pre_tokenizer'):
    found, expected = whole.get(section), ours[section]
    if expected is None or not isinstance(found, dict | None):
      if found != expected:
        yield _differs(TOKENIZER_FILE, section, found, [expected])
      continue
    found = {'type': None} if found is None else found
    for key, value in expected.items():
      allowed = [value]
      if value is None and key in _LIKE_NULL:
        allowed.append(_LIKE_NULL[key])
      other = found.get(key, value)
      if key not in _FREE[kind] and other not in allowed:
        yield _differs(TOKENIZER_FILE, f'{section}.{key}', other, allowed)
  where = f'{TOKENIZER_FILE}: normalizer'
  normalizer = whole.get('normalizer')
  yield from _check_flags(where, normalizer, 'lowercase', 'strip_accents')
  model = whole.get('model')
  model = model if isinstance(model, dict) else {}
  longest = model.get(_LONGEST)
  if not _is_length(longest):
    yield (
      f'{TOKENIZER_FILE}: model.{_LONGEST} is {json.dumps(longest)[:60]},'
      f' expected a number, 1 to {2**31 - 1}, or null'
    )
  # Some programs strip pieces that are white space, which no text gives.
  names = dict(enumerate(piece.strip() for piece in pieces))
  vocab = model.get('vocab')
  if not isinstance(vocab, dict) or any(
    type(i) is not int or names.get(i) != piece.strip()
    for piece, i in (vocab or {'': None}).items()
  ):
    yield (
      f'{TOKENIZER_FILE}: model.vocab, {len(vocab or ()):,} pieces, differs'
      f' from the vocabulary beside it, {len(pieces):,} pieces'
    )


def _check_processor(
  kind: str, config: Mapping[str, Any], whole: Mapping[str, Any]
) -> Iterator[str]:
  """Yields the difference of the symbols round a text, or round two."""
  processor = whole.get('post_processor') or {'type': 'ByteLevel'}
  if not isinstance(processor, dict):
    processor = {'type': processor}
  name = str(processor.get('type'))
  parts = _PROCESSORS.get(name, ('type',))
  if name == 'RobertaProcessing' and kind not in ENCODERS:
    parts = ('type',)
  around = [
    symbol
    for part in parts
    for symbol in _strings(processor.get(part, 'nothing'))
    if symbol != 'A'  # the text
  ]
  expected = [*SYMBOLS[kind][2:4]]
  if around not in ([], expected):
    yield (
      f'{TOKENIZER_FILE}: post_processor is {json.dumps(processor)[:80]},'
      f' expected {expected} round a text or nothing'
    )
  # RoBERTa's class makes the processor anew, and sets two between texts.
  elif kind in ENCODERS and around and _class(config) not in _CLASSES[kind]:
    first, last = expected
    pair = [first, 'A', *[last] * ENCODERS[kind].separators, 'B', last]
    if name in _SEPARATORS:
      found = [first, 'A', *[last] * _SEPARATORS[name], 'B', last]
    else:
      found = [*_strings(processor.get('pair'))]
    if found != pair:
      yield _differs(
        TOKENIZER_FILE, 'post_processor for two texts', found, [pair]
      )


def _prefix_space(
  kind: str, config: Mapping[str, Any], whole: Mapping[str, Any]
) -> tuple[bool | None, list[str]]:
  """Returns whether a space is set before a text, and the problems."""
  splitter = whole.get('pre_tokenizer')
  splitter = splitter if isinstance(splitter, dict) else {}
  said = config.get(_PREFIX_SPACE), splitter.get(_PREFIX_SPACE)
  problems = [
    _differs(file, _PREFIX_SPACE, value, (True, False))
    for file, value in zip((CONFIG_FILE, TOKENIZER_FILE), said, strict=True)
    if type(value) not in _FLAG_TYPES
  ]
  if _class(config) in _CLASSES[kind]:
    return bool(said[0]), problems  # the class asks no other file
  told = [value for value in said if value is not None]
  if len({*map(str, told)}) > 1 and not problems:
    problems.append(
      f'{CONFIG_FILE}: {_PREFIX_SPACE} is {told[0]}, but {told[1]} in'
      f' {TOKENIZER_FILE}; expected the same in both'
    )
  return (told[0] if told else None), problems


def _class(config: Mapping[str, Any]) -> Any:
  name = config.get('tokenizer_class')
  return name.removesuffix('Fast') if isinstance(name, str) else name


def _case(
  config: Mapping[str, Any], whole: Mapping[str, Any]
) -> tuple[bool | None, bool | None, list[str]]:
  """Returns `cased`, `strip_accents` and a contradiction between the files."""
  normalizer = whole.get('normalizer') or {}
  found = (
    (config.get('do_lower_case'), config.get('strip_accents')),
    (normalizer.get('lowercase'), normalizer.get('strip_accents')),
  )
  said = [settings for settings in found if settings[0] is not None]
  meant = {(lower, lower if x is None else x) for lower, x in said}
  lower, accents = said[0] if said else (None, found[0][1])
  # BERT's classes make the normalizer anew, from their own settings.
  problems = []
  if len(meant) > 1 and _class(config) not in _CLASSES['wordpiece']:
    problems.append(
      f'{CONFIG_FILE}: do_lower_case is {lower} and strip_accents is {accents};'
      f' {TOKENIZER_FILE}: normalizer.lowercase is {found[1][0]} and'
      f' strip_accents is {found[1][1]}; expected the same in both'
    )
  return None if lower is None else not lower, accents, problems


def _decoder_records(config: Mapping[str, Any]) -> list[tuple[Any, Any]]:
  decoder = config.get('added_tokens_decoder')
  if not isinstance(decoder, dict):
    return [] if decoder is None else [('', decoder)]
  # More digits than Python turns into a number are no id.
  return [
    (int(i) if i.isdecimal() and len(i) < 20 else i, token)
    for i, token in decoder.items()
  ]


def _added_records(
  pieces: Sequence[str], files: Sequence[Mapping[str, Any]]
) -> tuple[str, list[tuple[Any, Any]]]:
  """Returns the file that defines the added tokens, and each with its id."""
  config, whole, legacy, special = files
  if whole:
    found = whole.get('added_tokens') or []
    tokens = found if isinstance(found, list) else [found]
    return TOKENIZER_FILE, [
      (token.get('id') if isinstance(token, dict) else None, token)
      for token in tokens
    ]
  if records := _decoder_records(config):
    return CONFIG_FILE, records
  specials = {*_strings(config), *_strings(special)}
  named = set(_strings(special))
  inside = {name: i for i, name in enumerate(pieces) if name in named}
  return ADDED_FILE, [
    (i, {'content': name, 'special': name in specials})
    for name, i in (inside | legacy).items()
  ]


def _check_added(
  kind: str, pieces: Sequence[str], files: Sequence[Mapping[str, Any]]
) -> tuple[tuple[AddedToken, ...], tuple[str, ...], list[str]]:
  """Returns added tokens that may be in a text, new pieces, and problems."""
  where, records = _added_records(pieces, files)
  problems = [
    f'{file}: added token {json.dumps(token)[:60]} with id '
    f'{json.dumps(i)[:20]} is damaged, expected a number as its id, a text as '
    'its content and flags that are true or false'
    for file, found in {
      CONFIG_FILE: _decoder_records(files[0]),
      where: records,
    }.items()
    for i, token in found
    if type(i) is not int or _token(token) is None
  ]
  if problems:
    return (), (), problems
  ids = {piece: i for i, piece in enumerate(pieces)}
  tokens = []
  for i, found in sorted(records, key=lambda item: item[0]):
    token = _token(found)
    if ids.setdefault(token.content, len(ids)) != i:
      problems.append(
        f'{where}: added token {token.content!r} has id {i}, expected '
        f'{ids[token.content]}: its place in the vocabulary, or the next one'
      )
    if token.content not in SYMBOLS[kind]:
      tokens.append(token)
  if kind == 'bpe' and tokens:
    names = ', '.join(repr(token.content) for token in tokens[:5])
    problems.append(
      f'{where}: {len(tokens)} added tokens, {names}: only its own three'
      ' symbols may follow the vocabulary of GPT'
    )
  return tuple(tokens), tuple(ids)[len(pieces) :], problems
