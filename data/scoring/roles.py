"""Scores and columns of semantic roles, as srl-eval.pl of CoNLL-2005 has them.

The script is Xavier Carreras's and Lluis Marquez's.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from data.scoring import kinds, measures
from data.tasks.examples import Prediction, Task

# A role, and (first word, word after the last) of its parts.
Argument = tuple[str, tuple[tuple[int, int], ...]]
_PREDICATE = 'V'
_CONTINUES = 'C-'


def measure(
  task: Task, examples: Sequence[Any], answers: Sequence[Any]
) -> measures.Measure:
  """Measures the arguments of propositions, all parts of each right or not.

  `perfect` is the share of propositions whose arguments are all right.
  """
  del task
  rows = []
  for example, answer in zip(examples, answers, strict=True):
    gold, found = arguments(example.tags), arguments(answer)
    rows.append((len(gold & found), len(gold), len(found), gold == found))
  counts_NC = np.array(rows, np.float64)

  def measure_all(weights: np.ndarray) -> dict[str, np.ndarray]:
    right, gold, found, perfect = (weights @ counts_NC).T
    return {
      'f1': measures.f1_of(right, gold, found),
      'precision': measures.share(right, found),
      'recall': measures.share(right, gold),
      'perfect': measures.share(perfect, weights.sum(1)),
    }

  return measure_all


def arguments(tags: Sequence[str]) -> set[Argument]:
  """Returns the arguments that tags of IOB2 mark, without the predicate.

  C-ROLE is a further part of the last ROLE before it, and if there is none,
  a ROLE of its own. R-ROLE is a role as any other.
  """
  found = []
  latest: dict[str, list[tuple[int, int]]] = {}
  for first, end, role in measures.entities(tags):
    name = role.removeprefix(_CONTINUES)
    if name == role or name not in latest:
      latest[name] = []
      found.append((name, latest[name]))
    latest[name].append((first, end))
  return {(role, tuple(parts)) for role, parts in found if role != _PREDICATE}


def brackets(tags: Sequence[str]) -> list[str]:
  """Returns tags as a column for the script: `(A0*`, `*`, `*)`, `(A0*)`."""
  column = ['*'] * len(tags)
  for first, end, role in measures.entities(tags):
    column[first] = f'({role}*'
    column[end - 1] += ')'
  return column


def _as_props(task: Task, pairs: Sequence[Any]) -> str:
  """Returns CoNLL-2005's columns of (predicate, prediction) pairs."""
  del task
  lines = []

  def without_predicate(lengths: Sequence[int]) -> None:
    for length in lengths:
      lines.extend(['-'] * length + [''])

  def sentence_of(pair: tuple[Any, Prediction]) -> tuple[int, tuple[str, ...]]:
    return pair[0].sentence, pair[0].words

  for _, group in itertools.groupby(pairs, sentence_of):
    group = sorted(group, key=lambda pair: pair[0].predicate)
    without_predicate([n for example, _ in group for n in example.skipped[0]])
    predicates = {
      example.predicate: example.lemma or example.words[example.predicate]
      for example, _ in group
    }
    columns = [brackets(found.answer) for _, found in group]
    for i, row in enumerate(zip(*columns, strict=True)):
      predicate = '_'.join(predicates.get(i, '-').split())
      lines.append(' '.join((predicate, *row)))
    lines.append('')
    without_predicate([n for example, _ in group for n in example.skipped[1]])
  return '\n'.join(lines) + '\n'


# Of predictions: ending of a file -> its text.
FORMATS = {'.props': _as_props, '.txt': _as_props}


class Roles(kinds.Tags):
  """The roles of words to a predicate, as tags."""

  metrics = ('f1', 'precision', 'recall', 'perfect')
  measure = staticmethod(measure)
