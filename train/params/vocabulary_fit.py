"""Whether a vocabulary fits published weights, and which rows it leaves out."""

import shlex

from data.vocabulary.tokenizer import Tokenizer
from models.pretrained import published
from models.pretrained.weights import TOKENIZER_OPTION, Weights
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.host.console import say

# Token tables are padded to a multiple of one of these for matrix products;
# Megatron takes 128 times the parts of a model.
PADDING_MULTIPLES = (8, 16, 32, 64, 128, 256, 512, 1024)


def fit(weights: Weights, tokenizer: Tokenizer, named: str | None) -> Weights:
  """Returns published weights cut to the pieces of a vocabulary.

  Rows beyond the vocabulary are left out, and a note says so, if their number
  looks like padding or the user gave the path `named` (None: the vocabulary
  lies beside the weights). The vocabulary of another model adds a problem.
  """
  rows, (pieces, size) = weights.model.vocab_size, _sizes(weights, tokenizer)
  problem = _misfit(weights, tokenizer, named)
  if problem is not None:
    return weights._replace(problems=(*weights.problems, problem))
  if rows in (pieces, size):
    return weights
  note = (
    f'the token table has {rows:,} rows, the vocabulary {pieces:,} pieces: the'
    f' last {rows - pieces:,} rows are left out'
  )
  if not _looks_like_padding(rows, pieces):
    say(
      f'{weights.folder}: {note}, which are more than padding; with another'
      ' vocabulary than that of the weights, all that follows is wrong.'
    )
  cut = published.cut_vocabulary(weights, pieces)
  return cut._replace(notes={**weights.notes, 'padding': note})


def _misfit(
  weights: Weights, tokenizer: Tokenizer, named: str | None
) -> str | None:
  """Returns why a vocabulary belongs to another model; None if it fits."""
  where = named or 'beside them'
  architecture = families.ARCHITECTURES[weights.name]
  is_words = hasattr(tokenizer, 'softmax_size')
  lacks_mask = Vocabulary.of(tokenizer).specials is None
  if is_words != architecture.whole_words or (
    architecture.needs_mask and lacks_mask
  ):
    units = 'the pieces of words'
    if architecture.needs_mask:
      units = 'pieces of a vocabulary with [CLS] and [MASK]'
    if architecture.whole_words:
      units = 'whole words'
    return (
      f'the weights are of a {weights.name}, which reads {units}, but the'
      f' vocabulary {where} is {tokenizer.description}'
    )
  rows, (pieces, size) = weights.model.vocab_size, _sizes(weights, tokenizer)
  if rows in (pieces, size):
    return None
  line = (
    f'the weights are of {rows:,} pieces, the vocabulary {where} has'
    f' {pieces:,}: take the vocabulary of their training'
  )
  if architecture.whole_words or rows < pieces:
    return line
  if named or _looks_like_padding(rows, pieces):
    return None
  folder = shlex.quote(str(weights.folder))
  return (
    f'{line}; if it is this one, and the other {rows - pieces:,} rows of the'
    f' table are of no use, say so by naming it ({TOKENIZER_OPTION}, of'
    ' train.main --config.data.tokenizer=PATH), or once and for all by'
    f' python -m train.weights import {folder} WORKDIR --tokenizer {folder}'
  )


def _sizes(weights: Weights, tokenizer: Tokenizer) -> tuple[int, int]:
  size = Vocabulary.of(tokenizer).size
  return size - families.ARCHITECTURES[weights.name].num_unpublished, size


def _looks_like_padding(rows: int, pieces: int) -> bool:
  return any(
    rows - pieces < multiple and rows % multiple == 0
    for multiple in PADDING_MULTIPLES
  )
