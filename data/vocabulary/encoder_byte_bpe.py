"""The byte-level byte-pair encodings of encoders: ModernBERT's and RoBERTa's.

Letters and merges are as GPT-2's, with BERT's symbols in ModernBERT (Warner et
al. 2024), and <s>, </s>, <mask> in RoBERTa (Liu et al. 2019).
"""

import dataclasses
import functools
import pathlib
import unicodedata
from collections.abc import Sequence

import numpy as np
import tokenizers
from etils import epath
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from data.vocabulary import bpe_files, byte_bpe, tokenizer_json
from data.vocabulary.encoder_tokenizer import EncoderTokenizer
from data.vocabulary.tokenizer import record

BROKEN = '\ufffd'  # of a piece that begins inside a character


@dataclasses.dataclass(frozen=True)
class EncoderByteBPE(byte_bpe.ByteLevel, EncoderTokenizer):
  """A byte-pair encoding of bytes with the symbols of an encoder.

  Attributes:
    kind: a key of `tokenizer_json.ENCODERS`.
    prefix_space: a space is set before a text that begins without one.
  """

  kind: str
  pad_id: int
  unk_id: int
  cls_id: int
  sep_id: int
  mask_id: int
  prefix_space: bool = False

  @property
  def separators(self) -> int:
    """How many [SEP] stand between two texts."""
    return tokenizer_json.ENCODERS[self.kind].separators

  @functools.cached_property
  def fingerprint(self) -> str:
    """Hex digest of vocabulary, merges and settings."""
    added = map(record, self.added)
    return bpe_files.fingerprint(
      self.kind, self.pieces, self.merges, self.prefix_space, *added
    )

  @property
  def description(self) -> str:
    """A few words for people."""
    begin, mask = self.pieces[self.cls_id], self.mask
    space = ', a space before each text' if self.prefix_space else ''
    return f'byte-level BPE with {begin} and {mask}{space}'

  def continuations(self) -> np.ndarray:
    """Returns bool [V]: the pieces that continue a word.

    Words are those of GPT-2's pattern, as far as a piece alone tells: it begins
    one with white space or a mark, and continues one with a letter, a digit or
    the middle of a character.
    """
    return self._continuations

  @functools.cached_property
  def _continuations(self) -> np.ndarray:
    texts = self.tokenizer.decode_batch(
      [[i] for i in range(self.vocab_size)], skip_special_tokens=False
    )
    found = np.array([_is_inside(text[:1]) for text in texts])
    whole = {*tokenizer_json.SYMBOLS[self.kind]}
    whole.update(token.content for token in self.added)
    found[[piece in whole for piece in self.pieces]] = False
    return found

  def encode_words(
    self, sentences: Sequence[Sequence[str]]
  ) -> list[list[list[int]]]:
    """Returns the ids of each word by itself, with a space before it.

    A sentence's first word has one, too, as in the published fine-tunings of
    RoBERTa (`add_prefix_space=True` in run_ner.py of `transformers`).
    """
    return super(EncoderByteBPE, self._spaced).encode_words(sentences)

  @functools.cached_property
  def _spaced(self) -> 'EncoderByteBPE':
    """The same vocabulary, with a space before each text."""
    if self.prefix_space:
      return self
    return make(
      self.kind, self.pieces, self.merges, self.added, prefix_space=True
    )

  def encode_with_spans(
    self, texts: Sequence[str]
  ) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Returns each text's ids, and their (start, end) in the text as given.

    The space before a word is in its piece and not in the span.
    """
    try:
      encoded = self.tokenizer.encode_batch(
        list(texts), add_special_tokens=False
      )
    except TypeError:
      byte_bpe.refuse_surrogates(texts)
      raise
    return [
      (encoding.ids, _with_marks(text, encoding.offsets))
      for text, encoding in zip(texts, encoded, strict=True)
    ]

  def save(self, folder: str | pathlib.Path | epath.Path) -> None:
    """Writes encoder.json, vocab.bpe, tokenizer.json and the settings."""
    self.save_as(folder, self.kind, prefix_space=self.prefix_space)


def _with_marks(
  text: str, spans: list[tuple[int, int]]
) -> list[tuple[int, int]]:
  """Returns spans with the marks that were composed with their last letter."""
  if unicodedata.is_normalized('NFC', text):
    return spans
  found = []
  for start, end in spans:
    while start < end < len(text) and unicodedata.combining(text[end]):
      end += 1
    found.append((start, end))
  return found


def _is_inside(letter: str) -> bool:
  return letter.isalnum() or bool(
    letter and (letter == BROKEN or unicodedata.category(letter)[0] == 'M')
  )


def make(
  kind: str,
  pieces: Sequence[str],
  merges: bpe_files.Merges,
  added: Sequence[tokenizers.AddedToken] = (),
  *,
  prefix_space: bool = False,
) -> EncoderByteBPE:
  """Makes a tokenizer; `pieces` hold the symbols and all that is `added`."""
  ids = {piece: i for i, piece in enumerate(pieces)}
  tokenizer = tokenizers.Tokenizer(models.BPE(ids, list(merges)))
  if tokenizer_json.ENCODERS[kind].composed:
    tokenizer.normalizer = normalizers.NFC()
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=prefix_space
  )
  tokenizer.decoder = decoders.ByteLevel()
  # For the spans of `encode_with_spans`.
  tokenizer.post_processor = processors.ByteLevel(
    add_prefix_space=prefix_space, trim_offsets=True
  )
  tokenizer.add_tokens(list(added))
  return EncoderByteBPE(
    tokenizer,
    tuple(pieces),
    tuple(merges),
    kind,
    *(ids[symbol] for symbol in tokenizer_json.SYMBOLS[kind]),
    prefix_space=prefix_space,
    added=tuple(added),
  )


def load(
  kind: str, vocab_file: epath.Path, merges_file: epath.Path
) -> EncoderByteBPE:
  """Loads a byte-pair encoding of a kind; see `bpe_files.read`."""
  folder = vocab_file.parent
  files = tokenizer_json.read_files(folder)
  pieces, merges = bpe_files.read(
    vocab_file,
    merges_file,
    byte_bpe.byte_letters(),
    tokenizer_json.declared(files),
  )
  like = make(kind, tokenizer_json.SYMBOLS[kind], ()).tokenizer
  settings = tokenizer_json.read(folder, kind, pieces, like, files=files)
  pieces = (*pieces, *settings.following)
  symbols = tokenizer_json.SYMBOLS[kind]
  missing = [symbol for symbol in symbols if symbol not in pieces]
  if missing:
    raise ValueError(
      f'{vocab_file}: no {", ".join(missing)} among its {len(pieces):,} pieces,'
      f' the added ones included; an encoder needs {" ".join(symbols)}'
    )
  return make(
    kind,
    pieces,
    merges,
    settings.added,
    prefix_space=bool(settings.prefix_space),
  )
