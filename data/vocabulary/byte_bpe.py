"""GPT-2's byte-level byte-pair encoding, on Hugging Face `tokenizers`.

The letters of a word are the space before it and its UTF-8 bytes (encoder.py).
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import tokenizers
from etils import epath
from tokenizers import decoders, models, pre_tokenizers

from data import scratch
from data.vocabulary import bpe_files, tokenizer_json
from data.vocabulary.tokenizer import Tokenizer, record, with_added

(END_OF_TEXT,) = tokenizer_json.SYMBOLS['bytebpe']


@dataclasses.dataclass(frozen=True)
class ByteLevel(Tokenizer):
  """A byte-pair encoding of bytes, without the symbols of a model.

  Attributes:
    tokenizer: recognises no special tokens but `added` in the text.
    pieces: the vocabulary in the order of ids, a character for each byte.
    merges: in the order in which they were learnt.
    added: tokens that a publisher added; they are found in the text first.
  """

  tokenizer: tokenizers.Tokenizer
  pieces: tuple[str, ...]
  merges: bpe_files.Merges
  added: tuple[tokenizers.AddedToken, ...] = dataclasses.field(
    default=(), kw_only=True
  )

  white_space: ClassVar[str] = 'kept'

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns ids without symbols; all cores, or RAYON_NUM_THREADS of them."""
    try:
      return super().encode_batch(texts)
    except TypeError:
      refuse_surrogates(texts)
      raise

  def model_pieces(self) -> tuple[str, ...]:
    """Returns the vocabulary without the added tokens that follow it."""
    size = self.tokenizer.get_vocab_size(with_added_tokens=False)
    return self.pieces[:size]

  def save_as(
    self,
    folder: str | pathlib.Path | epath.Path,
    kind: str,
    **settings: Any,
  ) -> None:
    """Writes encoder.json, vocab.bpe, tokenizer.json and the settings."""
    settings = {
      'type': kind,
      'added': [record(token) for token in self.added],
    } | settings
    bpe_files.save(folder, self.model_pieces(), self.merges, settings)
    scratch.write_bytes(
      epath.Path(folder) / tokenizer_json.TOKENIZER_FILE,
      self.tokenizer.to_str(pretty=True).encode(),
    )


@dataclasses.dataclass(frozen=True)
class ByteBPE(ByteLevel):
  """A byte-pair encoding of GPT-2's kind.

  Attributes:
    end_of_text_id: of <|endoftext|>, which stands between documents.
  """

  end_of_text_id: int

  unk_id: ClassVar[None] = None

  @functools.cached_property
  def fingerprint(self) -> str:
    """Hex digest of vocabulary and merges."""
    added = map(record, self.added)
    return bpe_files.fingerprint('bytebpe', self.pieces, self.merges, *added)

  @property
  def description(self) -> str:
    """A few words for people."""
    return 'byte-level BPE'

  def encode_batch(
    self, texts: Sequence[str], *, special: bool = False
  ) -> list[list[int]]:
    """Returns ids that decode to each text; `special` finds '<|endoftext|>'."""
    if special:
      return [self._encode_special(text) for text in texts]
    return super().encode_batch(texts)

  def encode_words(
    self, sentences: Sequence[Sequence[str]]
  ) -> list[list[list[int]]]:
    """Returns each word's ids, all but a sentence's first with a space."""
    spaced = [
      [f' {word}' if i and word else word for i, word in enumerate(words)]
      for words in sentences
    ]
    return super().encode_words(spaced)

  def _encode_special(self, text: str) -> list[int]:
    first, *rest = self.encode_batch(text.split(END_OF_TEXT))
    for ids in rest:
      first += [self.end_of_text_id, *ids]
    return first

  def save(self, folder: str | pathlib.Path | epath.Path) -> None:
    """Writes encoder.json, vocab.bpe, tokenizer.json and the settings."""
    self.save_as(folder, 'bytebpe')


def refuse_surrogates(texts: Iterable[str]) -> None:
  """Raises ValueError for the first half of a surrogate pair in texts."""
  for text in texts:
    if found := re.search('[\ud800-\udfff]', text):
      raise ValueError(
        f'U+{ord(found[0]):04X} at character {found.start():,} is half a '
        f'surrogate pair and no text: {text[: found.start()][-30:]!r} is '
        'before it'
      )


def make_byte_bpe(
  pieces: Sequence[str],
  merges: bpe_files.Merges,
  added: Sequence[tokenizers.AddedToken] = (),
) -> ByteBPE:
  """Makes a tokenizer of GPT-2's kind; `pieces` are without `added`."""
  ids = {piece: i for i, piece in enumerate(pieces)}
  tokenizer = tokenizers.Tokenizer(models.BPE(ids, list(merges)))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.add_tokens(list(added))
  return ByteBPE(
    tokenizer,
    with_added(pieces, added),
    tuple(merges),
    ids[END_OF_TEXT],
    added=tuple(added),
  )


def load_byte_bpe(vocab_file: epath.Path, merges_file: epath.Path) -> ByteBPE:
  """Loads a byte-pair encoding of GPT-2's kind; see `bpe_files.read`."""
  required = {END_OF_TEXT, *byte_letters()}
  folder = vocab_file.parent
  files = tokenizer_json.read_files(folder)
  pieces, merges = bpe_files.read(
    vocab_file,
    merges_file,
    required,
    tokenizer_json.declared(files),
  )
  like = make_byte_bpe([END_OF_TEXT], ()).tokenizer
  settings = tokenizer_json.read(folder, 'bytebpe', pieces, like, files=files)
  return make_byte_bpe(pieces, merges, settings.added)


def byte_letters() -> list[str]:
  """Returns the 256 characters that stand for bytes, sorted."""
  return sorted(pre_tokenizers.ByteLevel.alphabet())
