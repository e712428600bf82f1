"""Whether a vocabulary is the one of published weights, and of which rows."""

from typing import Any

from data.vocabulary import bpe
from models.pretrained import published
from train.architectures.architecture import Vocabulary
from train.host.console import say

# Names a vocabulary that does not lie beside the weights, in every command.
TOKENIZER_OPTION = '--tokenizer PATH'
# The rows of a table are rounded up to a multiple of one of these for the sake
# of matrix products; Megatron takes 128 times the parts of a model.
PADDING_MULTIPLES = (8, 16, 32, 64, 128, 256, 512, 1024)


def misfit(
  found: published.Published, tokenizer: Any, named: str | None
) -> str | None:
  """Returns a line if a vocabulary is not that of a model; None if it is.

  Rows beyond the vocabulary are padding where their number looks like it. A
  user who names the vocabulary says that they are, whatever their number.

  Args:
    found: the weights, with a model.
    tokenizer: of the vocabulary.
    named: its path where a user named it for these weights; None: it lies
      beside them.
  """
  name, where = found.name, named or 'beside them'
  is_words = hasattr(tokenizer, 'softmax_size')
  lacks_mask = Vocabulary.of(tokenizer).specials is None
  if is_words != (name == 'elmo') or (name == 'bert' and lacks_mask):
    kinds = {'elmo': 'whole words', 'bert': 'WordPiece'}
    return (
      f'the weights are of a {name}, which reads'
      f' {kinds.get(name, "the pieces of words")}, but the vocabulary {where}'
      f' is {tokenizer.description}'
    )
  table, (pieces, size) = found.model.vocab_size, _sizes(name, tokenizer)
  if table in (pieces, size):
    return None
  line = (
    f'the weights are of {table:,} pieces, the vocabulary {where} has'
    f' {pieces:,}: take the one that they were trained with'
  )
  if name == 'elmo' or table < pieces:
    return line
  if named or _looks_like_padding(table, pieces):
    return None
  return (
    f'{line}; if it is this one, and the other {table - pieces:,} rows of the'
    f' table are of no use, say so by naming it, {TOKENIZER_OPTION}, or once'
    f' and for all by python -m train.weights import {found.folder} WORKDIR'
    f' --tokenizer {found.folder}'
  )


def cut_padding(
  found: published.Published, tokenizer: Any
) -> tuple[published.Published, dict[str, str]]:
  """Returns weights without rows that are of no piece, and a note of them.

  Args:
    found: the weights, with a model.
    tokenizer: of a vocabulary that fits, see `misfit`.
  """
  table, (pieces, size) = found.model.vocab_size, _sizes(found.name, tokenizer)
  if table in (pieces, size):
    return found, {}
  note = (
    f'the token table has {table:,} rows, the vocabulary {pieces:,} pieces: the'
    f' last {table - pieces:,} rows are left out'
  )
  if not _looks_like_padding(table, pieces):
    say(
      f'{found.folder}: {note}, which are more than padding; if the vocabulary'
      ' is not that of the weights, all that follows is wrong.'
    )
  return published.cut_vocabulary(found, pieces), {'padding': note}


def _sizes(name: str, tokenizer: Any) -> tuple[int, int]:
  """Returns how many pieces a vocabulary has, and how many with all symbols.

  Published weights of GPT do not have its last symbols, which texts never give.
  """
  size = Vocabulary.of(tokenizer).size
  return size - (len(bpe.SPECIALS) if name == 'gpt' else 0), size


def _looks_like_padding(table: int, pieces: int) -> bool:
  return any(
    table - pieces < multiple and table % multiple == 0
    for multiple in PADDING_MULTIPLES
  )
