"""Loads, trains and extends tokenizers.

`load` recognises a tokenizer by its files, `train` makes a new one of a text.
WordPiece (BERT) is in `wordpiece`. Imported where one is met: the byte-pair
encodings of GPT, of GPT-2, of ModernBERT and RoBERTa, in `bpe`, `byte_bpe` and
`encoder_byte_bpe`, and the whole words of ELMo, in `words`.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from etils import epath

from data import hub
from data.vocabulary import (
  bpe_files,
  tokenizer_json,
  word_counts,
  wordpiece,
)
from data.vocabulary.encoder_tokenizer import (
  EncoderTokenizer,
  MaskingTokenizer,
)
from data.vocabulary.tokenizer import Tokenizer
from data.vocabulary.wordpiece import WordPiece

__all__ = [
  'EncoderTokenizer',
  'MaskingTokenizer',
  'Tokenizer',
  'WordPiece',
  'has_vocabulary',
  'inherited_ids',
  'load',
  'train',
]

FORMS = (
  'train:wordpiece:N[:cased], train:bpe:N (of the kind of GPT) or '
  "train:bytebpe:N (of GPT-2's) with N pieces, train:words:N[:spaces] (of "
  "ELMo's) with N words to predict, or the path of a vocabulary"
)
# Symbols, bytes and letters come first, and leave room for something new.
LEAST_SIZES = {
  'wordpiece': 50,
  'bpe': 50,
  'bytebpe': 257,
  'words': bpe_files.FEWEST_WORDS,
}
_BPE_FILES = (bpe_files.VOCAB_FILE, bpe_files.MERGES_FILE)
_SAVED = {
  'wordpiece': (wordpiece.VOCAB_FILE,),
  'bpe': _BPE_FILES,
  'bytebpe': _BPE_FILES,
  'words': (bpe_files.WORDS_FILE,),
  **dict.fromkeys(tokenizer_json.ENCODERS, _BPE_FILES),
}
# As published; a tokenizer.json only where there is nothing else.
_PUBLISHED = (
  ('wordpiece', (wordpiece.VOCAB_FILE,)),
  ('bpe', ('encoder_bpe_40000.json', 'vocab_40000.bpe')),
  ('bytebpe', _BPE_FILES),
  (None, ('vocab.json', 'merges.txt')),
  ('words', (bpe_files.WORDS_FILE,)),
  (None, (tokenizer_json.TOKENIZER_FILE,)),
)


def load(
  path: str | pathlib.Path | epath.Path, *, cased: bool | None = None
) -> Tokenizer:
  """Loads a published vocabulary, or one that `save` wrote.

  `path` is a file with the others beside it; or their folder: a token store, a
  workdir, published weights; or a name on Hugging Face's hub (`hub`).
  WordPiece: a vocab.txt. GPT: encoder_bpe_40000.json and vocab_40000.bpe.
  GPT-2: encoder.json and vocab.bpe. vocab.json and merges.txt may be of any
  byte-pair encoding, a tokenizer.json of any kind but ELMo's. ELMo: a
  words.txt, or a file of any name that begins with <S>, </S>, <UNK>. `cased` is
  as in `wordpiece.load_wordpiece`. Raises FileNotFoundError if a file is
  missing, and ValueError, with line or key, if one is damaged or of another
  kind.
  """
  try:
    path = hub.find(path, vocabulary_only=True)
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'no vocabulary: {error}; give a vocab.txt, a words.txt, the vocabulary '
      'of a BPE with its merges beside it, a folder with them, a name such as '
      "google-bert/bert-base-uncased, or 'train:wordpiece:8000'"
    ) from error
  kind, files = _find(path)
  missing = [file for file in files if not file.exists()]
  if missing:
    raise FileNotFoundError(
      f'no {missing[0].name} beside {path}: a byte-pair encoding is its '
      f'vocabulary and its merges, {" and ".join(f.name for f in files)}'
    )
  is_whole = files[0].name == tokenizer_json.TOKENIZER_FILE
  if is_whole or kind is None:
    if is_whole:
      kind = _kind_of(files[0])
    else:
      kind = 'bpe' if b'</w>"' in files[0].read_bytes() else 'bytebpe'
    if kind == 'bytebpe':
      kind = tokenizer_json.encoder_kind(files[0]) or kind
  # ELMo's published vocabularies go by any name.
  elif kind == 'wordpiece' and bpe_files.begins_like_words(files[0]):
    kind = 'words'
  if kind == 'wordpiece':
    return wordpiece.load_wordpiece(files[0], cased=cased)
  if cased is not None:
    raise ValueError(f'{path}: only WordPiece is cased or not, give no `cased`')
  if kind == 'words':
    from data.vocabulary import words

    return words.load_words(files[0], _settings_of_words(files[0]))
  vocab_file, merges_file = files[0], files[-1]
  if kind == 'bytebpe':
    from data.vocabulary import byte_bpe

    return byte_bpe.load_byte_bpe(vocab_file, merges_file)
  if kind in tokenizer_json.ENCODERS:
    from data.vocabulary import encoder_byte_bpe

    return encoder_byte_bpe.load(kind, vocab_file, merges_file)
  from data.vocabulary import bpe

  return bpe.load_bpe(
    vocab_file, merges_file, words=_settings(vocab_file.parent).get('words')
  )


def has_vocabulary(folder: epath.PathLike) -> bool:
  """Returns whether a folder holds a vocabulary, even a damaged one."""
  try:
    _find(epath.Path(folder))
  except FileNotFoundError:
    return False
  except ValueError:  # its settings are damaged
    return True
  return True


def _find(path: epath.Path) -> tuple[str | None, list[epath.Path]]:
  """Returns a vocabulary's kind, None if its content decides, and its files."""
  folder = path if path.is_dir() else path.parent
  recorded = _settings(folder).get('type')
  known = [*_PUBLISHED]
  if recorded in _SAVED:
    known.insert(0, (recorded, _SAVED[recorded]))
  for kind, names in known:
    files = [folder / name for name in names]
    if any(file.exists() if path.is_dir() else file == path for file in files):
      return kind, files
  if not path.is_dir():
    return 'wordpiece', [path]
  raise FileNotFoundError(
    f'folder {path} holds no {wordpiece.VOCAB_FILE}, no'
    f' {bpe_files.WORDS_FILE}, no encoder.json with vocab.bpe and no'
    ' tokenizer.json; give a vocabulary, a folder with one, or'
    " 'train:wordpiece:8000'"
  )


def _kind_of(file: epath.Path) -> str:
  """Returns the kind of a tokenizer.json: 'wordpiece', 'bpe' or 'bytebpe'."""
  model = bpe_files.read_object(file).get('model')
  model = model if isinstance(model, dict) else {}
  # Older files have no `type`.
  type_ = model.get('type') or ('BPE' if 'merges' in model else 'WordPiece')
  if type_ not in ('BPE', 'WordPiece') or 'vocab' not in model:
    raise ValueError(
      f'{file}: model.type is {model.get("type")!r}, expected WordPiece (BERT) '
      'or BPE (GPT, GPT-2, ModernBERT, RoBERTa) with its vocab'
    )
  if type_ == 'WordPiece':
    return 'wordpiece'
  return 'bpe' if model.get('end_of_word_suffix') else 'bytebpe'


def _settings_of_words(file: epath.Path) -> dict[str, Any]:
  """Returns the settings of a words.txt; empty if we did not write the file."""
  settings = _settings(file.parent)
  ours = file.name == bpe_files.WORDS_FILE and settings.get('type') == 'words'
  return settings if ours else {}


def _settings(folder: epath.Path) -> dict[str, Any]:
  """Returns the settings that `save` wrote; empty if published."""
  file = folder / bpe_files.SETTINGS_FILE
  found = bpe_files.read_object(file) if file.exists() else {}
  if not isinstance(found.get('type', ''), str):
    raise ValueError(
      f'{file}: type is {str(found["type"])[:60]}, expected {", ".join(_SAVED)}'
    )
  return found


# Pieces mean something else if one of these settings differs.
_SETTINGS = ('cased', 'strip_accents', 'words', 'kind', 'prefix_space')


def inherited_ids(tokenizer: Tokenizer, base: Tokenizer) -> np.ndarray:
  """Returns the ids in `base` of an extended vocabulary's pieces, int32 [V].

  New pieces have -1. `tokenizer` begins with all pieces of `base`; the three
  symbols of GPT come last in both. Pieces keep their meaning even if new merges
  or a longer longest word give other ids for an old text. `base` is not
  `Words`, sorted by frequency. Raises ValueError if a setting or piece differs.
  """
  from data.vocabulary import bpe

  if base.whole_words:
    raise ValueError('whole words are sorted by frequency: none are added')
  if type(tokenizer) is not type(base):
    raise ValueError(
      f'the one is {base.description}, the other {tokenizer.description}'
    )
  for name in _SETTINGS:
    old, new = getattr(base, name, None), getattr(tokenizer, name, None)
    if old != new:
      raise ValueError(f'`{name}` is {old!r} in the one, {new!r} in the other')
  last = len(bpe.SPECIALS) if isinstance(base, bpe.BPE) else 0
  kept = base.vocab_size - last
  new = tokenizer.vocab_size - base.vocab_size
  if new < 0:
    raise ValueError(
      f'the one has {base.vocab_size:,} pieces, the other only '
      f'{tokenizer.vocab_size:,}'
    )
  for i, (old, piece) in enumerate(
    zip(base.pieces[:kept], tokenizer.pieces, strict=False)
  ):
    if old != piece:
      raise ValueError(
        f'piece {i:,} is {old!r} in the one, {piece!r} in the other; a larger '
        'vocabulary begins with all pieces of the smaller one'
      )
  ids = np.arange(base.vocab_size, dtype=np.int32)
  return np.concatenate([ids[:kept], np.full(new, -1, np.int32), ids[kept:]])


@dataclasses.dataclass(frozen=True)
class Training:
  """A vocabulary to be trained.

  Attributes:
    kind: 'wordpiece', 'bpe', 'bytebpe' or 'words'.
    size: V, including symbols that no text gives; of words, the predicted ones.
    cased: keep case and accents; WordPiece only.
    split: how words are found, see `words.split_words`; words only.
  """

  kind: str
  size: int
  cased: bool = False
  split: str = 'marks'

  def __post_init__(self) -> None:
    """Raises ValueError for a size below `LEAST_SIZES`."""
    if self.size < (least := LEAST_SIZES[self.kind]):
      found = f'train:{self.kind}:{self.size}'
      raise ValueError(f'tokenizer {found!r}: expected {least} pieces or more')

  @property
  def white_space(self) -> str:
    """The white space of the trained tokenizer; see `Tokenizer`."""
    if self.kind == 'bpe':
      from data.vocabulary import bpe

      return bpe.white_space_of(bpe.default_words())
    return 'kept' if self.kind == 'bytebpe' else 'ignored'


def parse_training(tokenizer: str) -> Training | None:
  """Parses `train:KIND:N[:cased|:spaces]`; returns None for a path."""
  if not tokenizer.startswith('train:'):
    return None
  match = re.fullmatch(
    r'train:(?:(wordpiece):(\d+)(:cased)?|(bpe|bytebpe):(\d+)'
    r'|(words):(\d+)(:spaces)?)',
    tokenizer,
  )
  if not match:
    raise ValueError(f'tokenizer {tokenizer!r}: expected {FORMS}')
  kind, size = next(match.group(i, i + 1) for i in (1, 4, 6) if match[i])
  split = 'spaces' if match[8] else 'marks'
  return Training(kind, int(size), cased=bool(match[3]), split=split)


def request_key(tokenizer: str) -> str:
  """Returns the key by which a store knows its tokenizer.

  It is an existing vocabulary's fingerprint, or the specification of one to be
  trained, which for GPT's kind does not say how words are found.
  """
  training = parse_training(tokenizer)
  if training is None:
    return load(tokenizer).fingerprint
  if training.kind == 'bpe':
    from data.vocabulary import bpe

    return f'{tokenizer} ({bpe.default_words()})'
  return tokenizer


def train(
  texts: Iterable[Any],
  training: Training,
  weigh: word_counts.Weigh | None = None,
) -> Tokenizer:
  """Trains a vocabulary; the same texts always give the same one.

  `texts` and `weigh`, of several languages, are as in
  `word_counts.count_texts`; words to predict have one language.
  """
  if training.kind == 'words':
    from data.vocabulary import words

    return words.train_words(texts, training.size, training.split)
  if training.kind == 'wordpiece':
    return wordpiece.train_wordpiece(
      texts, training.size, cased=training.cased, weigh=weigh
    )
  from data.vocabulary import bpe_training

  train_pieces = {
    'bpe': bpe_training.train_bpe,
    'bytebpe': bpe_training.train_byte_bpe,
  }[training.kind]
  return train_pieces(texts, training.size, weigh=weigh)
