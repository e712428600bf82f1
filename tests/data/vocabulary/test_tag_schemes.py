"""Schemes of tags, against rules and spans that are written out by hand."""

import itertools

import pytest

from data.vocabulary import tag_schemes

IOB2 = ('O', 'B-X', 'I-X', 'B-Y', 'I-Y')
BIOUL = ('O', *(f'{mark}-{name}' for name in 'XY' for mark in 'BILU'))


def sequences(labels, longest):
  for length in range(1, longest + 1):
    yield from itertools.product(labels, repeat=length)


def spans_of_iob2(tags):
  """Returns {(first, end, type)}; None if an I- goes on with nothing."""
  spans, first = set(), None
  for i, tag in enumerate((*tags, 'O')):
    if tag[0] == 'I':
      if first is None or tag[2:] != tags[i - 1][2:]:
        return None
      continue
    if first is not None:
      spans.add((first, i, tags[first][2:]))
    first = i if tag[0] == 'B' else None
  return spans


def spans_of_bioul(tags):
  """Returns {(first, end, type)}; None if a span lacks its begin or end."""
  spans, first = set(), None
  for i, tag in enumerate(tags):
    if tag[0] in 'IL':
      if first is None or tag[2:] != tags[first][2:]:
        return None
      if tag[0] == 'L':
        spans.add((first, i + 1, tag[2:]))
        first = None
      continue
    if first is not None:
      return None
    if tag[0] == 'U':
      spans.add((i, i + 1, tag[2:]))
    first = i if tag[0] == 'B' else None
  return None if first is not None else spans


def test_every_short_sequence_there_and_back():
  valid = [s for s in sequences(IOB2, 4) if spans_of_iob2(s) is not None]
  assert len(valid) > 100
  for tags in valid:
    bioul = tag_schemes.to_bioul(tags)
    assert spans_of_bioul(bioul) == spans_of_iob2(tags)
    assert tag_schemes.from_bioul(bioul) == tags
    assert tag_schemes.to_iob2(tags) == tags


def test_every_sequence_of_bioul_becomes_valid():
  for tags in sequences(BIOUL, 4):
    found = tag_schemes.from_bioul(tags)
    spans = spans_of_iob2(found)
    assert spans is not None
    # Neither types nor words outside of spans change.
    assert [tag[2:] for tag in found] == [tag[2:] for tag in tags]
    if (expected := spans_of_bioul(tags)) is not None:
      assert spans == expected


def test_iob1_becomes_iob2():
  tags = ('I-PER', 'I-LOC', 'O', 'I-LOC', 'B-LOC', 'I-LOC')
  expected = ('B-PER', 'B-LOC', 'O', 'B-LOC', 'B-LOC', 'I-LOC')
  assert tag_schemes.to_iob2(tags) == expected
  assert tag_schemes.to_bioul(tags) == (
    'U-PER',
    'U-LOC',
    'O',
    'U-LOC',
    'B-LOC',
    'L-LOC',
  )


def test_labels():
  assert tag_schemes.iob2_labels('XY') == IOB2
  mixed = ('I-X', 'B-Y', 'O', 'B-X', 'I-Y')
  assert tag_schemes.bioul_labels(mixed) == BIOUL
  assert tag_schemes.marks_spans(mixed)
  assert not tag_schemes.marks_spans(('NN', 'O'))
  assert not tag_schemes.marks_spans(BIOUL)


@pytest.mark.parametrize(
  ('labels', 'spans_of'), [(IOB2, spans_of_iob2), (BIOUL, spans_of_bioul)]
)
def test_allowed_sequences_are_the_valid_ones(labels, spans_of):
  """By brute force: what three words can show is all of a table of pairs."""
  table = tag_schemes.allowed(labels)
  start, end = len(labels), len(labels) + 1
  number = {label: i for i, label in enumerate(labels)}
  for tags in sequences(labels, 3):
    path = [start, *(number[tag] for tag in tags), end]
    ok = all(table[i][j] for i, j in itertools.pairwise(path))
    assert ok == (spans_of(tags) is not None), tags
  assert len(table) == len(table[0]) == len(labels) + 2
  assert not any(row[start] for row in table)
  assert not any(table[end])
  assert not table[start][end]


def test_parts_of_speech_follow_each_other_freely():
  table = tag_schemes.allowed(('NN', 'VB', 'O', 'I-O'))
  assert table == ((True,) * 6,) * 6


def test_what_is_not_iob2_is_named():
  tag_schemes.check_iob2('f', ('B-X', 'I-X', 'O', 'B-Y', 'B-Y', 'I-Y'))
  tag_schemes.check_iob2('f', ())
  for tags, message in (
    (('O', 'I-X'), "word 2: found the tag 'I-X' after 'O', expected B-X"),
    (('B-Y', 'I-Y', 'I-X'), "word 3: found the tag 'I-X' after 'I-Y', expect"),
    (('I-X',), "word 1: found the tag 'I-X' at the begin of the sentence, exp"),
  ):
    with pytest.raises(ValueError, match=f'f.txt, line 7, {message}'):
      tag_schemes.check_iob2('f.txt, line 7', tags)
