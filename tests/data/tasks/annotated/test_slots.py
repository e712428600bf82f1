"""Slots and intents: the real files, and wrong ones."""

import pytest

from data.scoring import measures
from data.tasks import examples, registry

SIZES = {'atis': (4478, 500, 893), 'snips': (13084, 700, 700)}
SPLITS = ('train', 'dev', 'test')


@pytest.mark.parametrize('name', SIZES)
def test_the_real_files(sesame_data, name, capsys):
  source = str(sesame_data / 'slots')
  slots, intents = registry.find(name), registry.find(f'{name}_intent')
  tags, labels, first = set(), set(), {}
  for split, size in zip(SPLITS, SIZES[name], strict=True):
    tagged = registry.load(slots, source, split)
    texts = registry.load(intents, source, split)
    assert len(tagged) == len(texts) == size
    assert [' '.join(e.words) for e in tagged] == [e.texts[0] for e in texts]
    tags |= {tag for example in tagged for tag in example.tags}
    labels |= {example.label for example in texts}
    first[split] = tagged[0], texts[0]
  assert not capsys.readouterr().err  # the sizes are the official ones
  assert labels == set(intents.labels)
  # Not every slot has two words in these sets.
  assert tags <= set(slots.labels)
  assert {tag[2:] for tag in tags} == {tag[2:] for tag in slots.labels}
  if name == 'snips':
    # A space at the end of a line is not a word.
    tagged, text = first['train']
    assert tagged.words[-2:] == ('google', 'music')
    assert tagged.tags[2:] == (
      'B-artist',
      'O',
      'B-album',
      'O',
      'B-service',
      'I-service',
    )
    assert text == examples.TextExample(
      '0', (' '.join(tagged.words),), 'PlayMusic'
    )
  else:
    assert len(slots.labels) == 2 * 83 + 1
    assert any('#' in label for label in labels)
    assert first['train'][0].tags[-4:] == (
      'O',
      'B-toloc.city_name',
      'B-round_trip',
      'I-round_trip',
    )
    spans = list(measures.entities(first['train'][0].tags))
    assert spans[-1] == (8, 10, 'round_trip')


def write(words, tags=None, intents=None, folder='atis/test'):
  beside = {'seq.in': words, 'seq.out': tags, 'label': intents}
  return {
    f'{folder}/{name}': text
    for name, text in beside.items()
    if text is not None
  }


def test_a_test_split_needs_no_labels(load):
  assert load('atis', 'test', write('to  york \n\n')) == [
    examples.TaggedExample('0', ('to', 'york'), None)
  ]
  (found,) = load('atis_intent', 'test', write('to  york \n'))
  assert found == examples.TextExample('0', ('to york',), None)


@pytest.mark.parametrize(
  ('task', 'texts', 'message'),
  [
    (
      'atis',
      write('to york\n', 'O\n'),
      r'seq.in, line 1: found 1 tags, expected one for each of 2 words',
    ),
    (
      'atis',
      write('to york\nto\n', 'O B-meal\n'),
      r"seq.out, line 2: found nothing, expected the labels of line 2 .* 'to'",
    ),
    (
      'atis',
      write('to\n', 'O\nB-meal\n'),
      r"seq.out, line 2: found 'B-meal', expected the end: seq.in has 1 lines",
    ),
    (
      'atis',
      write('to york\n', 'O I-meal\n'),
      r"seq.in, line 1, word 2: found the tag 'I-meal' after 'O', expected B-m",
    ),
    (
      'atis',
      write('to york\n', 'O B-dish\n'),
      r"seq.in, line 1: found the tag 'B-dish', expected one of \['O', 'B-air",
    ),
    (
      'atis_intent',
      write('to york\n', 'O O\n', 'GetWeather\n'),
      r"seq.in, line 1: found the label 'GetWeather', expected one of \['atis",
    ),
  ],
)
def test_wrong_lines_are_named(load, task, texts, message):
  with pytest.raises(ValueError, match=message):
    load(task, 'test', texts)


def test_training_needs_the_labels(load):
  with pytest.raises(FileNotFoundError, match=r'seq\.out'):
    load('snips', 'train', write('to\n', folder='snips/train'))
