"""One self-contained HTML page of a model's attention to texts.

The page holds its numbers packed: arrays of integers, compressed by zlib, in
base64. Weights are round(255 p) in 8 bits, so wrong by 1/510 at most, or with
`precise` round(65535 p) in 16. Queries and keys are signed integers of as many
bits times a step of each layer, head and dimension, a power of 2^(1/8): the
smallest by which the largest of a text's values fits; they are wrong by half of
that step at most.

Shapes: T query position, S key position, L layer, N head, H head dimension.
"""

import base64
import json
import os
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath
from flax import linen as nn

from data import scratch
from models.pretrained.weights import Weights
from train.host import pages
from train.host.files import Json
from train.views import attention_shares, attention_weights
from train.views.attention_texts import ShownText
from train.views.attention_weights import Attention

STEPS = 8  # of queries and keys to a power of two
FOLDER = pathlib.Path(__file__).parent / 'page'
SCRIPTS = tuple(  # in order: each uses the functions of those before
  f'{name}.js'
  for name in [
    'numbers',
    'elements',
    'heads',
    'lines',
    'neurons',
    'tables',
    'begin',
  ]
)


class Page(NamedTuple):
  """A model's attention to texts.

  Attributes:
    name: of the weights, for people.
    causal: the model reads from left to right.
  """

  name: str
  model: nn.Module
  causal: bool
  texts: Sequence[Attention]

  @property
  def null_key(self) -> bool:
    """Whether heads have a key of nothing."""
    return getattr(self.model, 'null_key', False)


def run(
  weights: epath.PathLike | Weights,
  texts: Sequence[ShownText],
  out: epath.PathLike,
  json_file: epath.PathLike | None = None,
  *,
  tokenizer: epath.PathLike | None = None,
  precise: bool = False,
) -> dict[str, float]:
  """Writes the page of texts, and the JSON of `as_dict`; returns figures.

  For the arguments see `attention_weights.open_model` and `as_html`. Raises
  ValueError or OSError for bad input; then no file is written.
  """
  found = attention_weights.open_model(weights, tokenizer)
  page = Page(
    name=_name(weights),
    model=found.model,
    causal=not found.family.reads_both_ways(found.model),
    texts=list(attention_weights.attend(found, texts)),
  )
  text = as_html(page, precise=precise)
  written = {out: text}
  if json_file is not None:
    written[json_file] = json.dumps(as_dict(page)) + '\n'
  scratch.write_all(written)
  return {
    'layers': found.model.num_layers,
    'heads': found.model.num_heads,
    'tokens': sum(len(each.pieces) for each in page.texts),
    'megabytes': len(text.encode()) / 1e6,
  }


def _name(weights: epath.PathLike | Weights) -> str:
  folder = weights.folder if isinstance(weights, Weights) else weights
  return os.path.basename(os.path.abspath(folder))


def as_dict(page: Page) -> dict[str, Json]:
  """Returns each text's shares and summary, see `attention_shares.as_dict`."""
  of_texts = [
    attention_shares.as_dict(each, causal=page.causal, null_key=page.null_key)
    for each in page.texts
  ]
  named = {name for each in of_texts for name in each['shares']}
  return {
    'weights': page.name,
    'layers': page.model.num_layers,
    'heads': page.model.num_heads,
    'causal': page.causal,
    'measures': {
      name: f'mean share of attention on {keys}'
      for name, (_, keys) in attention_shares.MEASURES.items()
      if name in named
    },
    'texts': of_texts,
  }


def as_html(page: Page, *, precise: bool = False) -> str:
  """Returns the page; `precise` packs 16 bits a number, else 8."""
  of_texts = [_text_data(page, each, precise=precise) for each in page.texts]
  named = {name for each in of_texts for name in each['shares']}
  data = {
    'name': page.name,
    'layers': page.model.num_layers,
    'heads': page.model.num_heads,
    'dims': page.model.embed_dim // page.model.num_heads,
    'causal': page.causal,
    'bits': 16 if precise else 8,
    'measures': [
      {'name': name, 'title': title, 'keys': keys}
      for name, (title, keys) in attention_shares.MEASURES.items()
      if name in named
    ],
    'texts': of_texts,
  }
  return pages.fill(FOLDER, SCRIPTS, data, title=f'Attention: {page.name}')


def _text_data(
  page: Page, attention: Attention, *, precise: bool
) -> Mapping[str, Json]:
  shares = attention_shares.measure(
    attention, causal=page.causal, null_key=page.null_key
  )
  unsigned, signed = (np.uint16, np.int16) if precise else (np.uint8, np.int8)
  most = np.iinfo(unsigned).max
  packed = {'weights': _pack(np.rint(most * attention.weights_LNTS), unsigned)}
  for name, array in (
    ('query', attention.query_LTNH),
    ('key', attention.key_LSNH),
  ):
    numbers_LTNH, steps_LNH = quantize(array, np.iinfo(signed).max)
    packed[name] = _pack(numbers_LTNH.swapaxes(1, 2), signed)
    packed[f'{name}Steps'] = _pack(steps_LNH, np.int8)
  return {
    'first': attention.text.first,
    'second': attention.text.second,
    'pieces': attention.pieces,
    'segments': attention.row.segments,
    'symbols': [int(symbol) for symbol in attention.row.symbols],
    'open': attention_shares.opening(attention),
    'shares': {
      name: np.round(array, 4).ravel().tolist()
      for name, array in shares.items()
    },
    **packed,
  }


def quantize(
  array_LTNH: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns integers [L, T, N, H] up to `most`, and exponents [L, N, H].

  A value is its integer times 2^(exponent / 8).
  """
  largest_LNH = abs(array_LTNH.astype(np.float64)).max(axis=1)
  with np.errstate(divide='ignore'):
    exact_LNH = STEPS * np.log2(largest_LNH / most)
  exponents_LNH = np.clip(np.ceil(exact_LNH), -128, 127)
  steps_L1NH = 2.0 ** (exponents_LNH[:, None] / STEPS)
  numbers_LTNH = np.rint(array_LTNH / steps_L1NH)
  return np.clip(numbers_LTNH, -most, most), exponents_LNH


def _pack(array: np.ndarray, dtype: type) -> str:
  raw = np.ascontiguousarray(
    array.astype(dtype).astype(np.dtype(dtype).newbyteorder('<'))
  )
  return base64.b64encode(zlib.compress(raw.tobytes(), 9)).decode()
