"""Scores of vectors of words: analogies, and similarity as people see it.

Analogies as compute-accuracy.c of word2vec counts them, similarity by
Spearman's correlation. Shapes: Q question, W word, D the vectors' width.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from data.tasks.words.analogies import Section
from data.tasks.words.pairs import WordPair
from train.host.files import Json
from train.meanings import tables
from train.meanings.words.sources import Vectors

_QUESTIONS = 256  # whose products with all words are held at once


def rows_of(words: Sequence[str]) -> dict[str, int]:
  """Returns each word's row, in upper case; the first of equal ones."""
  rows: dict[str, int] = {}
  for row, word in enumerate(words):
    rows.setdefault(word.upper(), row)
  return rows


def score_analogies(
  name: str,
  words: Sequence[str],
  vectors_WD: np.ndarray,
  sections: Sequence[Section],
) -> dict[str, Json]:
  """Returns the numbers of questions, known and right ones by section.

  A question a : b = c : d is known if all four of its words are; the case of
  letters does not matter. Its answer is the word of the largest positive
  product with b - a + c, all of length 1; a, b and c are no answer. Where words
  differ in case alone, a question means the first of them, and each of them is
  a right answer. Raises ValueError if the vectors `name` know no question.
  """
  unit_WD = _unit(vectors_WD)
  rows = rows_of(words)
  # Answers that differ in case alone are the same.
  groups = np.array([rows[word.upper()] for word in words])
  found = []
  for section in sections:
    known = [
      [rows[word.upper()] for word in question]
      for question in section.questions
      if all(word.upper() in rows for word in question)
    ]
    right = _count_right(unit_WD, groups, np.array(known, int).reshape(-1, 4))
    found.append((section, len(section.questions), len(known), right))
  if not any(known for *_, known, _ in found):
    total = sum(len(section.questions) for section in sections)
    raise ValueError(
      f'{name}: found all four words of none of the {total:,} questions among'
      f' its first {len(words):,} words; expected some: take more by --first,'
      ' or questions of its language'
    )
  figures = {}
  for part, chosen in (
    ('total', found),
    ('semantic', [each for each in found if not each[0].is_syntactic]),
    ('syntactic', [each for each in found if each[0].is_syntactic]),
  ):
    counts = (sum(each[i] for each in chosen) for i in (1, 2, 3))
    figures[part] = _figures(*counts)
  figures['sections'] = {
    section.name: _figures(*counts) for section, *counts in found
  }
  return figures


def _figures(questions: int, known: int, right: int) -> dict[str, float | None]:
  accuracy = right / known if known else None
  return {
    'questions': questions,
    'known': known,
    'right': right,
    'accuracy': accuracy,
  }


def _unit(vectors: np.ndarray) -> np.ndarray:
  """Returns vectors of length 1; zeros stay."""
  norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.maximum(norms, np.finfo(np.float32).tiny)


def _count_right(
  unit_WD: np.ndarray, groups: np.ndarray, known_Q4: np.ndarray
) -> int:
  """Returns how many questions, as rows of words, are answered rightly."""
  right = 0
  for start in range(0, len(known_Q4), _QUESTIONS):
    some_Q4 = known_Q4[start : start + _QUESTIONS]
    a, b, c, d = some_Q4.T
    scores_QW = (unit_WD[b] - unit_WD[a] + unit_WD[c]) @ unit_WD.T
    np.put_along_axis(scores_QW, some_Q4[:, :3], 0, axis=1)
    best = scores_QW.argmax(axis=1)
    positive = scores_QW[np.arange(len(best)), best] > 0
    right += int((positive & (groups[best] == d)).sum())
  return right


def score_pairs(
  name: str,
  words: Sequence[str],
  vectors_WD: np.ndarray,
  pairs: Sequence[WordPair],
) -> dict[str, float]:
  """Returns Spearman's correlation of cosines with people's scores.

  Pairs with an unknown word are left out; `known` counts the others. Case does
  not matter. Raises ValueError if the vectors `name` know fewer than two.
  """
  from scipy import stats

  rows = rows_of(words)
  known = [
    (rows[pair.first.upper()], rows[pair.second.upper()], pair.score)
    for pair in pairs
    if pair.first.upper() in rows and pair.second.upper() in rows
  ]
  if len(known) < 2:
    raise ValueError(
      f'{name}: found both words of {len(known)} of {len(pairs):,} pairs,'
      ' expected two pairs or more'
    )
  first, second, scores = map(np.array, zip(*known, strict=True))
  unit_WD = _unit(vectors_WD)
  cosines = np.einsum('nd,nd->n', unit_WD[first], unit_WD[second])
  return {
    'pairs': len(pairs),
    'known': len(known),
    'spearman': float(stats.spearmanr(cosines, scores).statistic),
  }


def score(
  name: str,
  vectors: Vectors,
  sections: Sequence[Section],
  pairs: Mapping[str, Sequence[WordPair]],
) -> dict[str, Json]:
  """Returns the figures of each layer, for JSON.

  A layer has the figures of `score_pairs` and, if there are `sections`, those
  of `score_analogies`.
  """
  layers = []
  num_first = vectors.num_first
  for number, vectors_WD in zip(vectors.names, vectors.layers, strict=True):
    layer: dict[str, Json] = {'layer': number or None}
    if sections:
      layer['analogies'] = score_analogies(
        name, vectors.words[:num_first], vectors_WD[:num_first], sections
      )
    layer['word_pairs'] = {
      file: score_pairs(name, vectors.words, vectors_WD, each)
      for file, each in pairs.items()
    }
    layers.append(layer)
  return {'words': num_first, 'dim': vectors.layers.shape[2], 'layers': layers}


def as_text(figures: Mapping[str, Json]) -> str:
  """Returns one table in Markdown, a row a layer of each of the vectors."""
  models = figures['vectors']
  has_questions = 'analogies' in models[0]['layers'][0]
  parts = ('total', 'semantic', 'syntactic') if has_questions else ()
  sets = list(models[0]['layers'][0]['word_pairs'])
  header = ['vectors']
  if has_questions:
    header += ['analogies', 'semantic', 'syntactic', 'known']
  for name in sets:
    header += [name, 'known']
  rows = []
  for model in models:
    for layer in model['layers']:
      number = layer['layer']
      row = [model['name'] + ('' if number is None else f', layer {number}')]
      for part in parts:
        accuracy = layer['analogies'][part]['accuracy']
        row.append('-' if accuracy is None else f'{100 * accuracy:.1f}')
      if has_questions:
        total = layer['analogies']['total']
        row.append(f'{total["known"]:,} of {total["questions"]:,}')
      for name in sets:
        found = layer['word_pairs'][name]
        row += [
          f'{100 * found["spearman"]:.1f}',
          f'{found["known"]:,} of {found["pairs"]:,}',
        ]
      rows.append(row)
  text = tables.markdown(header, rows)
  if has_questions:
    text += '\nAnalogies: right answers in 100 known questions, among'
    counts = {model['words'] for model in models}
    text += f' {" to ".join(f"{n:,}" for n in sorted(counts))} words.'
  if sets:
    text += "\nPairs: 100 times Spearman's correlation with people's scores."
  return text + '\n'
