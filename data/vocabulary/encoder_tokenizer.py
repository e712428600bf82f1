"""The interface of the tokenizers of encoders, with their common code."""

import abc
import re
from collections.abc import Sequence

import numpy as np

from data.vocabulary.tokenizer import Tokenizer


class EncoderTokenizer(Tokenizer):
  """The tokenizer of an encoder, which reads [CLS] A [SEP] and fills [MASK].

  Attributes:
    pad_id, cls_id, sep_id, mask_id: of the symbols, whatever they are called.
    separators: how many [SEP] stand between two texts.
  """

  pad_id: int
  cls_id: int
  sep_id: int
  mask_id: int
  separators: int = 1

  @property
  def mask(self) -> str:
    """The symbol that hides a piece, as a prompt spells it."""
    return self.pieces[self.mask_id]

  def encode_prompt(self, prompt: str) -> list[int]:
    """Returns the ids of a text in which symbols are spelt, without a frame.

    White space before a mask belongs to the mask, as in `transformers`.
    """
    ids = {
      self.pieces[i]: i
      for i in (
        self.pad_id,
        self.unk_id,
        self.cls_id,
        self.sep_id,
        self.mask_id,
      )
    }
    symbols = '|'.join(map(re.escape, ids))
    # Texts, and between them symbols.
    parts = re.split(rf'(\s*{re.escape(self.mask)}|{symbols})', prompt)
    encoded = self.encode_batch(parts[::2])
    found = encoded[0]
    for symbol, part in zip(parts[1::2], encoded[1:], strict=True):
      found = [*found, ids[symbol.lstrip()], *part]
    return found

  @abc.abstractmethod
  def continuations(self) -> np.ndarray:
    """Returns bool [V]: the pieces that continue a word."""

  @abc.abstractmethod
  def encode_with_spans(
    self, texts: Sequence[str]
  ) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Returns each text's ids, and their (start, end) in the text as given."""
