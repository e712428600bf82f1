"""GPT-2's byte-level byte-pair encoding, on Hugging Face `tokenizers`.

A word takes the space before it along, its UTF-8 bytes are the letters: nothing
is unknown and nothing lost (gpt-2, encoder.py).
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import tokenizers
from etils import epath
from tokenizers import decoders, models, pre_tokenizers

from data.vocabulary import bpe_files, tokenizer_json

(END_OF_TEXT,) = tokenizer_json.SYMBOLS['bytebpe']


@dataclasses.dataclass(frozen=True)
class ByteBPE:
  """A byte-pair encoding of GPT-2's kind.

  Attributes:
    tokenizer: recognises no special tokens but `added` in the text.
    pieces: the vocabulary in the order of ids, a character for each byte.
    merges: in the order in which they were learnt.
    end_of_text_id: of <|endoftext|>, which stands between documents.
    added: tokens that a publisher added; they are found in the text first.
  """

  tokenizer: tokenizers.Tokenizer
  pieces: tuple[str, ...]
  merges: bpe_files.Merges
  end_of_text_id: int
  added: tuple[tokenizers.AddedToken, ...] = ()

  white_space: ClassVar[str] = 'kept'
  unk_id: ClassVar[None] = None

  @property
  def vocab_size(self) -> int:
    """V, <|endoftext|> included: 50,257 as published."""
    return len(self.pieces)

  @functools.cached_property
  def fingerprint(self) -> str:
    """Hex digest of vocabulary and merges."""
    added = map(tokenizer_json.record, self.added)
    return bpe_files.fingerprint('bytebpe', self.pieces, self.merges, *added)

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
    return [
      encoding.ids
      for encoding in _encode(self.tokenizer.encode_batch_fast, texts)
    ]

  def encode_with_spans(
    self, texts: Sequence[str]
  ) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Returns each text's ids and where they are from.

    Returns:
      Of each text the ids of `encode_batch`; and for each id start and end of
      its characters in the text, the space before a word included. The parts of
      a character that is cut have all of it each.

    Raises:
      ValueError: at half a surrogate pair, which is no text.
    """
    return [
      (encoding.ids, encoding.offsets)
      for encoding in _encode(self.tokenizer.encode_batch, texts)
    ]

  def encode_words(
    self, sentences: Sequence[Sequence[str]]
  ) -> list[list[list[int]]]:
    """Returns the ids of each word of each sentence.

    One after the other they are those of the words with spaces between them:
    all but the first word of a sentence take a space along. An empty word has
    none.

    Raises:
      ValueError: at half a surrogate pair, which is no text.
    """
    ids = iter(
      self.encode_batch(
        [
          f' {word}' if i and word else word
          for words in sentences
          for i, word in enumerate(words)
        ]
      )
    )
    return [[next(ids) for _ in words] for words in sentences]

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
    settings = {
      'type': 'bytebpe',
      'added': [tokenizer_json.record(token) for token in self.added],
    }
    bpe_files.save(folder, self.model_pieces(), self.merges, settings)
    (epath.Path(folder) / tokenizer_json.TOKENIZER_FILE).write_bytes(
      self.tokenizer.to_str(pretty=True).encode()
    )

  def model_pieces(self) -> tuple[str, ...]:
    """Returns the vocabulary without what was added behind it."""
    size = self.tokenizer.get_vocab_size(with_added_tokens=False)
    return self.pieces[:size]


def _encode(
  encode_batch: Callable[..., list[tokenizers.Encoding]], texts: Sequence[str]
) -> list[tokenizers.Encoding]:
  try:
    return encode_batch(list(texts), add_special_tokens=False)
  except TypeError:
    _refuse_surrogates(texts)
    raise


def _refuse_surrogates(texts: Iterable[str]) -> None:
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
    tokenizer_json.with_added(pieces, added),
    tuple(merges),
    ids[END_OF_TEXT],
    tuple(added),
  )


def load_byte_bpe(vocab_file: epath.Path, merges_file: epath.Path) -> ByteBPE:
  """Loads a byte-pair encoding of GPT-2's kind, and what stands beside it.

  Args:
    vocab_file: see `bpe_files.read`.
    merges_file: see there.

  Raises:
    ValueError: if the files are damaged, do not belong together, or have
      settings that are not ours.
  """
  required = {END_OF_TEXT, *byte_letters()}
  pieces, merges = bpe_files.read(
    vocab_file,
    merges_file,
    required,
    tokenizer_json.declared(vocab_file.parent),
  )
  told = tokenizer_json.read(vocab_file.parent, 'bytebpe', pieces)
  return make_byte_bpe(pieces, merges, told.added)


def byte_letters() -> list[str]:
  """Returns the 256 characters that stand for bytes, sorted."""
  return sorted(pre_tokenizers.ByteLevel.alphabet())
