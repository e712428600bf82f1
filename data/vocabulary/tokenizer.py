"""The interface of all tokenizers, with their common code."""

import abc
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import tokenizers
from etils import epath
from tokenizers import AddedToken

FLAGS = ('single_word', 'lstrip', 'rstrip', 'normalized', 'special')


class Tokenizer(abc.ABC):
  """Turns text into token ids.

  Each kind also has the ids of its own symbols: those of BERT as in
  `MaskingTokenizer`; `BPE`: `start_id`, `delimiter_id`, `classify_id`;
  `ByteBPE`: `end_of_text_id`; `Words`: `begin_id`, `end_id`. Kinds with words
  to be cached have `parts(text)`: the ids of a repaired text's parts, joined,
  are the text's. Kinds for which any line may be a sentence have
  `sentence_per_line`.

  Attributes:
    white_space: 'ignored': it ends words; 'newlines': a run with a newline in
      it is also a token; 'kept': each character is in a token.
    pieces: the vocabulary in the order of ids.
    unk_id: the id of text that the vocabulary lacks; None where it lacks none.
    separators: how many symbols stand between two texts.
    whole_words: whether the pieces are words by falling frequency: `Words`.
    fingerprint: hex digest of the vocabulary and the settings.
    tokenizer: the Hugging Face tokenizer that finds the ids.
  """

  white_space: str
  pieces: tuple[str, ...]
  unk_id: int | None
  fingerprint: str
  description: str
  tokenizer: tokenizers.Tokenizer
  separators: int = 1
  whole_words: bool = False

  @property
  def vocab_size(self) -> int:
    """V, including the symbols that are never found in a text."""
    return len(self.pieces)

  def repair(self, text: str) -> str:
    """Returns a document's text, repaired before it is split into sentences."""
    return text

  def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each part; see `parts` above."""
    return self.encode_batch(parts)

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns ids without symbols; all cores, or RAYON_NUM_THREADS of them."""
    encoded = self.tokenizer.encode_batch_fast(
      list(texts), add_special_tokens=False
    )
    return [encoding.ids for encoding in encoded]

  def encode_words(
    self, sentences: Sequence[Sequence[str]]
  ) -> list[list[list[int]]]:
    """Returns the ids of each word by itself; none for white space."""
    words = [word for sentence in sentences for word in sentence]
    ids = iter(self.encode_batch(words))
    return [[next(ids) for _ in sentence] for sentence in sentences]

  def decode(self, ids: Iterable[int]) -> str:
    """Returns readable text, symbols included."""
    return self.tokenizer.decode(
      [int(i) for i in ids], skip_special_tokens=False
    )

  @abc.abstractmethod
  def save(self, folder: str | pathlib.Path | epath.Path) -> None:
    """Writes the files that `tokenization.load` reads into a folder."""


def record(token: AddedToken) -> dict[str, Any]:
  """Returns an added token as a JSON object."""
  flags = {flag: getattr(token, flag) for flag in FLAGS}
  return {'content': token.content, **flags}


def with_added(
  pieces: Sequence[str], added: Sequence[AddedToken]
) -> tuple[str, ...]:
  """Returns the pieces, then the added tokens that are not among them."""
  return tuple(dict.fromkeys([*pieces, *(token.content for token in added)]))
