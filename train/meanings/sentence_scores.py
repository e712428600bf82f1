"""Sentence vectors without fine-tuning, on STS-B and MRPC.

Similarity is the cosine of two sentences' vectors. On STS-B it is compared with
people's scores; on MRPC pairs from a threshold on are paraphrases, and the
threshold is the one of the highest accuracy on the training set.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from data.scoring import scores
from data.tasks import registry
from data.tasks.examples import Example, Prediction, Task
from train.host.files import Json
from train.meanings import classifiers, inputs, sentence_vectors, tables
from train.vectors.trained_model import TrainedModel

TITLES = {'cls': '[CLS]', 'mean': 'mean', 'max': 'max', 'last': 'last token'}
POSITIVE = '1'  # MRPC's label of paraphrases


def compare(
  models: Iterable[tuple[str, TrainedModel]],
  sets: Mapping[str, Mapping[str, Sequence[Example]]],
) -> dict[str, Json]:
  """Returns metrics by model, set, pool and layer, for JSON.

  `models` are (name, model), read one after the other. A layer's entry has the
  metrics of each split, and MRPC's threshold; `last` and `best` are the numbers
  of the last layer and of the layer that is best on dev.
  """
  return {
    'pairs': {
      name: {split: len(examples) for split, examples in splits.items()}
      for name, splits in sets.items()
    },
    'models': [
      {
        'weights': name,
        'sets': {
          each: _score(found, registry.find(each), splits)
          for each, splits in sets.items()
        },
      }
      for name, found in models
    ],
  }


def _score(
  found: TrainedModel, task: Task, splits: Mapping[str, Sequence[Example]]
) -> dict[str, Json]:
  """Returns pool -> its layers, and the number of cut texts."""
  cosines = {
    split: sentence_vectors.compare(found, [x.texts for x in examples])
    for split, examples in splits.items()
  }
  dev, metric = cosines['dev'], inputs.SETS[task.name][1][0]
  vectors = {}
  for p, pool in enumerate(dev.pools):
    layers = []
    for number in range(dev.values.shape[2]):
      values = {k: each.values[:, p, number] for k, each in cosines.items()}
      layers.append(_measure(task, splits, values))
    best = max(range(len(layers)), key=lambda n: layers[n]['dev'][metric])
    vectors[pool] = {'last': len(layers) - 1, 'best': best, 'layers': layers}
  num_cut = sum(each.num_cut for each in cosines.values())
  return {'cut_texts': num_cut, 'vectors': vectors}


def _measure(
  task: Task,
  splits: Mapping[str, Sequence[Example]],
  values: Mapping[str, np.ndarray],
) -> dict[str, float | dict[str, float]]:
  """Returns split -> metrics, and the threshold of classes."""
  figures: dict[str, float | dict[str, float]] = {}
  answers: dict[str, Sequence[float] | Sequence[str]] = {
    split: found.tolist() for split, found in values.items()
  }
  if task.labels:
    gold = np.array([x.label == POSITIVE for x in splits['train']])
    threshold = classifiers.best_threshold(values['train'], gold)
    figures['threshold'] = threshold
    answers = {
      split: np.where(found >= threshold, POSITIVE, '0').tolist()
      for split, found in values.items()
    }
  for split, examples in splits.items():
    predictions = [
      Prediction(example.id, answer)
      for example, answer in zip(examples, answers[split], strict=True)
    ]
    figures[split] = scores.score(task, examples, predictions)
  return figures


def as_text(figures: Mapping[str, Json]) -> str:
  """Returns one table: a row for each set, pool and layer, columns by model."""
  models = figures['models']
  header, rows = ['vector, layer'], []
  for number in range(1, len(models) + 1):
    mark = f'{number}: ' if len(models) > 1 else ''
    header += [f'{mark}layer', f'{mark}dev', f'{mark}test']
  for name in figures['pairs']:
    metrics = inputs.SETS[name][1]
    for pool in sentence_vectors.POOLS:
      for choice in ('last', 'best'):
        row = [
          f'{registry.find(name).title}, {TITLES[pool]},'
          f' {"best on dev" if choice == "best" else "last"}'
        ]
        for model in models:
          vectors = model['sets'][name]['vectors'].get(pool)
          row += _cells(vectors, choice, metrics) if vectors else ['-'] * 3
        if any(cell != '-' for cell in row[1:]):
          rows.append(row)
  text = tables.markdown(header, rows) + '\n'
  for name, splits in figures['pairs'].items():
    sizes = ', '.join(f'{split} {n:,}' for split, n in splits.items())
    metrics = ' / '.join(inputs.SETS[name][1])
    text += f'{registry.find(name).title}: {metrics}; pairs: {sizes}.\n'
  for number, model in enumerate(models, start=1):
    num_cut = sum(each['cut_texts'] for each in model['sets'].values())
    text += f'{number}: {model["weights"]}'
    text += f' ({num_cut:,} texts cut to its positions)\n' if num_cut else '\n'
  return text


def _cells(
  vectors: Mapping[str, Json], choice: str, metrics: Sequence[str]
) -> list[str]:
  layer = vectors['layers'][vectors[choice]]
  cells = [
    ' / '.join(f'{100 * layer[split][metric]:.1f}' for metric in metrics)
    if split in layer
    else '-'
    for split in ('dev', 'test')
  ]
  return [str(vectors[choice]), *cells]
