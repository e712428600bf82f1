"""Accuracies on senses against scikit-learn, of vectors made up."""

import json
import types

import numpy as np
import pytest
from sklearn import linear_model, model_selection, neighbors, pipeline
from sklearn import preprocessing as scaling

from data.tasks.senses.interest import Sense
from data.tasks.senses.occurrences import Occurrence
from data.tasks.senses.wic import Pair
from train import senses
from train.meanings import sense_scores, word_vectors

ELMO = types.SimpleNamespace(reads_words=True, num_layers=3)
BERT = types.SimpleNamespace(reads_words=False, num_layers=3)
SIZES = {'train': 60, 'dev': 20, 'test': 30}


def occurrence(name):
  return Occurrence(name, (name,), 0)


@pytest.fixture
def vectors(monkeypatch):
  """Vectors [3, 5] of a word by its name, the same at any time."""

  def of_name(name):
    seed = np.frombuffer(name.encode(), np.uint8)
    sense = name.encode()[-1] % 2
    noise = np.random.default_rng(seed).normal(0, 1, (3, 5))
    return noise + sense * np.array([0, 0.5, 2])[:, None]  # clearer above

  def embed(source, occurrences):
    return np.stack([of_name(each.words[0]) for each in occurrences])

  monkeypatch.setattr(word_vectors, 'embed', embed)
  return of_name


def pairs(split):
  for number in range(SIZES[split]):
    same = number % 3 == 0
    first, second = (
      f'{split}{number}a',
      f'{split}{number}{"c" if same else "b"}',
    )
    yield Pair(occurrence(first), occurrence(second), same)


def test_pairs(vectors):
  splits = {split: list(pairs(split)) for split in SIZES}
  figures = sense_scores.score_pairs(ELMO, splits)
  assert figures['pairs'] == SIZES
  assert figures['majority_accuracy']['test'] == pytest.approx(2 / 3)
  right = []
  for number, layer in enumerate(figures['layers']):
    features, labels, cosines = {}, {}, {}
    for split, found in splits.items():
      rows = []
      for pair in found:
        u, v = (
          vectors(each.words[0])[number] for each in (pair.first, pair.second)
        )
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        rows.append([*abs(u - v), *(u * v), u @ v])
      features[split] = np.array(rows)
      cosines[split] = features[split][:, -1]
      labels[split] = np.array([pair.same for pair in found])
    model = pipeline.make_pipeline(
      scaling.StandardScaler(),
      linear_model.LogisticRegression(C=1 / sense_scores.PENALTY, tol=1e-8),
    ).fit(features['train'], labels['train'])
    tried = np.r_[-np.inf, np.sort(cosines['train']) + 1e-12]
    best = max(
      ((cosines['train'] >= t) == labels['train']).mean() for t in tried
    )
    assert layer['threshold_accuracy']['train'] == pytest.approx(best)
    for split in SIZES:
      assert layer['probe_accuracy'][split] == pytest.approx(
        model.score(features[split], labels[split])
      )
      hits = (cosines[split] >= layer['threshold']) == labels[split]
      assert layer['threshold_accuracy'][split] == pytest.approx(hits.mean())
    right.append(hits)
  found = figures['layer_2_against_1']['WiC test, threshold']
  assert found['only_first'] == (right[2] & ~right[1]).sum()
  assert found['only_second'] == (right[1] & ~right[2]).sum()
  text = sense_scores.as_text(figures)
  assert text.count('\nLayer 2 ') == 2 and 'WiC test, probe' in text
  assert f'| {right[2].mean():.1%} |' in text.splitlines()[4]


def test_a_test_set_without_labels_is_left_out(vectors):
  splits = {split: list(pairs(split)) for split in SIZES}
  splits['test'] = [pair._replace(same=None) for pair in splits['test']]
  figures = sense_scores.score_pairs(BERT, splits)
  assert list(figures['pairs']) == ['train', 'dev']
  assert 'layer_2_against_1' not in figures  # no ELMo
  assert 'Layer 2' not in sense_scores.as_text(figures)


def test_a_probe_needs_both_labels():
  splits = {'train': [pair for pair in pairs('train') if pair.same]}
  with pytest.raises(ValueError, match="'train' has one label .* T and F"):
    sense_scores.score_pairs(BERT, splits)


def test_nearest_senses(vectors):
  names = [f'{number}{"abbc"[number % 4]}' for number in range(50)]
  examples = [Sense(occurrence(name), name[-1]) for name in names]
  figures = sense_scores.score_senses(ELMO, examples)
  assert figures['senses'] == {'a': 13, 'b': 25, 'c': 12}
  assert figures['most_frequent_accuracy'] == 0.5
  own = np.stack([vectors(name) for name in names])
  found = []
  for number, layer in enumerate(figures['layers']):
    model = neighbors.KNeighborsClassifier(1, metric='cosine')
    answers = model_selection.cross_val_predict(
      model,
      own[:, number],
      [name[-1] for name in names],
      cv=model_selection.LeaveOneOut(),
    )
    found.append(answers == [name[-1] for name in names])
    assert layer['accuracy'] == pytest.approx(found[-1].mean())
    of_b = [
      hit for hit, name in zip(found[-1], names, strict=True) if 'b' in name
    ]
    assert layer['sense_accuracy']['b'] == pytest.approx(np.mean(of_b))
  compared = figures['layer_2_against_1']['interest, nearest neighbour']
  assert compared['difference'] == pytest.approx(
    found[2].mean() - found[1].mean()
  )
  # The top layer tells b from a and c.
  assert found[2].mean() > found[0].mean() + 0.1


def test_commands(small_elmo_folder, run_command, tmp_path):
  """On files of the sets' forms, by a real model."""
  for split in SIZES:
    (tmp_path / f'{split}.data.txt').write_text(
      'bank\tN\t1-0\tthe bank .\tbank rate .\n'
      'bank\tN\t0-1\tbank on it\tA bank .\n' * 2
    )
    (tmp_path / f'{split}.gold.txt').write_text('T\nF\nF\nT\n')
  instance = (
    '<instance id="{0}"><answer senseid="s{1}"/><context><wf>w{0}</wf><head>'
    '<wf>interest</wf></head></context></instance>'
  )
  text = ''.join(instance.format(i, i % 3) for i in range(9))
  (tmp_path / 'interest.pos').write_text(f'<corpus>{text}</corpus>')
  for option in ('--wic', '--interest'):
    printed = run_command(senses, small_elmo_folder, option, '.').out
    assert printed.startswith('| layer') and 'Layer 2 ' in printed
    figures = json.loads(
      run_command(senses, small_elmo_folder, option, '.', '--json').out
    )
    assert len(figures['layers']) == 3
  with pytest.raises(SystemExit, match='found no train/train.data.txt'):
    run_command(senses, 'none', '--wic', '/')
