"""Coreference as the reference scorer measures it (Pradhan et al. 2014).

Its version 8.01: key and response may have different mentions, and neither is
changed. Sums over the documents are divided at the end.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import optimize

from data.inputs import document_rows
from data.scoring import answers as answers_lib
from data.scoring import kinds, measures
from data.tasks import examples as examples_lib
from data.tasks import files
from data.tasks.annotated import coreference
from data.tasks.examples import DocumentExample, Mention, Task

Cluster = Sequence[Mention]
# Numerator and denominator of recall, then of precision.
Counts = tuple[float, float, float, float]


def muc(key: Sequence[Cluster], response: Sequence[Cluster]) -> Counts:
  """Counts links that connect a cluster (Vilain et al. 1995)."""
  return *_links(key, response), *_links(response, key)


def _links(clusters: Sequence[Cluster], others: Sequence[Cluster]) -> tuple:
  """Returns the links of clusters that the others have, and all."""
  owner = _owners(others)
  found = 0
  for cluster in clusters:
    # A mention outside of all others is a part of its own.
    parts = {owner.get(mention, mention) for mention in cluster}
    found += len(cluster) - len(parts)
  return found, sum(len(cluster) - 1 for cluster in clusters)


def b_cubed(key: Sequence[Cluster], response: Sequence[Cluster]) -> Counts:
  """Counts each mention's share of right companions (Bagga, Baldwin 1998)."""
  shared = _overlaps(key, response)
  of_key, of_response = (_sizes(clusters) for clusters in (key, response))
  squares = np.square(shared)
  return (
    float((squares.sum(1) / of_key).sum()),
    float(of_key.sum()),
    float((squares.sum(0) / of_response).sum()),
    float(of_response.sum()),
  )


def ceaf_e(key: Sequence[Cluster], response: Sequence[Cluster]) -> Counts:
  """Counts the similarity (phi 4) of paired clusters (Luo 2005)."""
  shared = _overlaps(key, response)
  sizes = _sizes(key)[:, None] + _sizes(response)
  similar = 2 * shared / sizes
  paired = optimize.linear_sum_assignment(similar, maximize=True)
  total = float(similar[paired].sum())
  return total, len(key), total, len(response)


METRICS = {'muc': muc, 'b3': b_cubed, 'ceafe': ceaf_e}


def _owners(clusters: Sequence[Cluster]) -> dict[Mention, int]:
  return {
    mention: number
    for number, cluster in enumerate(clusters)
    for mention in cluster
  }


def _sizes(clusters: Sequence[Cluster]) -> np.ndarray:
  return np.array([len(cluster) for cluster in clusters], np.float64)


def _overlaps(
  key: Sequence[Cluster], response: Sequence[Cluster]
) -> np.ndarray:
  """Returns the mentions of each pair of clusters, [of key, of response]."""
  owner = _owners(response)
  shared = np.zeros((len(key), len(response)))
  for number, cluster in enumerate(key):
    for mention in cluster:
      if mention in owner:
        shared[number, owner[mention]] += 1
  return shared


def measure(
  task: Task,
  examples: Sequence[DocumentExample],
  answers: Sequence[Sequence[Cluster]],
) -> measures.Measure:
  """Measures the clusters of documents.

  `clusters` is how many were found. If the documents have single mentions,
  `_with_singles` are the metrics that count these, too, as the reference scorer
  does with such a key; a response has none.
  """
  del task
  keys = [example.clusters for example in examples]
  counts_N3C = _count(keys, answers)
  found_N = np.array([len(answer) for answer in answers], np.float64)
  with_singles_N3C = None
  if any(example.singles for example in examples):
    keys = [
      (*example.clusters, *((mention,) for mention in example.singles))
      for example in examples
    ]
    with_singles_N3C = _count(keys, answers)

  def of_weights(weights: np.ndarray) -> dict[str, np.ndarray]:
    values = _values(weights, counts_N3C)
    if with_singles_N3C is not None:
      values |= {
        f'{name}_with_singles': value
        for name, value in _values(weights, with_singles_N3C).items()
      }
    return values | {'clusters': weights @ found_N}

  return of_weights


def _count(
  keys: Sequence[Sequence[Cluster]], answers: Sequence[Sequence[Cluster]]
) -> np.ndarray:
  """Returns float64 [documents, metrics, 4], see `Counts`."""
  return np.array(
    [
      [count(key, answer) for count in METRICS.values()]
      for key, answer in zip(keys, answers, strict=True)
    ],
    np.float64,
  )


def _values(
  weights: np.ndarray, counts_N3C: np.ndarray
) -> dict[str, np.ndarray]:
  counts_3CR = np.einsum('rn,nmc->mcr', weights, counts_N3C)
  values = {}
  for name, (right, gold, right_found, found) in zip(
    METRICS, counts_3CR, strict=True
  ):
    recall, precision = (
      measures.share(right, gold),
      measures.share(right_found, found),
    )
    f1 = measures.share(2 * recall * precision, recall + precision)
    values[f'{name}_f1'] = f1
    values[f'{name}_precision'] = precision
    values[f'{name}_recall'] = recall
  f1s = [values[f'{name}_f1'] for name in METRICS]
  return {'average_f1': np.mean(f1s, axis=0), **values}


def expected(task: Task, example: DocumentExample, answer: Any) -> str:
  """Returns the form of an answer, or nothing if the answer has it."""
  del task
  lengths = [len(words) for words in example.sentences]
  try:
    problems = list(examples_lib.cluster_problems(answer, lengths))
  except (TypeError, ValueError):
    problems = ['no clusters']
  if not problems:
    return ''
  return (
    'clusters of two mentions or more, each (first word, last word) of one '
    f'sentence and in one cluster: {problems[0]}'
  )


def record(clusters: Sequence[Cluster]) -> list[list[list[int]]]:
  """Returns clusters as lists, for JSON."""
  return [
    [[int(word) for word in mention] for mention in cluster]
    for cluster in clusters
  ]


def count_crossing(clusters: Sequence[Cluster]) -> int:
  """Returns the pairs of mentions of one cluster that cross each other.

  In brackets, the mention that began last ends first.
  """
  return sum(
    first < other <= last < end
    for cluster in clusters
    for first, last in cluster
    for other, end in cluster
  )


def brackets(clusters: Sequence[Cluster], num_words: int) -> list[str]:
  """Returns the column of each word in CoNLL-2012's files, `-` without any.

  Mentions of one cluster that cross are not kept, see `count_crossing`.
  """
  begins: list[list[tuple[int, str]]] = [[] for _ in range(num_words)]
  ends: list[list[tuple[int, str]]] = [[] for _ in range(num_words)]
  for number, cluster in enumerate(clusters):
    for first, last in cluster:
      if first == last:
        begins[first].append((last, f'({number})'))
      else:
        begins[first].append((last, f'({number}'))
        ends[last].append((first, f'{number})'))
  columns = []
  for opened, closed in zip(begins, ends, strict=True):
    # An outer bracket opens first and closes last.
    parts = [text for _, text in sorted(opened, key=lambda x: -x[0])]
    parts += [text for _, text in sorted(closed, key=lambda x: -x[0])]
    columns.append('|'.join(parts) or '-')
  return columns


def _as_columns(task: Task, pairs: Sequence[Any]) -> str:
  """Returns CoNLL-2012's columns of (document, prediction) pairs."""
  del task
  lines, crossing = [], 0
  for example, found in pairs:
    crossing += count_crossing(found.answer)
    name, _, part = example.id.partition('; part ')
    part = part or '000'
    lines.append(f'#begin document ({name}); part {part}')
    columns = iter(brackets(found.answer, len(example.words)))
    for words, speakers in zip(
      example.sentences, example.speakers, strict=True
    ):
      for number, word, speaker in zip(itertools.count(), words, speakers):
        before = (name, str(int(part)), str(number), word)
        fields = (*before, *'-----', speaker or '-', '*', next(columns))
        lines.append('\t'.join('_'.join(field.split()) for field in fields))
      lines.append('')
    lines.append('#end document')
  if crossing:
    files.note(
      f'{crossing:,} pairs of mentions of one cluster cross: their brackets '
      'read as one inside the other; .jsonl has them as they are'
    )
  return '\n'.join(lines) + '\n'


# Of predictions: ending of a file -> its text.
FORMATS = {'.txt': _as_columns, '.conll': _as_columns}


class Clusters(kinds.Kind):
  """The clusters of a document's mentions."""

  metrics = coreference.METRICS
  has_mean = False  # each model keeps other spans
  unit = 'document'
  loss = 'clusters'
  frame = staticmethod(document_rows.encode)
  decode = staticmethod(answers_lib.decode_clusters)
  expected = staticmethod(expected)
  measure = staticmethod(measure)
  record = staticmethod(record)

  @staticmethod
  def num_outputs(task: Task) -> int:  # noqa: D102
    return len(task.labels) + 1  # genres, the first of any other
