"""The table of probing tasks, their files, and the control task."""

import collections

import probe_sets
import pytest

from data.tasks.probes import tasks


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
    ([''], ValueError, "no probing task ''"),
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


def test_a_control_task_is_of_word_types(tmp_path):
  probe_sets.write(tmp_path, copies=3)
  probe = tasks.PROBES['pos']
  splits = [tasks.load(probe, tmp_path, split) for split in tasks.SPLITS]
  drawn = tasks.control(splits)
  labels = collections.defaultdict(set)
  for split in drawn:
    for words, found in split:
      assert [spans for spans, _ in found] == [
        ((i, i + 1),) for i in range(len(words))
      ]
      for word, (_, (label,)) in zip(words, found, strict=True):
        labels[word].add(label)
  assert all(len(each) == 1 for each in labels.values())
  # Of the task's labels, and not the task's own.
  known = {label for x in splits[0] for _, (label,) in x.targets}
  assert set.union(*labels.values()) <= known
  assert drawn != splits
  assert drawn == tasks.control(splits)
  assert tasks.as_control(probe).name == 'pos_control'
