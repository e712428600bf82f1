"""GPT-2's byte-level byte-pair encoding, on Hugging Face `tokenizers`.

A word takes the space before it along, its UTF-8 bytes are the letters: nothing
is unknown and nothing lost (gpt-2, encoder.py).
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

import tokenizers
from etils import epath
from tokenizers import decoders, models, pre_tokenizers

from data import bpe_files

TOKENIZER_FILE = 'tokenizer.json'
END_OF_TEXT = '<|endoftext|>'


@dataclasses.dataclass(frozen=True)
class ByteBPE:
  """A byte-pair encoding of GPT-2's kind.

  Attributes:
    tokenizer: recognises no special tokens in the text.
    pieces: the vocabulary in the order of ids, a character for each byte.
    merges: in the order in which they were learnt.
    end_of_text_id: of <|endoftext|>, which stands between documents.
  """

  tokenizer: tokenizers.Tokenizer
  pieces: tuple[str, ...]
  merges: bpe_files.Merges
  end_of_text_id: int

  white_space: ClassVar[str] = 'kept'
  unk_id: ClassVar[None] = None

  @property
  def vocab_size(self) -> int:
    """V, <|endoftext|> included: 50,257 as published."""
    return len(self.pieces)

  @functools.cached_property
  def fingerprint(self) -> str:
    """Hex digest of vocabulary and merges."""
    return bpe_files.fingerprint('bytebpe', self.pieces, self.merges)

  @property
  def description(self) -> str:
    """A few words for people."""
    return 'byte-level BPE'

  def repair(self, text: str) -> str:
    """Returns the text: nothing is changed."""
    return text

  def encode_batch(
    self, texts: Sequence[str], *, special: bool = False
  ) -> list[list[int]]:
    """Returns each text's ids; decoded they are the text again.

    Args:
      texts: any text.
      special: take '<|endoftext|>' in it for the symbol; else it is text.

    Raises:
      ValueError: at half a surrogate pair, which is no text.
    """
    if special:
      return [self._encode_special(text) for text in texts]
    try:
      encoded = self.tokenizer.encode_batch_fast(
        list(texts), add_special_tokens=False
      )
    except TypeError:
      _refuse_surrogates(texts)
      raise
    return [encoding.ids for encoding in encoded]

  def _encode_special(self, text: str) -> list[int]:
    first, *rest = self.encode_batch(text.split(END_OF_TEXT))
    for ids in rest:
      first += [self.end_of_text_id, *ids]
    return first

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the text; bytes that are no UTF-8 become U+FFFD."""
    return self.tokenizer.decode(
      [int(i) for i in ids], skip_special_tokens=False
    )

  def save(self, folder: str | pathlib.Path | epath.Path) -> None:
    """Writes encoder.json, vocab.bpe, tokenizer.json and the settings."""
    bpe_files.save(folder, self.pieces, self.merges, {'type': 'bytebpe'})
    (epath.Path(folder) / TOKENIZER_FILE).write_bytes(
      self.tokenizer.to_str(pretty=True).encode()
    )


def _refuse_surrogates(texts: Iterable[str]) -> None:
  for text in texts:
    if found := re.search('[\ud800-\udfff]', text):
      raise ValueError(
        f'U+{ord(found[0]):04X} at character {found.start():,} is half a '
        f'surrogate pair and no text: {text[: found.start()][-30:]!r} is '
        'before it'
      )


def make_byte_bpe(pieces: Sequence[str], merges: bpe_files.Merges) -> ByteBPE:
  """Makes a tokenizer of GPT-2's kind."""
  ids = {piece: i for i, piece in enumerate(pieces)}
  tokenizer = tokenizers.Tokenizer(models.BPE(ids, list(merges)))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  return ByteBPE(tokenizer, tuple(pieces), tuple(merges), ids[END_OF_TEXT])


def load_byte_bpe(vocab_file: epath.Path, merges_file: epath.Path) -> ByteBPE:
  """Loads a byte-pair encoding of GPT-2's kind.

  Raises:
    ValueError: if the files are damaged or do not belong together.
  """
  required = {END_OF_TEXT, *byte_letters()}
  pieces, merges = bpe_files.read(vocab_file, merges_file, required)
  return make_byte_bpe(pieces, merges)


def byte_letters() -> list[str]:
  """Returns the 256 characters that stand for bytes, sorted."""
  return sorted(pre_tokenizers.ByteLevel.alphabet())
