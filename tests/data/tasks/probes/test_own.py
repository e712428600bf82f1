"""Tasks of a user's own in the JSON lines of edge probing."""

import json

import probe_sets
import pytest

from data.tasks.probes import tasks


def change(folder, split, *changes):
  """Changes fields of the first records of 'order', or of their targets."""
  file = folder / 'order' / f'{split}.jsonl'
  records = [json.loads(line) for line in file.read_text().splitlines()]
  for record, fields in zip(records, changes, strict=False):
    for key, value in fields.items():
      (record if key in record else record['targets'][0])[key] = value
  file.write_text('\n'.join(map(json.dumps, records)))


@pytest.fixture
def folder(tmp_path):
  return probe_sets.write_own(tmp_path, 'order')


def find(folder, name='order'):
  (probe,) = tasks.find([name], str(folder))
  return probe


def test_a_folder_is_a_task(folder):
  probe = find(folder)
  assert probe.num_spans == 2
  found = tasks.load(probe, folder, 'train', limit=10)
  assert len(found) == 10
  assert found[0].words == ('ann', 'and', 'ann', '.')
  assert found[0].targets == ((((0, 1), (2, 3)), ('before',)),)
  sizes = [len(tasks.load(probe, folder, split)) for split in tasks.SPLITS]
  assert sizes == [40, 39, 38]


def test_files_and_text_are_of_the_task_alone(folder):
  """Neither of the sets beside its folder, nor of one of its name."""
  probe_sets.write(folder)
  (folder / 'order').rename(folder / 'ewt')
  probe = find(folder, 'ewt')
  assert tasks.beside(probe, folder) == [probe]
  (folder / 'ewt' / 'test.jsonl').rename(folder / 'test.jsonl')
  with pytest.raises(FileNotFoundError, match='no ewt/test.jsonl or ewt/test.'):
    find(folder, 'ewt')


@pytest.mark.parametrize(
  ('labels', 'is_scored'),
  [
    ([0, 1], False),
    (['0', ['1', '0']], False),
    ([0, 1, 2], True),
    ([0, 'x'], True),
    (['0'], True),
  ],
)
def test_no_is_not_scored(folder, labels, is_scored):
  """The class 0 of a yes/no task is not; a class of others is."""
  labels = labels * 40
  change(folder, 'train', *({'label': label} for label in labels[:40]))
  probe = find(folder)
  assert probe.is_scored('1') and probe.is_scored('0') == is_scored


def test_targets_may_have_no_label(folder):
  change(folder, 'train', *[{'label': []}] * 39)
  change(folder, 'dev', *[{'label': []}] * 39)
  probe = find(folder)
  found = tasks.load(probe, folder, 'train')
  assert found[0].targets == ((((0, 1), (2, 3)), ()),)
  assert len(found[39].targets[0].labels) == 1
  assert len(tasks.load(probe, folder, 'dev')) == 39
  change(folder, 'train', *[{'label': []}] * 40)
  with pytest.raises(ValueError, match='found 40 targets and no label, exp'):
    tasks.load(probe, folder, 'train')


@pytest.mark.parametrize(
  'text',
  [
    'wal ##king and .',
    '[CLS] ann and [SEP]',
    'ann Ġand Ġann Ġ.',
    '▁ann ▁and ▁ann .',
    'ann</w> and</w> an n</w>',
  ],
)
def test_word_pieces_are_refused(folder, text):
  # Of 40 sentences a tenth.
  change(folder, 'train', *[{'text': text}] * 3)
  tasks.load(find(folder), folder, 'train')
  change(folder, 'train', *[{'text': text}] * 4)
  with pytest.raises(ValueError, match='line 1: found word pieces .* 4 of 40,'):
    find(folder)
  change(folder, 'train', *[{'text': 'ann and ann .'}] * 4)
  change(folder, 'test', *[{'text': text}] * 4)
  with pytest.raises(
    ValueError, match='test.jsonl, line 1: .* 4 of 38, expect'
  ):
    tasks.load(find(folder), folder, 'test')


@pytest.mark.parametrize('text', ['Lil Ġorġ ma ġiex', 'Ġorġ ra l- arja'])
def test_words_that_look_like_pieces_are_words(folder, text):
  change(folder, 'train', *[{'text': text}] * 40)
  found = tasks.load(find(folder), folder, 'train')
  assert all(each.words == tuple(text.split()) for each in found)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'text': 'one'}, r'found the span \[2, 3\) in a sentence of 1 words'),
    ({'text': ''}, 'found an empty sentence'),
    ({'text': 7}, 'found int in the field'),
    ({'targets': 7}, "found '7' as targets, expected a list"),
    ({'targets': [7]}, 'found int, expected an object with the fields'),
    (
      {'span1': 'x'},
      r'found the span x, expected \[first word, word after the',
    ),
    ({'span1': [0, 1.5]}, r'found the span \[0, 1.5\]'),
    ({'span2': None}, 'found a target of 1 spans, expected 2'),
    ({'label': None}, 'found the label None, expected text'),
    ({'label': ['']}, r"found the labels \[''\], expected no empty one"),
  ],
)
def test_a_wrong_line_is_named(folder, changes, message):
  change(folder, 'dev', changes)
  with pytest.raises(ValueError, match=f'dev.jsonl, line 1: {message}'):
    tasks.load(find(folder), folder, 'dev')
