"""How alike texts are: the cosine of their vectors.

python -m train.similarity WEIGHTS FILE [--json]: FILE holds two texts a line,
set apart by a tab; each line's is printed. With --query TEXT, FILE holds a text
a line, and the lines nearest to TEXT are printed.
"""

import argparse
import heapq
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from etils import epath

from train import (
  command,
  device,
  opened,
  text_counts,
  text_embedding,
  text_plan,
  trained,
)
from train.text_plan import Request

DTYPES = ('float32', 'bfloat16')


class Near(NamedTuple):
  """A line that is near to a text.

  Attributes:
    similarity: -1 to 1.
    line: number of it, from 1.
    text: of it.
  """

  similarity: float
  line: int
  text: str


def compare(
  found: trained.Trained,
  pairs: Iterable[Sequence[str]],
  request: Request,
) -> Iterator[float]:
  """Yields the cosine similarity of each pair of texts, -1 to 1.

  Args:
    found: a BERT, GPT or GPT-2.
    pairs: of texts; of one without a token a BERT sees [CLS] and [SEP], a GPT
      nothing, which is like no other: 0.
    request: how the vectors are made; of sentences, normalised.
  """
  vectors = text_embedding.embed_texts(
    found, itertools.chain.from_iterable(pairs), request
  )
  for one, other in zip(vectors, vectors, strict=True):
    yield _cosine(one.array, other.array)


def nearest(
  found: trained.Trained,
  query: str,
  lines: Iterable[str],
  request: Request,
  *,
  top_k: int = 10,
) -> list[Near]:
  """Returns the lines nearest to a text, the nearest first.

  Args:
    found: a BERT, GPT or GPT-2.
    query: the text.
    lines: read once; no more than a stretch of them is held in memory.
    request: see `compare`.
    top_k: how many lines.
  """
  reading: dict[int, str] = {}

  def read() -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
      reading[number] = line
      yield line

  (wanted,) = text_embedding.embed_texts(found, [query], request)
  scored = (
    Near(_cosine(wanted.array, vectors.array), number, reading.pop(number))
    for number, vectors in enumerate(
      text_embedding.embed_texts(found, read(), request), start=1
    )
  )
  return heapq.nsmallest(
    top_k, scored, key=lambda near: (-near.similarity, near.line)
  )


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
  """Returns the product of two vectors of length 1."""
  return float(one.astype(np.float64) @ other)


def read_pairs(path: epath.PathLike) -> Iterator[list[str]]:
  """Yields the two texts of each line of a file.

  Raises:
    ValueError: naming the line that holds another number of texts.
  """
  for number, line in enumerate(text_counts.lines(path), start=1):
    pair = line.split('\t')
    if len(pair) != 2:
      raise ValueError(
        f'{path}, line {number:,}: {len(pair)} texts, expected 2 with a tab'
        f' between them, or --query: {line[:60]!r}'
      )
    yield pair


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.similarity', description=__doc__
  )
  add = parser.add_argument
  trained.add_weights(parser, trained.EMBED_HELP)
  add('file', metavar='FILE', help='UTF-8: pairs, or with --query texts')
  add('--query', metavar='TEXT', help='print the lines nearest to it')
  add('--top_k', type=int, help='lines for --query; by default 10')
  add(
    '--pool',
    help='which tokens make the vector of a text: mean (the default), cls'
    ' (BERT) or last (GPT, a BERT that reads from left to right)',
  )
  add('--dtype', choices=DTYPES, default=DTYPES[0], help='of the products')
  add('--json', action='store_true', help='print JSONL on standard output')
  arguments = parser.parse_args()
  if arguments.top_k is not None and arguments.query is None:
    parser.error('--top_k is of --query')
  if arguments.top_k is not None and arguments.top_k < 1:
    parser.error(f'--top_k={arguments.top_k}: expected 1 or more')
  device.enable_compilation_cache()
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  request = Request(pool=arguments.pool, normalize=True)
  opened_weights = opened.open_weights(arguments.weights, arguments.tokenizer)
  if opened_weights.name in trained.TRANSFORMERS:
    opened_weights.check()
    text_plan.Plan(opened_weights, request)
  text_counts.count_lines(arguments.file)
  if arguments.query is None:
    for _ in read_pairs(arguments.file):
      pass
  found = trained.load(opened_weights, expected=trained.TRANSFORMERS)
  model = found.model.clone(dtype=jnp.dtype(arguments.dtype))
  found = found._replace(model=model)
  if arguments.query is not None:
    for near in nearest(
      found,
      arguments.query,
      text_counts.lines(arguments.file),
      request,
      top_k=arguments.top_k or 10,
    ):
      _print(arguments.json, near._asdict(), near.text)
    return
  similarities = compare(found, read_pairs(arguments.file), request)
  for number, (pair, similarity) in enumerate(
    zip(read_pairs(arguments.file), similarities, strict=True), start=1
  ):
    record = {'similarity': similarity, 'line': number, 'texts': pair}
    _print(arguments.json, record, '\t'.join(pair))


def _print(as_json: bool, record: dict[str, Any], text: str) -> None:
  if as_json:
    print(json.dumps(record, ensure_ascii=False))
  else:
    print(f'{record["similarity"]:7.4f}  {text}')


if __name__ == '__main__':
  main()
