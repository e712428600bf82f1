"""Tasks of a user's own in the JSON lines of edge probing."""

import json

import probe_sets
import pytest

from data.tasks.probes import tasks


def test_a_folder_is_a_task(tmp_path):
  probe_sets.write_own(tmp_path, 'order')
  (probe,) = tasks.find(['order'], str(tmp_path))
  assert (probe.num_spans, probe.corpus) == (2, 'order')
  found = tasks.load(probe, tmp_path, 'train', limit=10)
  assert len(found) == 10
  assert found[0].words == ('ann', 'and', 'ann', '.')
  assert found[0].targets == ((((0, 1), (2, 3)), ('before',)),)
  assert probe.is_scored('1') and not probe.is_scored('0')
  assert tasks.beside(probe, tmp_path) == [probe]


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (
      {'text': 'wal ##king'},
      r"line 1: found the word piece '##king', expected w",
    ),
    ({'text': 'Ġan figs'}, "found the word piece 'Ġan'"),
    ({'text': 'an</w> figs'}, "found the word piece 'an</w>'"),
    ({'text': 'one'}, r'found the span \[2, 3\) in a sentence of 1 words'),
    ({'text': ''}, 'found an empty sentence'),
    ({'text': 7}, 'found int in the field'),
    ({'targets': 7}, 'as targets, expected a list'),
    ({'targets': [7]}, 'found int, expected an object with the fields'),
    (
      {'span1': 'x'},
      r'found the span x, expected \[first word, word after the',
    ),
    ({'span1': [0, 1.5]}, r'found the span \[0, 1.5\]'),
    ({'span2': None}, 'found a target of 1 spans, expected 2'),
    ({'label': None}, 'found the label None, expected text'),
    ({'label': []}, r'found the labels \[\], expected a label or more'),
  ],
)
def test_a_wrong_line_is_named(tmp_path, change, message):
  probe_sets.write_own(tmp_path, 'order')
  file = tmp_path / 'order' / 'dev.jsonl'
  first, *others = file.read_text().splitlines()
  record = json.loads(first)
  for key, value in change.items():
    (record if key in record else record['targets'][0])[key] = value
  file.write_text('\n'.join([json.dumps(record), *others]))
  (probe,) = tasks.find(['order'], str(tmp_path))
  with pytest.raises(ValueError, match=message):
    tasks.load(probe, tmp_path, 'dev')
