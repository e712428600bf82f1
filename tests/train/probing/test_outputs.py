"""Tables of a task without mixes, of one seed, and of hostile names."""

import json

import pytest

from train.probing import outputs, summaries


def record(task, pairs, seeds=1):
  runs = [
    {
      **dict(first=first, last=last, seed=seed, dev=0.5 + 0.1 * last),
      **dict(test=0.25 + 0.1 * last + 0.01 * seed, step=4, steps=8),
      **dict(shares=[1 / 3] * 3, scale=1.0),
    }
    for first, last in pairs
    for seed in range(seeds)
  ]
  found = {
    **dict(task=task, title=f'{task} | $x', control=None, selectivity=None),
    'settings': {'num_layers': 3, 'seeds': seeds},
    'data': {'train': 7, 'classes': 2},
    'figures': summaries.summarise(runs, 3),
    **dict(probes=runs, seconds=3.0),
  }
  return json.loads(json.dumps(found))


def test_single_layers_alone(tmp_path):
  records = [record('one', [(0, 0), (1, 1), (2, 2)])]
  page, text = outputs.write(tmp_path, 'a $ b', records)
  assert json.loads(text)['weights'] == 'a $ b'
  assert '| one | 25.0 | 35.0 | 45.0 |' in page
  assert 'Mix of layers' not in page and '±' not in page
  # Layer 2 alone is best; there is no expected layer.
  assert '| one | 50.0 |  | 25.0 |  | 2 |  |  |  |  |' in page
  assert (tmp_path / outputs.FIGURE_FILE).stat().st_size > 1000


def test_mixes_of_two_seeds(tmp_path):
  records = [record('two', [(0, 0), (0, 1), (0, 2)], seeds=2)]
  page, _ = outputs.write(tmp_path, 'weights', records)
  # 25.5 +- 12.7 (t of one degree of freedom) * 0.707 / 1.414
  assert '| two | 25.5 ± 6.4 | 35.5 ± 6.4 | 45.5 ± 6.4 |' in page
  assert 'k alone' not in page
  assert '| 1.50 ± 0.00 | 1.00 ± 0.00 | 0.00 ± 0.00 | 0.00 ± 0.00 |' in page
  lines = (tmp_path / outputs.TSV_FILE).read_text().split('\n')
  assert lines[1].split('\t')[:6] == [
    'two',
    '0',
    '0',
    '0',
    '0.500000',
    '0.250000',
  ]


def test_damaged_results_are_refused(tmp_path):
  path = tmp_path / 'pos.json'
  for text, message in (('{', 'not JSON'), ('{}', 'did not write')):
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
      outputs.read(path)
