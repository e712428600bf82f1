"""SemEval 2010 task 8: marks, splits and counts."""

import probe_sets
import pytest

from data.tasks.probes import relations, tasks

PROBE = tasks.PROBES['relations']


def test_small_file(tmp_path):
  folder = probe_sets.write(tmp_path)
  found = tasks.load(PROBE, folder, 'test')
  words = "The child was in the iron cradle 's shade ."
  assert found[0].words == tuple(words.split())
  assert probe_sets.shown(found[0]) == 'Content-Container(e1,e2):1-2,5-7'
  assert probe_sets.shown(found[1]) == 'Other:1-2,4-5'
  assert not PROBE.is_scored('Other')
  # 85 % of 20 sentences, and the others.
  train, dev = (tasks.load(PROBE, folder, x) for x in ('train', 'dev'))
  assert (len(train), len(dev)) == (17, 3)


@pytest.mark.parametrize(
  ('old', 'new', 'message'),
  [
    (
      '</e1>',
      '',
      "line 1: found '1.*expected a number, a tab and a sentence in",
    ),
    ('child', ' ', 'line 1: found no word between the marks'),
    (
      'Content-',
      '7 ',
      "line 2: found '7 Container.*expected the relation of th",
    ),
  ],
)
def test_wrong_lines_are_named(tmp_path, old, new, message):
  folder = probe_sets.write(tmp_path)
  file = folder / 'semeval2010_task8' / 'TEST_FILE_FULL.TXT'
  file.write_text(probe_sets.RELATIONS.replace(old, new, 1))
  with pytest.raises(ValueError, match=message):
    tasks.load(PROBE, folder, 'test')


def test_the_real_set(sesame_data):
  splits = [tasks.load(PROBE, sesame_data, split) for split in tasks.SPLITS]
  assert [len(split) for split in splits] == [6800, 1200, 2717]
  train, dev, test = (
    [x.targets[0].labels[0] for x in split] for split in splits
  )
  # The official counts of both splits.
  assert train.count('Other') + dev.count('Other') == 1410
  assert test.count(relations.NEGATIVE) == 454
  assert len({*train}) == 19
  # No word keeps a mark, and each split has sentences of its own.
  assert not any('<' in word for x in splits[0] for word in x.words if word[1:])
  assert all(len(x.targets[0].spans) == 2 for split in splits for x in split)
