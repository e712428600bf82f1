"""WordPiece by Hugging Face `tokenizers`, as BERT's release defines it.

Control characters are removed, CJK characters are words, uncased text is
lower-cased and loses its accents; words end at white space and punctuation;
pieces are the greedy longest match, and a word with an unknown part, or of more
than 200 characters, is one [UNK] (google-research/bert, tokenization.py).
"""

import collections
import dataclasses
import functools
import hashlib
import json
import pathlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import tokenizers
from etils import epath
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from data import scratch
from data.vocabulary import bpe_files, tokenizer_json, word_counts
from data.vocabulary.encoder_tokenizer import EncoderTokenizer
from data.vocabulary.tokenizer import record, with_added

VOCAB_FILE = 'vocab.txt'
SPECIALS = tokenizer_json.SYMBOLS['wordpiece']
PREFIX = '##'
MAX_WORD_CHARS = 200  # google-research/bert since 2018-11-23
MAX_WORDS = 1_000_000  # distinct words counted for training: about 150 MB
# The release sets spaces round each CJK character, which `tokenizers` does but
# for the first 256 of Extension E (it begins at 2B920, the release at 2B820).
_NOT_SPACED = re.compile('[\U0002b820-\U0002b91f]')


@dataclasses.dataclass(frozen=True)
class WordPiece(EncoderTokenizer):
  """A WordPiece vocabulary and its tokenizer.

  Attributes:
    tokenizer: adds no special tokens and recognises only `added` in the text.
    pieces: the vocabulary in the order of ids.
    cased: False: text is lower-cased.
    max_word_chars: a longer word is [UNK]. Files of Hugging Face say 100.
    added: tokens that a publisher added; they are found in the text first.
    strip_accents: None: if the text is lower-cased.
  """

  tokenizer: tokenizers.Tokenizer
  pieces: tuple[str, ...]
  cased: bool
  pad_id: int
  unk_id: int
  cls_id: int
  sep_id: int
  mask_id: int
  max_word_chars: int = MAX_WORD_CHARS
  added: tuple[tokenizers.AddedToken, ...] = ()
  strip_accents: bool | None = None

  white_space: ClassVar[str] = 'ignored'

  @functools.cached_property
  def fingerprint(self) -> str:
    """Hex digest of the vocabulary and the settings."""
    settings = [list(self.pieces), self.cased, self.max_word_chars]
    if self.strip_accents is not None:
      settings.append({'strip_accents': self.strip_accents})
    settings += map(record, self.added)
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()

  @property
  def description(self) -> str:
    """A few words for people."""
    case = 'cased' if self.cased else 'uncased'
    accents = {None: '', False: ', accents kept', True: ', accents stripped'}
    return f'WordPiece, {case}{accents[self.strip_accents]}'

  def continuations(self) -> np.ndarray:
    """Returns bool [V]: the pieces that continue a word."""
    return np.array([piece.startswith(PREFIX) for piece in self.pieces])

  def parts(self, text: str) -> list[str]:
    """Returns the parts whose ids, one after the other, are the text's."""
    return [text] if self.added else text.split(' ')

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns ids without symbols; all cores, or RAYON_NUM_THREADS of them."""
    return super().encode_batch([_space_characters(text) for text in texts])

  def encode_with_spans(
    self, texts: Sequence[str]
  ) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Returns each text's ids, and their (start, end) in the text as given."""
    encoded = self.tokenizer.encode_batch(
      [_space_characters(text) for text in texts], add_special_tokens=False
    )
    found = []
    for text, encoding in zip(texts, encoded, strict=True):
      spans = encoding.offsets
      if _NOT_SPACED.search(text):
        places = [
          place
          for place, letter in enumerate(text)
          for _ in _space_characters(letter)
        ]
        spans = [(places[start], places[end - 1] + 1) for start, end in spans]
      found.append((encoding.ids, spans))
    return found

  def save(self, folder: str | pathlib.Path | epath.Path) -> None:
    """Writes vocab.txt, tokenizer.json and the settings into a folder."""
    settings = {
      'type': 'wordpiece',
      'cased': self.cased,
      'strip_accents': self.strip_accents,
      'max_word_chars': self.max_word_chars,
      'added': [record(token) for token in self.added],
    }
    folder = bpe_files.save_settings(folder, settings)
    self.save_vocabulary(folder)
    scratch.write_bytes(
      folder / tokenizer_json.TOKENIZER_FILE,
      self.tokenizer.to_str(pretty=True).encode(),
    )

  def save_vocabulary(self, folder: epath.Path) -> None:
    """Writes vocab.txt, without the added tokens that follow it."""
    size = self.tokenizer.get_vocab_size(with_added_tokens=False)
    bpe_files.write_pieces(folder / VOCAB_FILE, self.pieces[:size])


def load_wordpiece(file: epath.Path, *, cased: bool | None = None) -> WordPiece:
  """Loads a vocabulary, one piece a line or a tokenizer.json, and its settings.

  `cased` is by default as `save` or the publisher (`tokenizer_json.read`) wrote
  beside the file; without that `looks_cased` decides.
  """
  if file.name == tokenizer_json.TOKENIZER_FILE:
    table = bpe_files.read_object(file)['model']['vocab']
    pieces = bpe_files.in_order(file, table)
  else:
    pieces = bpe_files.read_pieces(file)
    if not pieces:
      raise ValueError(f'{file}: the vocabulary is empty')
  missing = [special for special in SPECIALS if special not in pieces]
  if missing:
    raise ValueError(
      f'{file}: no {", ".join(missing)} among its {len(pieces):,} pieces; BERT '
      f'needs {" ".join(SPECIALS)}'
    )
  like = _from_pieces(SPECIALS, cased=False).tokenizer
  settings = tokenizer_json.read(
    file.parent, 'wordpiece', pieces, like, cased=cased
  )
  if cased is None:
    cased = settings.cased
  if cased is None:
    cased = looks_cased(pieces)
  return _from_pieces(
    pieces,
    cased,
    settings.max_word_chars or MAX_WORD_CHARS,
    settings.added,
    settings.strip_accents,
  )


def looks_cased(pieces: Iterable[str]) -> bool:
  """Returns whether a vocabulary was made for cased text.

  A hundredth of the pieces decides: BERT's uncased vocabulary has no piece with
  a capital, the Chinese one two marks (<S>, <T>), the cased ones 16 % and more.
  """
  pieces = [piece for piece in pieces if (piece[:1], piece[-1:]) != ('[', ']')]
  changed = sum(piece != piece.lower() for piece in pieces)
  return changed > 0.01 * len(pieces)


def _normalizer(
  cased: bool, strip_accents: bool | None = None
) -> normalizers.Normalizer:
  return normalizers.BertNormalizer(
    clean_text=True,
    handle_chinese_chars=True,
    strip_accents=not cased if strip_accents is None else strip_accents,
    lowercase=not cased,
  )


def _space_characters(text: str) -> str:
  """Sets spaces round the CJK characters that `tokenizers` leaves out."""
  return text if text.isascii() else _NOT_SPACED.sub(r' \g<0> ', text)


def _from_pieces(
  pieces: Sequence[str],
  cased: bool,
  max_word_chars: int = MAX_WORD_CHARS,
  added: Sequence[tokenizers.AddedToken] = (),
  strip_accents: bool | None = None,
) -> WordPiece:
  # One spelling of each setting: the fingerprint includes it.
  if strip_accents is (not cased):
    strip_accents = None
  ids = {piece: i for i, piece in enumerate(pieces)}
  tokenizer = tokenizers.Tokenizer(
    models.WordPiece(
      ids,
      unk_token='[UNK]',
      max_input_chars_per_word=max_word_chars,
      continuing_subword_prefix=PREFIX,
    )
  )
  tokenizer.normalizer = _normalizer(cased, strip_accents)
  tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = decoders.WordPiece(prefix=PREFIX)
  tokenizer.add_tokens(list(added))
  return WordPiece(
    tokenizer,
    with_added(pieces, added),
    cased,
    *(ids[special] for special in SPECIALS),
    max_word_chars,
    tuple(added),
    strip_accents,
  )


def train_wordpiece(
  texts: Iterable[Any],
  vocab_size: int,
  *,
  cased: bool = False,
  weigh: word_counts.Weigh | None = None,
) -> WordPiece:
  """Trains a vocabulary; the same texts always give the same one.

  The texts are streamed; memory holds the distinct words. `vocab_size`, 50 or
  more, includes the special tokens; a small text gives fewer pieces. `texts`
  and `weigh`, of several languages, are as in `word_counts.count_texts`.
  """
  letters = collections.Counter()
  words = _count_words(texts, cased, letters, weigh)
  if not words:
    raise ValueError('there is no text to train a vocabulary on')
  counts = word_counts.count_letters(words)
  letters.update(counts)
  # The places of letters in forgotten words are unknown.
  continuing = {letter for word in words for letter in word[1:]}
  continuing.update(letters.keys() - counts.keys())
  alphabet = word_counts.choose_letters(
    word_counts.by_frequency(counts)[
      : min(word_counts.USUAL_LETTERS, vocab_size // 4)
    ],
    letters,
    lambda letter: 1 + (letter in continuing),
    vocab_size,
  )
  # A word with a rarer letter will be [UNK]: nothing to learn from it.
  known = set(alphabet)
  words = {word: n for word, n in words.items() if known.issuperset(word)}
  inner = sorted({PREFIX + letter for word in words for letter in word[1:]})

  # Letters are "special tokens", to get ids in our order: the trainer's comes
  # from a hash map, and ids decide ties between merges. `_from_pieces` drops
  # them.
  trainer = trainers.WordPieceTrainer(
    vocab_size=vocab_size,
    min_frequency=2,
    special_tokens=[*SPECIALS, *alphabet, *inner],
    initial_alphabet=alphabet,
    limit_alphabet=len(alphabet),
    continuing_subword_prefix=PREFIX,
    show_progress=False,
  )
  tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token='[UNK]'))
  tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  tokenizer.train_from_iterator(word_counts.repeat(words), trainer)
  ids = tokenizer.get_vocab(with_added_tokens=False)
  # Where every letter is a word, as in Chinese, words leave pieces over.
  more = (
    piece
    for letter in word_counts.by_frequency(letters)
    for piece in (letter, PREFIX + letter)
    if piece == letter or letter in continuing
  )
  pieces = sorted(ids, key=ids.__getitem__)
  return _from_pieces(word_counts.fill(pieces, more, vocab_size), cased)


def _count_words(
  texts: Iterable[Any],
  cased: bool,
  forgotten: collections.Counter[str],
  weigh: word_counts.Weigh | None = None,
) -> collections.Counter[str]:
  """Counts normalised words; of forgotten ones only the letters."""
  normalize = _normalizer(cased).normalize_str
  find_words = _word_pattern().findall
  words = word_counts.count_texts(
    texts,
    lambda text: find_words(normalize(_space_characters(text))),
    MAX_WORDS,
    forgotten,
    weigh,
  )
  for word in [word for word in words if len(word) > MAX_WORD_CHARS]:
    del words[word]
  return words


@functools.cache
def _word_pattern() -> re.Pattern:
  """Returns BERT's pre-tokenisation: words, each punctuation mark alone."""
  ascii_marks = (c for c in map(chr, range(33, 127)) if not c.isalnum())
  marks = {
    c
    for c in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(c).startswith('P')
  }.union(ascii_marks)
  marks = ''.join(map(re.escape, sorted(marks)))
  return re.compile(f'[{marks}]|[^\\s{marks}]+')
