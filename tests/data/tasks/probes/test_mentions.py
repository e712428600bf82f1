"""Entities and coreference in a sentence, counted by hand."""

import collections
import itertools

import probe_sets
import pytest

from data.tasks.probes import tasks


def read(name, folder):
  return tasks.load(tasks.PROBES[name], folder, 'dev')


def test_small_files(tmp_path):
  folder = probe_sets.write(tmp_path)
  entities = read('entities', folder)
  assert [probe_sets.shown(each) for each in entities] == [
    'person:0-1 person:2-3 object:2-4',
    'object:0-1',
  ]
  pairs = read('coref', folder)
  # Ann and her; not Ann and her car, nor her and her car.
  assert [probe_sets.shown(each) for each in pairs] == [
    '1:0-1,2-3 0:0-1,2-4 0:2-3,2-4',
    '',
  ]
  is_scored = tasks.PROBES['coref'].is_scored
  assert is_scored('1') and not is_scored('0')


@pytest.mark.parametrize(
  ('old', 'new', 'message'),
  [
    ('\t2)\t', '\t_\t', r'line 6: found \(2 without 2\) after it in its sente'),
    (
      '\t2)\t',
      '\t3)\t',
      r'line 7: found 3\) without \(3 before it in its sent',
    ),
    ('(1-person)', '(1)', r"line 4: found the entities '\(1\)', expected brac"),
    ('\t(1-person)', '', 'line 4: found 8 columns, expected 9 with tabs be'),
  ],
)
def test_wrong_brackets_are_named(tmp_path, old, new, message):
  folder = probe_sets.write(tmp_path)
  text = probe_sets.GUM.replace(old, new, 1)
  (folder / 'ontogum' / 'dev.tsv').write_text(text)
  with pytest.raises(ValueError, match=message):
    read('entities', folder)


def test_the_real_set(sesame_data):
  """Entities and pairs as another reading of the columns finds them."""
  entities = read('entities', sesame_data)
  pairs = read('coref', sesame_data)
  assert [x.words for x in pairs] == [x.words for x in entities]
  text = (sesame_data / 'ontogum' / 'dev.tsv').read_text()
  brackets = 0
  expected = []
  for document in text.split('# newdoc')[1:]:
    clusters = collections.defaultdict(set)
    for number, block in enumerate(document.strip().split('\n\n')):
      opened = collections.defaultdict(list)
      rows = [x for x in block.split('\n') if x[:1].isdigit()]
      for place, row in enumerate(rows):
        *_, entity, coref = row.split('\t')
        brackets += entity.count('(')
        for name in coref.replace('(', ' (').replace(')', ') ').split():
          key = name.strip('()')
          if name[0] == '(':
            opened[key].append(place)
          if name[-1] == ')':
            clusters[key].add((number, opened[key].pop(), place + 1))
    joined = []
    for cluster in clusters.values():
      shared = [each for each in joined if each & cluster]
      joined = [each for each in joined if not each & cluster]
      joined.append(cluster.union(*shared))
    joined = [cluster for cluster in joined if len(cluster) > 1]
    mentions = sorted(set().union(*joined))
    for one, two in itertools.combinations(mentions, 2):
      if one[0] == two[0]:
        same = any({one, two} <= cluster for cluster in joined)
        expected.append(((one[1:], two[1:]), (str(int(same)),)))
  assert sum(len(x.targets) for x in entities) == brackets == 7897
  assert [target for x in pairs for target in x.targets] == expected
  assert len(expected) == 6891
