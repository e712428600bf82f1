"""Senses told apart by the vectors of each layer: WiC and *interest*.

Shapes: N pair or sentence, L layer with the embeddings, D the vectors' width.
"""

import collections
from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from data.tasks.senses import interest, wic
from train.host.files import Json
from train.meanings import classifiers, geometry, tables, word_vectors
from train.vectors.trained_model import TrainedModel

# Of the probe's standardised features, for WiC's 5,428 training pairs: with
# 1, scikit-learn's default, MiniLM's top layer fits 75 % of the training pairs
# and 57 % of dev, with 1,000 73 % and 58 %.
PENALTY = 1000.0


def pair_features(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
  """Returns the probe's features of pairs of vectors, float64 [N, 2 D + 1].

  They are |u - v|, u * v and, last, the cosine, of vectors u and v scaled to
  length 1.
  """
  u_ND, v_ND = geometry.unit(first_ND), geometry.unit(second_ND)
  products_ND = u_ND * v_ND
  cosines_N1 = products_ND.sum(axis=1, keepdims=True)
  return np.concatenate([np.abs(u_ND - v_ND), products_ND, cosines_N1], axis=1)


def score_pairs(
  model: TrainedModel, splits: Mapping[str, Sequence[wic.Pair]]
) -> dict[str, Json]:
  """Returns the accuracies of each layer on WiC, for JSON.

  A pair has the same sense if the cosine of the word's two vectors reaches the
  threshold that is best on 'train'; or if a logistic regression of
  `pair_features`, fitted to 'train' with `PENALTY`, says so. Splits without
  labels have no accuracy. Raises ValueError for a 'train' of one label alone.
  """
  if len({pair.same for pair in splits['train']}) < 2:
    raise ValueError(
      "WiC's split 'train' has one label for all its pairs, expected T and F"
    )
  splits = {
    name: pairs
    for name, pairs in splits.items()
    if all(pair.same is not None for pair in pairs)
  }
  vectors, labels = {}, {}
  for name, pairs in splits.items():
    both = [each for pair in pairs for each in (pair.first, pair.second)]
    found = word_vectors.embed(model, both)
    vectors[name] = found.reshape(len(pairs), 2, *found.shape[1:])
    labels[name] = np.array([pair.same for pair in pairs])
  layers, right = [], []
  for number, name in enumerate(tables.layer_names(model.num_layers)):
    features = {
      split: pair_features(*found[:, :, number].swapaxes(0, 1))
      for split, found in vectors.items()
    }
    threshold = classifiers.best_threshold(
      features['train'][:, -1], labels['train']
    )
    probe = make_pipeline(
      StandardScaler(),
      LogisticRegression(C=1 / PENALTY, tol=1e-6, max_iter=1000),
    ).fit(features['train'], labels['train'])
    right.append(
      {
        split: {
          'threshold': (found[:, -1] >= threshold) == labels[split],
          'probe': probe.predict(found) == labels[split],
        }
        for split, found in features.items()
      }
    )
    figures = {
      f'{way}_accuracy': {
        split: float(ways[way].mean()) for split, ways in right[-1].items()
      }
      for way in ('threshold', 'probe')
    }
    layers.append({'layer': name, 'threshold': threshold, **figures})
  last = list(splits)[-1]
  return {
    'set': 'wic',
    'pairs': {split: len(pairs) for split, pairs in splits.items()},
    'majority_accuracy': {
      split: float(max(found.mean(), 1 - found.mean()))
      for split, found in labels.items()
    },
    'layers': layers,
    **_second_layer(
      model,
      {
        f'WiC {last}, {way}': [layer[last][way] for layer in right]
        for way in ('threshold', 'probe')
      },
    ),
  }


def score_senses(
  model: TrainedModel, examples: Sequence[interest.Sense]
) -> dict[str, Json]:
  """Returns the accuracies of each layer on *interest*, for JSON.

  A sentence gets the sense of its nearest neighbour among all other sentences,
  by the cosine of the word's vectors; see `geometry.nearest_classes`.
  """
  counts = collections.Counter(example.sense for example in examples)
  names = sorted(counts)
  senses = np.array([names.index(example.sense) for example in examples])
  numbers: dict[tuple[str, ...], int] = {}
  groups = np.array(
    [numbers.setdefault(x.found.words, len(numbers)) for x in examples]
  )
  vectors = word_vectors.embed(model, [each.found for each in examples])
  layers, right = [], []
  for number, name in enumerate(tables.layer_names(model.num_layers)):
    found = geometry.nearest_classes(vectors[:, number], senses, groups)
    right.append(found == senses)
    layers.append(
      {
        'layer': name,
        'accuracy': float(right[-1].mean()),
        'sense_accuracy': {
          sense: float(right[-1][senses == k].mean())
          for k, sense in enumerate(names)
        },
      }
    )
  most = max(counts.values())
  return {
    'set': 'interest',
    'sentences': len(examples),
    'senses': dict(sorted(counts.items())),
    'most_frequent_accuracy': most / len(examples),
    'layers': layers,
    **_second_layer(model, {'interest, nearest neighbour': right}),
  }


def _second_layer(
  model: TrainedModel, right: Mapping[str, Sequence[np.ndarray]]
) -> dict[str, dict[str, dict[str, float]]]:
  """Compares layer 2 of an ELMo with its layer 1; {} for other models.

  `right` maps the name of a comparison to the right answers of each layer, bool
  [N].
  """
  if not model.reads_words or model.num_layers != 3:
    return {}
  return {
    'layer_2_against_1': {
      name: classifiers.compare(layers[2], layers[1])._asdict()
      for name, layers in right.items()
    }
  }


def as_text(figures: Mapping[str, Json]) -> str:
  """Returns the table of a set's figures and the comparison of two layers."""
  if figures['set'] == 'wic':
    splits = list(figures['pairs'])
    majority = [f'{x:.1%}' for x in figures['majority_accuracy'].values()]
    header = ['layer', 'threshold', *splits]
    header += [f'probe, {split}' for split in splits]
    rows = [
      [
        layer['layer'],
        f'{layer["threshold"]:.3f}',
        *(
          f'{layer[f"{way}_accuracy"][split]:.1%}'
          for way in ('threshold', 'probe')
          for split in splits
        ),
      ]
      for layer in figures['layers']
    ]
    rows.append(['most frequent answer', '', *majority, *majority])
  else:
    names = figures['senses']
    header = ['layer', 'accuracy', *(f'{k} ({n})' for k, n in names.items())]
    rows = [
      [
        layer['layer'],
        f'{layer["accuracy"]:.1%}',
        *(f'{value:.1%}' for value in layer['sense_accuracy'].values()),
      ]
      for layer in figures['layers']
    ]
    frequent = f'{figures["most_frequent_accuracy"]:.1%}'
    rows.append(['most frequent sense', frequent, *[''] * len(names)])
  return tables.markdown(header, rows) + ''.join(
    f'\nLayer 2 {_verdict(found)} layer 1 ({name}):'
    f' {100 * found["difference"]:+.1f} points, {found["only_first"]:,} right'
    f' by layer 2 alone, {found["only_second"]:,} by layer 1 alone; exact'
    f" McNemar's p = {found['p_value']:.2g}.\n"
    for name, found in figures.get('layer_2_against_1', {}).items()
  )


def _verdict(found: Mapping[str, float]) -> str:
  if found['p_value'] >= 0.05:
    return 'does not differ significantly from'
  return 'beats' if found['difference'] > 0 else 'is worse than'
