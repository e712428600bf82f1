"""GPT's byte-pair encoding, on Hugging Face `tokenizers`.

Text is repaired (ftfy), some marks are set apart, spaCy finds the words, they
are lower-cased, and a word's last piece ends in `</w>`; a run of white space
with a newline is a word (finetune-transformer-lm, text_utils.py).
"""

import dataclasses
import functools
import importlib.metadata
import importlib.util
import itertools
import pathlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import tokenizers
from etils import epath
from tokenizers import models, normalizers, pre_tokenizers

from data.vocabulary import bpe_files, tokenizer_json
from data.vocabulary.tokenizer import Tokenizer

END_OF_WORD = '</w>'
UNKNOWN = '<unk>'
NEWLINE = '\n' + END_OF_WORD
# Follow the vocabulary, in this order (finetune-transformer-lm, train.py).
SPECIALS = ('_start_', '_delimiter_', '_classify_')
# How GPT's words are found: as in the release, or BERT's way if its packages
# are missing (which gives other ids, and no newlines).
RELEASE = 'ftfy+spacy'
BASIC = 'basic'

_DASHES = str.maketrans({'—': '-', '–': '-', '―': '-', '…': '...', '´': "'"})
# Not the backslash: the release's pattern has it, but not as a raw string.
_MARKS = re.compile(r'([-~!";?+,()/*\[\]{}|_])\1*')
_RUNS = re.compile(r'\S+|\s+')


def default_words() -> str:
  """Returns how this machine finds GPT's words: `RELEASE` or `BASIC`."""
  return BASIC if _missing_packages() else RELEASE


def white_space_of(words: str) -> str:
  """Returns the meaning of white space; see `tokenization.Tokenizer`."""
  return 'newlines' if words == RELEASE else 'ignored'


def _missing_packages() -> list[str]:
  return [
    name for name in ('ftfy', 'spacy') if importlib.util.find_spec(name) is None
  ]


@functools.cache
def _spacy() -> Any:
  from spacy.lang.en import English

  return English()


@functools.cache
def _basic() -> tuple[normalizers.Normalizer, pre_tokenizers.PreTokenizer]:
  normalizer = normalizers.BertNormalizer(
    clean_text=True,
    handle_chinese_chars=True,
    strip_accents=None,
    lowercase=True,
  )
  return normalizer, pre_tokenizers.BertPreTokenizer()


def standardise(text: str) -> list[str]:
  """Cuts repaired text into parts for spaCy, as GPT's release does.

  A newline stands for a run of white space with a newline in it.
  """
  text = _MARKS.sub(r' \g<0> ', text.translate(_DASHES))
  return [
    '\n' if run.isspace() else run
    for run in _RUNS.findall(text)
    if not run.isspace() or '\n' in run
  ]


@dataclasses.dataclass(frozen=True)
class BPE(Tokenizer):
  """A byte-pair encoding of GPT's kind.

  Attributes:
    tokenizer: cuts one lower-case word into pieces.
    pieces: the vocabulary in the order of ids, the three `SPECIALS` last.
    merges: in the order in which they were learnt.
    words: how words are found, `RELEASE` or `BASIC`.
  """

  tokenizer: tokenizers.Tokenizer
  pieces: tuple[str, ...]
  merges: bpe_files.Merges
  words: str
  unk_id: int

  @property
  def white_space(self) -> str:
    """The meaning of white space; see `tokenization.Tokenizer`."""
    return white_space_of(self.words)

  @property
  def start_id(self) -> int:
    """The id of _start_."""
    return len(self.pieces) - 3

  @property
  def delimiter_id(self) -> int:
    """The id of _delimiter_."""
    return len(self.pieces) - 2

  @property
  def classify_id(self) -> int:
    """The id of _classify_."""
    return len(self.pieces) - 1

  @functools.cached_property
  def fingerprint(self) -> str:
    """Hex digest of vocabulary, merges and the way of finding words."""
    return bpe_files.fingerprint('bpe', self.pieces, self.merges, self.words)

  @property
  def description(self) -> str:
    """A few words for people."""
    if self.words == RELEASE:
      return "GPT's BPE, words by ftfy and spaCy"
    return "GPT's BPE, words as BERT's (made without ftfy and spaCy)"

  def repair(self, text: str) -> str:
    """Returns the text as ftfy repairs it."""
    if self.words == BASIC:
      return text
    self._check_packages()
    import ftfy

    return ftfy.fix_text(text)

  def parts(self, text: str) -> list[str]:
    """Returns the parts whose ids, one after the other, are the text's."""
    return text.split(' ') if self.words == BASIC else standardise(text)

  def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each part."""
    found = self.find_words(parts)
    words = list(dict.fromkeys(itertools.chain.from_iterable(found)))
    encoded = self.tokenizer.encode_batch_fast(words, add_special_tokens=False)
    ids = {word: e.ids for word, e in zip(words, encoded, strict=True)}
    return [
      list(itertools.chain.from_iterable(map(ids.__getitem__, part)))
      for part in found
    ]

  def find_words(self, parts: Sequence[str]) -> list[list[str]]:
    """Returns the words of each part, lower case."""
    if self.words == BASIC:
      normalizer, splitter = _basic()
      return [
        [w for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(p))]
        for p in parts
      ]
    self._check_packages()
    pipeline = _spacy()
    # spaCy keeps every word that it sees, outside a zone for ever.
    with pipeline.memory_zone():
      return [
        [word.text.lower() for word in pipeline.tokenizer(part)]
        for part in parts
      ]

  def _check_packages(self) -> None:
    if missing := _missing_packages():
      raise ValueError(
        f'this vocabulary of GPT goes with words by ftfy and spaCy; '
        f'{" and ".join(missing)} cannot be found here, and other words would '
        "be other ids: pip install 'sesame-lm[gpt]'"
      )

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns each text's ids, without the three symbols."""
    split = [self.parts(self.repair(text).strip()) for text in texts]
    parts = list(dict.fromkeys(itertools.chain.from_iterable(split)))
    ids = dict(zip(parts, self.encode_parts(parts), strict=True))
    return [
      list(itertools.chain.from_iterable(map(ids.__getitem__, text)))
      for text in split
    ]

  @functools.cached_property
  def whole(self) -> tokenizers.Tokenizer:
    """A Hugging Face tokenizer that finds the words itself, as `BASIC`."""
    whole = tokenizers.Tokenizer.from_str(self.tokenizer.to_str())
    whole.normalizer, whole.pre_tokenizer = _basic()
    return whole

  def decode(self, ids: Iterable[int]) -> str:
    """Returns readable text, lower case, spaces round marks, newlines."""
    pieces = [self.pieces[int(i)] for i in ids]
    text = ''.join(
      f' {piece} ' if piece in SPECIALS or piece == UNKNOWN else piece
      for piece in pieces
    ).replace(END_OF_WORD, ' ')
    return re.sub(' *\n *', '\n', re.sub('  +', ' ', text)).strip(' ')

  def save(self, folder: str | pathlib.Path | epath.Path) -> None:
    """Writes encoder.json, vocab.bpe and the settings into a folder."""
    settings = {'type': 'bpe', 'words': self.words}
    if self.words == RELEASE:
      for name in ('ftfy', 'spacy'):
        if importlib.util.find_spec(name):
          settings[name] = importlib.metadata.version(name)
    bpe_files.save(folder, self.pieces[: -len(SPECIALS)], self.merges, settings)


def make_bpe(
  pieces: Sequence[str], merges: bpe_files.Merges, words: str
) -> BPE:
  """Makes a tokenizer of GPT's kind; `pieces` are without `SPECIALS`."""
  ids = {piece: i for i, piece in enumerate(pieces)}
  tokenizer = tokenizers.Tokenizer(
    models.BPE(
      ids, list(merges), unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD
    )
  )
  return BPE(
    tokenizer, (*pieces, *SPECIALS), tuple(merges), words, ids[UNKNOWN]
  )


def load_bpe(
  vocab_file: epath.Path, merges_file: epath.Path, *, words: str | None = None
) -> BPE:
  """Loads a byte-pair encoding of GPT's kind; see `bpe_files.read`.

  The three `SPECIALS` follow its pieces. `words`, `RELEASE` or `BASIC`, depends
  by default on the installed packages; the fallback is reported on stderr.
  """
  if words not in (None, RELEASE, BASIC):
    raise ValueError(
      f'{vocab_file.parent / bpe_files.SETTINGS_FILE}: "words" is {words!r}, '
      f'expected {RELEASE!r} or {BASIC!r}'
    )
  pieces, merges = bpe_files.read(vocab_file, merges_file, (UNKNOWN,))
  like = make_bpe((UNKNOWN,), (), BASIC).whole
  tokenizer_json.read(vocab_file.parent, 'bpe', pieces, like)
  twice = [name for name in SPECIALS if name in pieces]
  if twice:
    raise ValueError(
      f'{vocab_file}: holds {twice[0]}, the symbol that follows its pieces'
    )
  if not any(piece.endswith(END_OF_WORD) for piece in pieces):
    raise ValueError(
      f"{vocab_file}: no piece ends with {END_OF_WORD}: not of GPT's kind"
    )
  return make_bpe(pieces, merges, words or choose_words(vocab_file))


def choose_words(what: object) -> str:
  """Returns `default_words()`, and reports the fallback on standard error."""
  words = default_words()
  if words == BASIC:
    print(
      f'warning: {" and ".join(_missing_packages())} cannot be found: {what} '
      "gets words as BERT's tokenizer finds them, so ids differ from the "
      "paper's and newlines are lost; pip install 'sesame-lm[gpt]'",
      file=sys.stderr,
    )
  return words
