"""What Hugging Face folders say of a tokenizer beside its vocabulary.

tokenizer.json is written by `tokenizers` and may be the only file;
tokenizer_config.json, added_tokens.json and special_tokens_map.json are written
by `transformers`. What the tokenizers of BERT, GPT and GPT-2 can be told is
read, any other setting is refused: it would silently give other ids than the
publisher's.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath
from tokenizers import AddedToken

from data.vocabulary import bpe_files, tokenizer_files
from data.vocabulary.tokenizer_files import (
  ADDED_FILE,
  CONFIG_FILE,
  FLAGS,
  TOKENIZER_FILE,
)

# The symbols of each kind that texts never give, whatever a folder says.
SYMBOLS = {
  'wordpiece': ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'),
  'bpe': ('<unk>',),
  'bytebpe': ('<|endoftext|>',),
}
_CLASSES = {
  'wordpiece': (
    'BertTokenizer',
    'ConvBertTokenizer',
    'DPRContextEncoderTokenizer',
    'DPRQuestionEncoderTokenizer',
    'DPRReaderTokenizer',
    'DistilBertTokenizer',
    'ElectraTokenizer',
    'LayoutLMTokenizer',
    'MobileBertTokenizer',
    'RetriBertTokenizer',
    'SqueezeBertTokenizer',
  ),
  'bpe': ('OpenAIGPTTokenizer',),
  'bytebpe': ('GPT2Tokenizer',),
}
# These leave everything to tokenizer.json.
_ANY_CLASS = (None, 'PreTrainedTokenizer', 'TokenizersBackend')
# Key -> the values that we have; a key that is not there has the first.
_CONFIG = {
  'wordpiece': {
    'tokenize_chinese_chars': (True,),
    'do_basic_tokenize': (True,),
    'never_split': (None, []),
    'unk_token': ('[UNK]', None),
    'cls_token': ('[CLS]', None),
    'sep_token': ('[SEP]', None),
    'pad_token': ('[PAD]', None),
    'mask_token': ('[MASK]', None),
  },
  'bpe': {'unk_token': ('<unk>',)},
  'bytebpe': {'add_prefix_space': (False,), 'add_bos_token': (False,)},
}
_BERT_WORDS = {
  'normalizer.type': ('BertNormalizer',),
  'normalizer.clean_text': (True,),
  'normalizer.handle_chinese_chars': (True,),
  'pre_tokenizer.type': ('BertPreTokenizer',),
}
_BPE_MODEL = {
  'model.type': ('BPE',),
  'model.dropout': (None, 0),
  'model.continuing_subword_prefix': (None, ''),
  'model.byte_fallback': (False,),
  'model.ignore_merges': (False,),
}
_JSON = {
  'wordpiece': {
    'model.type': ('WordPiece',),
    'model.unk_token': ('[UNK]',),
    'model.continuing_subword_prefix': ('##',),
    **_BERT_WORDS,
  },
  'bpe': {
    **_BPE_MODEL,
    'model.unk_token': ('<unk>',),
    'model.end_of_word_suffix': ('</w>',),
    'model.fuse_unk': (False,),
    **_BERT_WORDS,
    'normalizer.lowercase': (True,),
    'normalizer.strip_accents': (None, True),
  },
  'bytebpe': {
    **_BPE_MODEL,
    'model.end_of_word_suffix': (None, ''),
    'normalizer': (None,),
    'pre_tokenizer.type': ('ByteLevel',),
    'pre_tokenizer.add_prefix_space': (False,),
    'pre_tokenizer.use_regex': (True,),
  },
}
_AROUND = {'wordpiece': ['[CLS]', '[SEP]'], 'bpe': [], 'bytebpe': []}


@dataclasses.dataclass(frozen=True)
class Settings:
  """What stands beside a vocabulary.

  Attributes:
    cased: of WordPiece; None: nobody told.
    strip_accents: of WordPiece; None: uncased text loses its accents.
    max_word_chars: of WordPiece, the longest word that is not unknown; None:
      nobody told.
    added: tokens that are found in the text before anything else is, in the
      order of ids. Those that the vocabulary does not hold follow it.
  """

  cased: bool | None = None
  strip_accents: bool | None = None
  max_word_chars: int | None = None
  added: tuple[AddedToken, ...] = ()


def read(
  folder: epath.Path,
  kind: str,
  pieces: Sequence[str],
  *,
  cased: bool | None = None,
) -> Settings:
  """Reads and checks what stands beside a vocabulary.

  Args:
    folder: with what `save` wrote, which then counts alone; or with any of
      tokenizer.json, tokenizer_config.json, and of older releases
      added_tokens.json and special_tokens_map.json.
    kind: 'wordpiece', 'bpe' or 'bytebpe'.
    pieces: of the vocabulary, in the order of ids.
    cased: overrides what the files say of case and accents.

  Raises:
    ValueError: if a file is damaged, or tells what we do not have: then all
      that does, with file and key.
  """
  ours = folder / bpe_files.SETTINGS_FILE
  if ours.exists():
    return _saved(ours, cased)
  strip_accents = None
  config, whole, legacy, special = tokenizer_files.read(folder)
  problems = [*_check_config(kind, config), *_check_whole(kind, whole, pieces)]
  if kind == 'wordpiece' and cased is None:
    cased, strip_accents, case_problems = _case(config, whole)
    problems += case_problems
  where, records = _added_records(pieces, config, whole, legacy, special)
  added, added_problems = _check_added(kind, pieces, where, records)
  problems += added_problems
  if problems:
    raise ValueError(
      f'{folder} has settings of a tokenizer that are not here; its ids would '
      "be others than the publisher's:\n  "
      + '\n  '.join(problems)
      + '\nCorrect the file if it is wrong, else take weights of another kind'
    )
  max_word_chars = whole.get('model', {}).get('max_input_chars_per_word')
  return Settings(cased, strip_accents, max_word_chars, added)


def _saved(file: epath.Path, cased: bool | None) -> Settings:
  """Returns what `save` wrote; see `read`."""
  found = bpe_files.read_object(file)
  for key in ('cased', 'strip_accents'):
    if type(found.get(key)) not in (bool, type(None)):
      raise ValueError(
        f'{file}: {key} is {json.dumps(found[key])[:60]}, expected true, false'
        ' or null'
      )
  max_word_chars = found.get('max_word_chars')
  if not tokenizer_files.is_length(max_word_chars):
    raise ValueError(
      f'{file}: max_word_chars is {json.dumps(max_word_chars)[:60]}, expected 1'
      f' to {2**31 - 1} or null'
    )
  try:
    added = tuple(AddedToken(**token) for token in found.get('added', ()))
  except TypeError as error:
    raise ValueError(
      f'{file}: `added` is not what was written there ({error}); copy the '
      'folder again'
    ) from None
  if any(not token.content for token in added):
    raise ValueError(f'{file}: the content of a token in `added` is empty')
  return Settings(
    found.get('cased'),
    found.get('strip_accents') if cased is None else None,
    max_word_chars,
    added,
  )


def declared(folder: epath.Path) -> set[str]:
  """Returns the added and special tokens that a folder's files tell of.

  Raises:
    ValueError: if one is damaged.
  """
  config, whole, legacy, special = tokenizer_files.read(folder)
  named = [config.get('added_tokens_decoder'), whole.get('added_tokens')]
  return {*legacy, *_strings(special), *_strings(named)}


def kind_of(file: epath.Path) -> str:
  """Returns the kind of a tokenizer.json: 'wordpiece', 'bpe' or 'bytebpe'.

  Raises:
    ValueError: if it is damaged, or of a kind that we do not have.
  """
  model = bpe_files.read_object(file).get('model')
  model = model if isinstance(model, dict) else {}
  # Older files have no `type`.
  type_ = model.get('type') or ('BPE' if 'merges' in model else 'WordPiece')
  if type_ not in ('BPE', 'WordPiece') or 'vocab' not in model:
    raise ValueError(
      f'{file}: model.type is {model.get("type")!r}, expected WordPiece (BERT) '
      'or BPE (GPT, GPT-2) with its vocab'
    )
  if type_ == 'WordPiece':
    return 'wordpiece'
  return 'bpe' if model.get('end_of_word_suffix') else 'bytebpe'


def record(token: AddedToken) -> dict[str, Any]:
  """Returns what an added token is made from."""
  return {
    'content': token.content,
    **{flag: getattr(token, flag) for flag in FLAGS},
  }


def with_added(
  pieces: Sequence[str], added: Sequence[AddedToken]
) -> tuple[str, ...]:
  """Returns the pieces, and after them the added ones that are none yet."""
  return tuple(dict.fromkeys([*pieces, *(token.content for token in added)]))


# --- Checks


def _check_config(kind: str, config: Mapping[str, Any]) -> Iterator[str]:
  name = _class(config)
  if name not in (*_ANY_CLASS, *_CLASSES[kind]):
    expected = ' or '.join((*_CLASSES[kind], *_ANY_CLASS[1:]))
    yield f'{CONFIG_FILE}: tokenizer_class is {name!r}, expected {expected}'
  for key, allowed in _CONFIG[kind].items():
    found = config.get(key, allowed[0])
    # A token may be written with its flags.
    if isinstance(found, dict):
      found = found.get('content')
    if found not in allowed:
      yield _differs(CONFIG_FILE, key, found, allowed)


def _check_whole(
  kind: str, whole: Mapping[str, Any], pieces: Sequence[str]
) -> Iterator[str]:
  """Of a tokenizer.json; `whole` is empty where there is none."""
  if not whole:
    return
  vocab = (whole.get('model') or {}).get('vocab')
  if not isinstance(vocab, dict) or {*map(type, vocab.values())} != {int}:
    yield (
      f'{TOKENIZER_FILE}: model.vocab is no object piece -> id, as that of '
      'WordPiece or BPE is'
    )
    return
  for key, allowed in _JSON[kind].items():
    section, _, name = key.partition('.')
    found = whole.get(section)
    if name:
      # Nothing in place of a section is told once, at its type.
      found = found or ({'type': None} if name == 'type' else {})
      found = found.get(name, allowed[0])
    if found not in allowed:
      yield _differs(TOKENIZER_FILE, key, found, allowed)
  # Some programs strip pieces that are white space, which no text gives.
  names = dict(enumerate(piece.strip() for piece in pieces))
  if any(names.get(i) != piece.strip() for piece, i in vocab.items()):
    yield (
      f'{TOKENIZER_FILE}: model.vocab, {len(vocab):,} pieces, is another than '
      f'that of the files beside it, {len(pieces):,} pieces'
    )
  around = tokenizer_files.around(whole.get('post_processor'))
  if around not in ([], _AROUND[kind]):
    yield _differs(
      TOKENIZER_FILE, 'post_processor', around, ([], _AROUND[kind])
    )


def _class(config: Mapping[str, Any]) -> Any:
  """The class of a tokenizer, without Fast; None if none is told."""
  name = config.get('tokenizer_class')
  return name.removesuffix('Fast') if isinstance(name, str) else name


def _case(
  config: Mapping[str, Any], whole: Mapping[str, Any]
) -> tuple[bool | None, bool | None, list[str]]:
  """Returns `cased`, `strip_accents` and what contradicts itself."""
  told = [
    (where, key, settings[key], settings.get('strip_accents'))
    for where, key, settings in (
      (CONFIG_FILE, 'do_lower_case', config),
      (
        f'{TOKENIZER_FILE}, normalizer',
        'lowercase',
        whole.get('normalizer') or {},
      ),
    )
    if isinstance(settings.get(key), bool)
  ]
  if not told:
    return None, config.get('strip_accents'), []
  problems = []
  # BERT's classes make the normalizer anew, from their own settings.
  if _class(config) not in _CLASSES['wordpiece'] and 1 < len(
    {(lower, lower if x is None else x) for _, _, lower, x in told}
  ):
    said = ', '.join(
      f'{where}: {key} is {lower} and strip_accents is {accents}'
      for where, key, lower, accents in told
    )
    problems.append(f'{said}; expected the same in both')
  _, _, lower, accents = told[0]
  return not lower, accents, problems


def _added_records(
  pieces: Sequence[str],
  config: Mapping[str, Any],
  whole: Mapping[str, Any],
  legacy: Mapping[str, Any],
  special: Mapping[str, Any],
) -> tuple[str, list[tuple[int, Mapping[str, Any]]]]:
  """Returns the file that tells of added tokens, and each with its id."""
  if whole:
    tokens = whole.get('added_tokens') or ()
    return TOKENIZER_FILE, [(token['id'], token) for token in tokens]
  if decoder := config.get('added_tokens_decoder'):
    return CONFIG_FILE, [(int(i), token) for i, token in decoder.items()]
  specials = {*_strings(config), *_strings(special)}
  named = set(_strings(special))
  inside = {name: i for i, name in enumerate(pieces) if name in named}
  return ADDED_FILE, [
    (i, {'content': name, 'special': name in specials})
    for name, i in (inside | legacy).items()
  ]


def _check_added(
  kind: str,
  pieces: Sequence[str],
  where: str,
  records: Sequence[tuple[int, Mapping[str, Any]]],
) -> tuple[tuple[AddedToken, ...], list[str]]:
  """Returns the added tokens that texts give, and what is wrong with any."""
  ids = {piece: i for i, piece in enumerate(pieces)}
  tokens, problems = [], []
  for i, token in sorted(records, key=lambda item: item[0]):
    name = token['content']
    if ids.setdefault(name, len(ids)) != i:
      problems.append(
        f'{where}: added token {name!r} has id {i}, expected {ids[name]}: its '
        'place in the vocabulary, or the next one after it'
      )
    if name in SYMBOLS[kind]:
      continue
    special = token.get('special', False)
    flags = {'normalized': not special, 'special': special}
    flags |= {flag: token[flag] for flag in FLAGS if flag in token}
    tokens.append(AddedToken(name, **flags))
  if kind == 'bpe' and tokens:
    names = ', '.join(repr(token.content) for token in tokens[:5])
    problems.append(
      f'{where}: {len(tokens)} added tokens, {names}: none may follow the '
      'vocabulary of GPT but its own three symbols'
    )
  return tuple(tokens), problems


def _strings(value: Any) -> Iterator[str]:
  """All strings in a JSON value."""
  if isinstance(value, str):
    yield value
  elif isinstance(value, dict | list):
    for part in value.values() if isinstance(value, dict) else value:
      yield from _strings(part)


def _differs(file: str, key: str, found: Any, allowed: Sequence[Any]) -> str:
  expected = ' or '.join(dict.fromkeys(json.dumps(value) for value in allowed))
  return f'{file}: {key} is {json.dumps(found)}, expected {expected}'
