"""Choices of layers, as options spell them."""

import json

import pytest

from train.vectors import request
from train.vectors.request import Choice


def test_choices_are_read(tmp_path):
  assert request.parse_choice('mean') == Choice('mean')
  assert request.parse_choice('-1,-2') == Choice((-1, -2))
  assert request.parse_choice('0,1', 'sum') == Choice((0, 1), 'sum')
  mix = Choice('all', 'mix', (0.2, -1.0, 1.3))
  assert request.parse_choice('all', 'mix', '.2,-1:1.3') == mix
  path = tmp_path / 'mix.json'
  path.write_text(json.dumps({'mix_weights': [0.2, -1], 'mix_scale': 1.3}))
  assert request.parse_choice('all', 'mix', str(path)) == mix


@pytest.mark.parametrize(
  'options, message',
  [
    (('last',), '--layers=last: expected all, mean'),
    (('top', 'sum'), 'that is one layer already'),
    (('0,1', 'mix'), '--mix belongs to --combine=mix'),
    (('0,1', 'mix', '1,2:inf'), 'expected finite numbers'),
    (('0,1', 'mix', '1:2:3'), '--mix=1:2:3: expected numbers as in'),
    (('0,1', 'mix', '1,2,3:1'), 'expected a weight for each of the 2 layers'),
  ],
)
def test_choices_without_sense(options, message):
  with pytest.raises(ValueError, match=message):
    request.parse_choice(*options)


def test_choices_are_checked_against_a_model():
  assert Choice([0, -1]).checked(2) == Choice((0, -1))
  for layers in ((0, 3), (-4,), 'middle'):
    with pytest.raises(ValueError, match='or numbers from -3 to 2'):
      Choice(layers).checked(2)
  with pytest.raises(ValueError, match='--mix has 1 weights and a scale'):
    Choice('all', 'mix', (1.0, 2.0)).checked(2)
