"""Spans outside of a sentence, and other wrong targets, are refused."""

import pytest

from data.tasks.probes import targets
from data.tasks.probes.targets import Sentence, Target


@pytest.mark.parametrize(
  ('words', 'spans', 'labels', 'message'),
  [
    (
      'a b',
      ((0, 3),),
      ('X',),
      r'f, line 1: found the span \[0, 3\) in a sent.*2',
    ),
    ('a b', ((-1, 1),), ('X',), r'found the span \[-1, 1\)'),
    (
      'a b',
      ((1, 1),),
      ('X',),
      r'expected 0 <= first < end <= 2: the words are',
    ),
    (
      'a b',
      ((0, 1), (1, 2)),
      ('X',),
      'found a target of 2 spans, expected 1 as',
    ),
    ('a b', ((0, 1),), ('X', ''), r"found the labels \['X', ''\], expected no"),
    ('', (), (), 'found an empty sentence, expected words'),
  ],
)
def test_a_wrong_target_is_named(words, spans, labels, message):
  sentence = Sentence(tuple(words.split()), (Target(spans, labels),))
  with pytest.raises(ValueError, match=message):
    targets.check_targets('f, line 1', sentence, 1)


def test_tags_as_spans():
  tags = 'B-A I-A B-A O B-B I-B'.split()
  assert targets.spans_of_tags(tags) == [
    ('A', (0, 2)),
    ('A', (2, 3)),
    ('B', (4, 6)),
  ]
