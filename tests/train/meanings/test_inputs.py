"""Words are found in sentences, and bad input is named."""

import pytest

from train.meanings import inputs


def test_every_place_of_a_word(tmp_path):
  file = tmp_path / 'text'
  file.write_text('The bank of a Bank\nBANK\n')
  found = inputs.find_word(file, 'Bank', False)
  assert [(each.where, each.place) for each in found] == [
    (f'{file}, line 1', 1),
    (f'{file}, line 1', 4),
    (f'{file}, line 2', 0),
  ]
  assert found[0].words == found[1].words == tuple('The bank of a Bank'.split())
  file.write_text("The bank's door. A (bank)!\n")
  first, second = inputs.find_word(file, 'bank', True)
  assert first.words[first.place :][:2] == ('bank', "'s")
  assert second.words[second.place :] == ('bank', ')', '!')


@pytest.mark.parametrize(
  ('text', 'word', 'message'),
  [
    ('a bank\nthe river\n', 'bank', "line 2: found no 'bank': 'the river'"),
    ('a bank\nbanks\n', 'bank', "line 2: found no 'bank' as a word of its own"),
    ('a bank\n\n', 'bank', "line 2: found no 'bank'"),
    ('', 'bank', 'is empty'),
    ('a bank\n', 'a bank', "--word='a bank': expected one word, found 2"),
    ('a bank\n', '', "--word='': expected one word, found 0"),
  ],
)
def test_sentences_without_the_word(tmp_path, text, word, message):
  (tmp_path / 'text').write_text(text)
  with pytest.raises(ValueError, match=message):
    inputs.find_word(tmp_path / 'text', word, False)


def test_shifts():
  assert inputs.parse_shifts('0,8,1') == (0, 8, 1)
  for wrong in ('', '1,', '-1', '1.5', 'a', '1,1'):
    with pytest.raises(ValueError, match=f'--shift={wrong}: '):
      inputs.parse_shifts(wrong)


def test_translations(tmp_path):
  one, other = tmp_path / 'one', tmp_path / 'other'
  one.write_text('a text\nthe same\n')
  other.write_text('ein Text\nderselbe')
  assert inputs.read_translations(one, other) == [
    ['a text', 'the same'],
    ['ein Text', 'derselbe'],
  ]


@pytest.mark.parametrize(
  ('first', 'second', 'message'),
  [
    ('a\nb\n', 'c\n \n', 'two, line 2: found an empty line'),
    ('a\n\nb\n', 'c\nd\n', 'one, line 2: found an empty line'),
    ('a\nb\n', 'c\nd\ne\n', 'two: found 3 lines, expected 2, .* of .*one'),
    ('a\nb\n', 'c\n', 'two: found 1 line, expected 2 or more'),
    ('a\nb\n', 'a\nb', 'two: found the lines of .*one, expected their trans'),
    ('', 'c\n', 'one: is empty'),
  ],
)
def test_no_translations(tmp_path, first, second, message):
  (tmp_path / 'one').write_text(first)
  (tmp_path / 'two').write_text(second)
  with pytest.raises(ValueError, match=message):
    inputs.read_translations(tmp_path / 'one', tmp_path / 'two')
