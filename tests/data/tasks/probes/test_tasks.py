"""The table of probing tasks, their files, and the control task."""

import collections

import probe_sets
import pytest
import scipy.stats

from data.tasks.probes import tasks
from data.tasks.probes.targets import Sentence, Target


def test_all_tasks_are_found(tmp_path):
  folder = str(probe_sets.write(tmp_path))
  found = tasks.find(list(tasks.PROBES), folder)
  assert [probe.name for probe in found] == list(tasks.PROBES)
  names = {
    name: [other.name for other in tasks.beside(probe, folder)]
    for name, probe in tasks.PROBES.items()
  }
  # Whichever is asked for, the same sentences are embedded.
  ewt = ['pos', 'dependencies']
  assert names == {
    **dict.fromkeys(('pos', 'constituents', 'dependencies', 'srl'), ewt),
    **dict.fromkeys(('entities', 'coref'), ['entities']),
    'relations': ['relations'],
  }


@pytest.mark.parametrize(
  ('names', 'error', 'message'),
  [
    (['poss'], ValueError, "no probing task 'poss', expected.*mean 'pos'"),
    ([''], ValueError, "found the name ''"),
    (['pos', 'pos'], ValueError, "found 'pos' twice"),
    (
      ['relations'],
      FileNotFoundError,
      'task relations: found no .*TRAIN_FILE.TXT or .*The folder holds ewt_p',
    ),
  ],
)
def test_bad_names_are_named(tmp_path, names, error, message):
  probe_sets.write(tmp_path)
  (tmp_path / 'semeval2010_task8').rename(tmp_path / 'other')
  with pytest.raises(error, match=message):
    tasks.find(names, str(tmp_path))
  with pytest.raises(FileNotFoundError, match='no such folder'):
    tasks.find(['pos'], str(tmp_path / 'none'))


def test_a_file_without_targets_is_refused(tmp_path):
  probe_sets.write(tmp_path)
  (tmp_path / 'ontogum' / 'dev.tsv').write_text('')
  with pytest.raises(ValueError, match='found 0 sentences and no target'):
    tasks.load(tasks.PROBES['entities'], tmp_path, 'dev')


@pytest.mark.parametrize(
  'name',
  [
    'order/',
    'sub/order',
    '../order',
    '/order',
    '.',
    '..',
    '~',
    'a\\b',
    'probes',
    'pos_control',
  ],
)
def test_paths_and_names_of_results_are_refused(name, monkeypatch):
  """Before any folder is looked into."""
  monkeypatch.setattr(tasks.epath, 'Path', None)
  monkeypatch.setattr(tasks.own, 'find', None)
  with pytest.raises(ValueError, match='found the name .* no path, and none'):
    tasks.find(['pos', name], 'sets')


def sentences(words, labels):
  return [
    Sentence((word,), (Target(((0, 1),), (label,)),))
    for word, label in zip(words, labels, strict=True)
  ]


def drawn_labels(splits, **options):
  """The labels of each word in the control task of splits."""
  found = collections.defaultdict(set)
  for old, new in zip(splits, tasks.control(splits, **options), strict=True):
    assert [x.words for x in old] == [x.words for x in new]
    for (word,), ((spans, (label,)),) in new:
      assert spans == ((0, 1),)
      found[word].add(label)
  return found


def test_a_control_task_is_of_word_types():
  # Each split has words of the others and of its own, in another order.
  train = [f'w{i}' for i in range(3000)]
  dev = [f'w{i}' for i in range(3999, 1999, -1)]
  test = [f'w{i}' for i in range(0, 5000, 2)]
  # 'C' has two thirds of the labels, of one word; 'A' nine tenths of the words.
  labels = ['A' if i % 10 else 'B' for i in range(3000)]
  splits = [
    sentences(train + ['w0'] * 6000, labels + ['C'] * 6000),
    sentences(dev, ['A'] * 2000),
    sentences(test, ['D'] * 2500),
  ]
  found = drawn_labels(splits)
  assert len(found) == 4500
  assert {len(each) for each in found.values()} == {1}
  counts = collections.Counter(label for (label,) in found.values())
  # As often as in training, by occurrence, and there alone.
  shares = {'A': 0.3, 'B': 0.1 / 3, 'C': 2 / 3}
  assert counts.keys() == shares.keys()
  expected = [4500 * shares[label] for label in counts]
  assert scipy.stats.chisquare([*counts.values()], expected).pvalue > 0.01
  # Of the type alone: not of the task's label, nor of the words before.
  assert 0.2 < sum(found[word] == {'A'} for word in train[1::10]) / 300 < 0.4
  assert found == drawn_labels(splits)


def test_a_control_task_is_of_types_that_the_encoder_sees():
  words = [f'{a}{i}' for i in range(200) for a in ('w', 'W')]
  splits = [sentences(words, ['A', 'B'] * 200), sentences(words[::-1], words)]
  pairs = [(f'w{i}', f'W{i}') for i in range(200)]
  seen = drawn_labels(splits, seen=str.lower)
  assert all(seen[low] == seen[high] for low, high in pairs)
  given = drawn_labels(splits)
  assert 60 < sum(given[low] == given[high] for low, high in pairs) < 140
  for found in (seen, given):
    assert {len(each) for each in found.values()} == {1}


def test_the_control_task_of_a_set(tmp_path):
  probe = tasks.PROBES['pos']
  probe_sets.write(tmp_path)
  splits = [tasks.load(probe, tmp_path, split) for split in tasks.SPLITS]
  drawn = tasks.control(splits)
  assert drawn != splits
  for old, new in zip(splits, drawn, strict=True):
    assert [x.words for x in old] == [x.words for x in new]
    assert [[y.spans for y in x.targets] for x in old] == [
      [y.spans for y in x.targets] for x in new
    ]
  assert tasks.as_control(probe).name == 'pos_control'
  # The names of control tasks are no names of own tasks.
  controls = [
    tasks.as_control(x).name for x in tasks.PROBES.values() if x.has_control
  ]
  assert {*controls, 'probes'} == {*tasks.RESERVED}
