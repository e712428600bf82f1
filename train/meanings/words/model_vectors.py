"""Vectors of words by ELMo, GPT and BERT, alone and in contexts.

Shapes: W word, L layer with the embeddings, V piece, D the vectors' width.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from etils import epath

from models import features
from train.architectures import families
from train.host import console
from train.meanings import tables
from train.meanings.words.sources import BINARY_FILE, Vectors
from train.params import opened
from train.vectors import elmo_vectors, text_counts, trained_model
from train.vectors.trained_model import TrainedModel


def open_models(
  names: Sequence[str], tokenizer: str | None
) -> Iterator[TrainedModel]:
  """Returns ELMos, GPTs and BERTs, all checked at once, read in turn.

  `tokenizer` is of the first. Raises ValueError for any other family, see
  `TrainedModel` for other errors.
  """
  opened_weights = [
    opened.open_weights(name, None if number else tokenizer)
    for number, name in enumerate(names)
  ]
  expected = families.names_for('embed')
  for weights in opened_weights:
    if not (weights.reads_words or weights.name in expected):
      raise ValueError(
        f'{weights.folder} holds a {weights.name}; expected an elmo,'
        f' {" or ".join(expected)}, a file of vectors, or a'
        f' word2vec or glove with the {BINARY_FILE} that its run writes at the'
        ' end'
      )
  return trained_model.in_turn(
    [TrainedModel(weights, dtype='float32') for weights in opened_weights]
  )


def without_context(
  found: TrainedModel, words: Sequence[str], num_first: int
) -> Vectors:
  """Returns the vectors of layer 0, without positions and contexts, L = 1.

  A word has the mean of its pieces' embeddings, see `features.token_vectors`,
  or an ELMo's vector of its characters. Words without pieces, or with an
  unknown one, are left out.
  """
  names = ('0',)
  if found.reads_words:
    table = elmo_vectors.ElmoWordTable(
      found.model, found.params, len(words) + 2
    )
    table.add([words])
    rows = np.array(table.rows(words)[1:-1], int)
    vectors_WD = np.asarray(table.vectors_NP)[rows]
    return Vectors(tuple(words), vectors_WD[None], num_first, names)
  own_VD = np.asarray(
    features.token_vectors(found.model, found.params), np.float32
  )
  tokenizer = found.tokenizer
  unknown = getattr(tokenizer, 'unk_id', None)
  # Behind another word: byte-level pieces hold the space before a word.
  pieces = [ids for _, ids in tokenizer.encode_words([('a', w) for w in words])]
  known = np.array([bool(ids) and unknown not in ids for ids in pieces], bool)
  vectors_WD = np.zeros((len(words), own_VD.shape[1]), np.float32)
  for row in np.flatnonzero(known):
    vectors_WD[row] = own_VD[pieces[row]].mean(axis=0)
  alone = Vectors(tuple(words), vectors_WD[None], num_first, names)
  return alone.where(known)


def in_contexts(
  found: TrainedModel,
  words: Sequence[str],
  num_first: int,
  path: epath.PathLike,
) -> Vectors:
  """Returns each layer's mean of the vectors of words in a text.

  The text has a sentence a line, and marks are split off its words, which are
  compared without case. Layer 0 of a GPT or BERT is that of `without_context`.
  Words that the text has not are left out.
  """
  if not found.reads_words:
    alone = without_context(found, words, num_first)
    words, num_first = alone.words, alone.num_first
  rows_of: dict[str, int] = {}
  for row, word in enumerate(words):
    rows_of.setdefault(word.upper(), row)
  split = text_counts.splitter(running=True)
  sentences, rows = [], []
  for line in text_counts.lines(path):
    sentence = split(line)
    places = [rows_of.get(word.upper(), -1) for word in sentence]
    if max(places, default=-1) >= 0:
      sentences.append(sentence)
      rows.append(np.array(places))
  if not sentences:
    raise ValueError(
      f'{path}: found none of the {len(words):,} words to judge by; expected a'
      ' text that has them'
    )
  numbered = found.words(sentences, pool='mean')
  sums_WLD, counts = None, np.zeros(len(words), int)
  for number, each in console.counted(numbered, len(sentences), 'sentences'):
    array_TLD = each.array.swapaxes(0, 1)
    if sums_WLD is None:
      sums_WLD = np.zeros((len(words), *array_TLD.shape[1:]), np.float32)
    # A word without pieces has zeros.
    used = (rows[number] >= 0) & array_TLD.any(axis=(1, 2))
    np.add.at(sums_WLD, rows[number][used], array_TLD[used])
    np.add.at(counts, rows[number][used], 1)
  layers_LWD = (sums_WLD / np.maximum(counts, 1)[:, None, None]).swapaxes(0, 1)
  if not found.reads_words:
    layers_LWD[0] = alone.layers[0]
  names = tuple(tables.layer_names(len(layers_LWD)))
  return Vectors(tuple(words), layers_LWD, num_first, names).where(counts > 0)
