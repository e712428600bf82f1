"""The interfaces of the tokenizers of encoders, with their common code."""

import abc
import re
from collections.abc import Mapping, Sequence

import numpy as np

from data.vocabulary.tokenizer import Tokenizer


class MaskingTokenizer(Tokenizer):
  """A tokenizer with the symbols of a text whose pieces may be hidden.

  Attributes:
    pad_id, unk_id, cls_id, sep_id, mask_id: of the symbols, whatever they are
      called.
  """

  pad_id: int
  unk_id: int
  cls_id: int
  sep_id: int
  mask_id: int

  @property
  def symbols(self) -> Mapping[str, int]:
    """The ids of the five symbols as a prompt spells them, in that order."""
    ids = self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id
    return {self.pieces[i]: i for i in ids}

  @property
  def mask(self) -> str:
    """The symbol that hides a piece, as a prompt spells it."""
    return [*self.symbols][-1]

  def encode_prompt(self, prompt: str) -> list[int]:
    """Returns the ids of a text in which symbols are spelt, without a frame.

    White space before a mask belongs to the mask, as in `transformers`.
    """
    ids = self.symbols
    names = '|'.join(map(re.escape, ids))
    # Texts, and between them symbols.
    parts = re.split(rf'(\s*{re.escape(self.mask)}|{names})', prompt)
    encoded = self.encode_batch(parts[::2])
    found = encoded[0]
    for symbol, part in zip(parts[1::2], encoded[1:], strict=True):
      found = [*found, ids[symbol.lstrip()], *part]
    return found

  @abc.abstractmethod
  def continuations(self) -> np.ndarray:
    """Returns bool [V]: the pieces that continue a word."""


class EncoderTokenizer(MaskingTokenizer):
  """The tokenizer of an encoder, whose pieces are found again in the text."""

  @abc.abstractmethod
  def encode_with_spans(
    self, texts: Sequence[str]
  ) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Returns each text's ids, and their (start, end) in the text as given."""
