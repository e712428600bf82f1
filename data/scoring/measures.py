"""The metrics of each kind of task, as functions of the examples' weights."""

import collections
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from data.tasks.examples import Task

# weights float64 [R, N], 1 or draws of a resample -> metric -> float64 [R], nan
# without weight.
Measure = Callable[[np.ndarray], dict[str, np.ndarray]]
# Sums of squares have a relative error of about 1e-16: values with a variance
# below this share of the squares are constant.
_CONSTANT = 1e-12
_ARTICLES = re.compile(r'\b(a|an|the)\b')
_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ENTITY_TAG = re.compile('O|[BIES]-.+')


def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
  """Returns part / whole, 0 where the whole is 0."""
  return np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole > 0)


def f1_of(right: np.ndarray, gold: np.ndarray, found: np.ndarray) -> np.ndarray:
  """Returns F1 from counts of the right, the expected and the found."""
  return share(2 * right, gold + found)


def classes(
  task: Task, examples: Sequence[Any], answers: Sequence[Any]
) -> Measure:
  """Measures classes of texts; the second of two labels is F1's positive."""
  numbers = {label: number for number, label in enumerate(task.labels)}
  for example in examples:
    if example.label not in numbers:
      raise ValueError(
        f'{task.name}, id {example.id!r}: found the label {example.label!r}, '
        f'expected one of {task.labels}'
      )
  one_hot = np.eye(len(task.labels))
  gold_NK = one_hot[[numbers[example.label] for example in examples]]
  found_NK = one_hot[[numbers[answer] for answer in answers]]

  def measure(weights: np.ndarray) -> dict[str, np.ndarray]:
    gold, found = weights @ gold_NK, weights @ found_NK
    right = weights @ (gold_NK * found_NK)
    total, all_right = weights.sum(1), right.sum(1)
    f1 = f1_of(right, gold, found)
    # Matthews of any number of classes (Gorodkin 2004).
    covariance = all_right * total - (gold * found).sum(1)
    variances = (total**2 - (gold**2).sum(1)) * (total**2 - (found**2).sum(1))
    return {
      'accuracy': share(all_right, total),
      'f1': f1[:, -1],
      'macro_f1': share(f1.sum(1), ((gold + found) > 0).sum(1)),
      'matthews': share(covariance, np.sqrt(variances)),
    }

  return measure


def choices(
  task: Task, examples: Sequence[Any], answers: Sequence[Any]
) -> Measure:
  """Measures choices, given by their numbers."""
  del task
  pairs = zip(examples, answers, strict=True)
  right_N = np.array([float(answer == x.label) for x, answer in pairs])
  return lambda weights: {'accuracy': share(weights @ right_N, weights.sum(1))}


def correlations(
  task: Task, examples: Sequence[Any], answers: Sequence[Any]
) -> Measure:
  """Measures scores."""
  gold = np.array([example.label for example in examples], np.float64)
  found = np.array(answers, np.float64)
  # Sums of squares of values far from zero would lose their differences.
  gold_1N, found_1N = (gold - gold.mean())[None], (found - found.mean())[None]
  gold_ranks, found_ranks = _ranks(gold), _ranks(found)

  def measure(weights: np.ndarray) -> dict[str, np.ndarray]:
    values = {}
    if 'pearson' in task.metrics:
      values['pearson'] = _correlation(weights, gold_1N, found_1N)
    if 'spearman' in task.metrics:
      ranks = (gold_ranks(weights), found_ranks(weights))
      values['spearman'] = _correlation(weights, *ranks)
    return values

  return measure


def _correlation(
  weights: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
  """Returns Pearson's correlation of values [1 or R, N], weighted [R, N]."""

  def mean(values):
    return share(np.einsum('rn,rn->r', weights, values), total)

  total = weights.sum(1)
  first, second = (np.broadcast_to(x, weights.shape) for x in (first, second))
  mean_1, mean_2 = mean(first), mean(second)
  square_1, square_2 = mean(first**2), mean(second**2)
  variance_1, variance_2 = square_1 - mean_1**2, square_2 - mean_2**2
  varies = (variance_1 > _CONSTANT * square_1) & (
    variance_2 > _CONSTANT * square_2
  )
  covariance = mean(first * second) - mean_1 * mean_2
  scale = np.sqrt(np.where(varies, variance_1 * variance_2, 0.0))
  return np.clip(share(covariance, scale), -1.0, 1.0)


def _ranks(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
  """Returns a function weights [R, N] -> centred ranks [R, N]; ties share."""
  order = np.argsort(values, kind='stable')
  ordered = values[order]
  starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
  places = np.empty(len(values), np.int64)
  places[order] = np.cumsum(np.r_[0, np.diff(ordered) != 0])

  def ranks(weights: np.ndarray) -> np.ndarray:
    sizes = np.add.reduceat(weights[:, order], starts, axis=1)
    middles = np.cumsum(sizes, axis=1) - sizes / 2
    return (middles - weights.sum(1, keepdims=True) / 2)[:, places]

  return ranks


def tags(
  task: Task, examples: Sequence[Any], answers: Sequence[Any]
) -> Measure:
  """Measures entities and single tags."""
  of_entities = set(task.metrics) - {'accuracy'}
  rows = []
  for example, answer in zip(examples, answers, strict=True):
    right = sum(map(str.__eq__, example.tags, answer))
    row = [right, len(answer), 0, 0, 0]
    if of_entities:
      for tag in (*example.tags, *answer):
        if not _ENTITY_TAG.fullmatch(tag):
          raise ValueError(
            f'{task.name}, id {example.id!r}: found the tag {tag!r}, expected O'
            ', B-TYPE or I-TYPE for the F1 of entities'
          )
      gold, found = set(entities(example.tags)), set(entities(answer))
      row[2:] = len(gold & found), len(gold), len(found)
    rows.append(row)
  counts_NC = np.array(rows, np.float64)

  def measure(weights: np.ndarray) -> dict[str, np.ndarray]:
    right_tags, num_tags, right, gold, found = (weights @ counts_NC).T
    return {
      'f1': f1_of(right, gold, found),
      'precision': share(right, found),
      'recall': share(right, gold),
      'accuracy': share(right_tags, num_tags),
    }

  return measure


def entities(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
  """Yields (first word, word after the last, type) as conlleval does.

  Reads IOB2, IOB1 and BIOES: an I or E begins an entity unless the word before
  it is in one of the same type.
  """
  first, previous, previous_type = 0, 'O', ''
  for i, tag in enumerate((*tags, 'O')):
    prefix, _, entity_type = tag.partition('-')
    begins = prefix != 'O' and (
      prefix in 'BS' or previous in 'OES' or entity_type != previous_type
    )
    if previous != 'O' and (begins or prefix == 'O'):
      yield first, i, previous_type
    if begins:
      first = i
    previous, previous_type = prefix, entity_type


def answers(
  task: Task, examples: Sequence[Any], answers: Sequence[Any]
) -> Measure:
  """Measures texts of answers."""
  rows = []
  for example, answer in zip(examples, answers, strict=True):
    em, f1 = answer_score(answer, [text for text, _ in example.answers])
    rows.append((em, f1, bool(example.answers)))
  em_N, f1_N, has_answer_N = np.array(rows, np.float64).T
  parts = {}
  if not has_answer_N.all():
    parts = {'HasAns': has_answer_N, 'NoAns': 1 - has_answer_N}
    parts = {name: part_N for name, part_N in parts.items() if part_N.any()}

  def measure(weights: np.ndarray) -> dict[str, np.ndarray]:
    total = weights.sum(1)
    em, f1 = share(weights @ em_N, total), share(weights @ f1_N, total)
    values = {'em': em, 'f1': f1}
    for name, part_N in parts.items():
      count = weights @ part_N
      for metric, value_N in (('exact', em_N), ('f1', f1_N)):
        value = share(weights @ (value_N * part_N), count)
        values[f'{name}_{metric}'] = np.where(count > 0, value, np.nan)
    return values

  return measure


def answer_score(answer: str, right: Iterable[str]) -> tuple[float, float]:
  """Returns SQuAD's exact match and word F1 with the most similar right answer.

  An empty answer, and an empty list of right answers, mean no answer.
  """
  words = _normalise(answer)
  # SQuAD 2.0: a text of articles and punctuation alone is no answer.
  right_words = [gold for text in right if (gold := _normalise(text))] or [[]]
  em = max(float(words == gold) for gold in right_words)
  return em, max(_word_f1(words, gold) for gold in right_words)


def _normalise(text: str) -> list[str]:
  text = text.lower().translate(_PUNCTUATION)
  return _ARTICLES.sub(' ', text).split()


def _word_f1(words: list[str], gold: list[str]) -> float:
  if not words or not gold:
    return float(words == gold)
  shared = collections.Counter(words) & collections.Counter(gold)
  return 2 * shared.total() / (len(words) + len(gold))
