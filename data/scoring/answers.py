"""From a model's logits to answers, on the host.

The logits of each feature are [K] for classes, choices and soft classes, [1]
for a score, [T, K] for tags, [T, 2] for the first and last token of a span, and
[K, 3] for the mentions of a document.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from data.inputs.features import Features
from data.scoring import spans
from data.tasks.examples import Prediction, Task
from data.vocabulary import tag_schemes


class Outputs(NamedTuple):
  """The examples of a task, their features, and a model's logits of them."""

  task: Task
  examples: Sequence[Any]
  features: Features
  logits: Sequence[np.ndarray]
  options: spans.Options


def windows_of(
  features: Features, logits: Sequence[np.ndarray]
) -> list[np.ndarray]:
  """Returns the logits of each example's windows, [windows, K]."""
  firsts = np.flatnonzero(np.diff(features.examples, prepend=-1))
  ends = (*firsts[1:], len(logits))
  return [np.stack(logits[a:b]) for a, b in zip(firsts, ends, strict=True)]


def _rows_of(outputs: Outputs) -> Sequence[np.ndarray]:
  """Returns the logits of each example; of windows, those of their mean."""
  if len(outputs.features.examples) == len(outputs.examples):
    return outputs.logits
  windows = windows_of(outputs.features, outputs.logits)
  return [mean_of_probabilities(each) for each in windows]


def decode_classes(outputs: Outputs) -> list[Prediction]:
  """Returns the most probable labels; of choices, their numbers."""
  names = outputs.task.labels or range(outputs.task.num_choices)
  predictions = []
  for example, row in zip(outputs.examples, _rows_of(outputs), strict=True):
    probabilities = special.softmax(row.astype(np.float64))
    answer = names[int(row.argmax())]
    predictions.append(
      Prediction(example.id, answer, tuple(probabilities.tolist()))
    )
  return predictions


def decode_scores(outputs: Outputs) -> list[Prediction]:
  """Returns scores; of soft classes, the mean by their probabilities."""
  predictions = []
  for example, row in zip(outputs.examples, _rows_of(outputs), strict=True):
    score = row[0]
    if len(row) > 1:
      score = special.softmax(row.astype(np.float64)) @ np.arange(len(row))
    predictions.append(Prediction(example.id, float(score)))
  return predictions


def decode_tags(outputs: Outputs) -> list[Prediction]:
  """Returns the most probable tag of each word."""
  task, examples, features, logits, _ = outputs
  names = features.tag_labels or task.labels
  tags = [[''] * len(example.words) for example in examples]
  chances = [[0.0] * len(example.words) for example in examples]
  for number, rows in enumerate(logits):
    example = features.examples[number]
    start = features.offsets[number]
    words = features.word_index[start : start + len(rows)]
    places = np.flatnonzero(words >= 0)
    probabilities = special.softmax(rows[places].astype(np.float64), axis=-1)
    best = probabilities.argmax(axis=-1)
    for place, chosen, row in zip(places, best, probabilities, strict=True):
      tags[example][words[place]] = names[chosen]
      chances[example][words[place]] = float(row[chosen])
  if features.tag_labels:
    tags = map(tag_schemes.from_bioul, tags)
  return [
    Prediction(example.id, tuple(found), tuple(probable))
    for example, found, probable in zip(examples, tags, chances, strict=True)
  ]


def decode_spans(outputs: Outputs) -> list[Prediction]:
  """Returns the answers of questions; see `spans.decode`."""
  _, examples, features, logits, options = outputs
  return spans.decode(features, examples, logits, options)


def decode_clusters(outputs: Outputs) -> list[Prediction]:
  """Returns the clusters of documents, of two mentions or more, sorted.

  A document's K rows are a mention each: its first and its last word, and the
  row of an earlier mention of the same entity, or -1; a row of -1 is padding.
  """
  return [
    Prediction(example.id, _clusters(np.asarray(rows).astype(np.int64)))
    for example, rows in zip(outputs.examples, outputs.logits, strict=True)
  ]


def _clusters(rows: np.ndarray) -> tuple[tuple[tuple[int, int], ...], ...]:
  clusters: dict[int, list[tuple[int, int]]] = {}
  cluster_of: dict[int, int] = {}
  for row, (first, last, antecedent) in enumerate(rows.tolist()):
    if first < 0:
      continue
    cluster_of[row] = cluster_of.get(antecedent, row)
    clusters.setdefault(cluster_of[row], []).append((first, last))
  found = (tuple(sorted(mentions)) for mentions in clusters.values())
  return tuple(sorted(mentions for mentions in found if len(mentions) > 1))


def mean_of_scores(logits: np.ndarray) -> np.ndarray:
  """Returns the mean of an ensemble's logits [members, ...]."""
  return logits.mean(axis=0)


def mean_of_probabilities(logits: np.ndarray) -> np.ndarray:
  """Returns the log of mean probabilities; for scores [..., 1], their mean."""
  if logits.shape[-1] == 1:
    return mean_of_scores(logits)
  log_probabilities = special.log_softmax(logits, axis=-1)
  return special.logsumexp(log_probabilities, axis=0) - np.log(len(logits))
