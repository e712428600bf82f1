"""Lines of WinoBias as released, and lines that are refused."""

import shutil

import pytest

from train.views import winobias

OCCUPATIONS = ['nurse', 'worker', 'construction worker', 'baker', 'cook']


@pytest.mark.parametrize(
  ('line', 'parts'),
  [
    (
      '7 [The construction worker] met a nurse because [he] had time.',
      ('he', 'construction worker', 'nurse'),
    ),
    ('The cook met the [ nurse] and [ her] cat.', ('her', 'nurse', 'cook')),
    (
      '1 The baker saw [the nurse] as [she] cut [her] hair, a nurse.',
      ('she', 'nurse', 'baker'),
    ),
    (
      '[The cook] knows the baker since [she] he is a good baker.',
      ('she', 'cook', 'baker'),
    ),
  ],
)
def test_parts_of_a_sentence(line, parts):
  found = winobias.parse(line, OCCUPATIONS)
  assert '[' not in found.text and not found.text[0].isdigit()
  spans = found.pronoun, found.right, found.other
  assert tuple(found.text[a:b] for a, b in spans) == parts
  if 'good' in line:  # the first, not the last
    assert found.other[0] == found.text.index('baker')


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('1 The cook met the nurse.', '0 occupations and 0 pronouns in brackets'),
    ('[The cook] met [the nurse] and [her].', '2 occupations and 1 pronouns'),
    ('[The cook] met [the nurse].', '2 occupations and 0 pronouns'),
    ('[The cook] met the painter and [her] cat.', 'no second occupation'),
  ],
)
def test_lines_that_are_refused(line, message):
  with pytest.raises(ValueError, match=message):
    winobias.parse(line, OCCUPATIONS)


def test_the_released_files(sesame_data, tmp_path):
  folder = sesame_data / 'winobias'
  pairs = winobias.read(folder)
  assert [pair.type for pair in pairs] == [1] * 792 + [2] * 792
  same_right = same_rest = 0
  for pair in pairs:
    both = pair.pro, pair.anti
    right = {each.text[slice(*each.right)].lower() for each in both}
    same_right += len(right) == 1
    rest = {
      each.text[: each.pronoun[0]] + each.text[each.pronoun[1] :]
      for each in both
    }
    same_rest += len(rest) == 1
  assert (same_right, same_rest) == (1582, 1522)

  for path in folder.glob('*.*'):
    shutil.copy(path, tmp_path)
  path = tmp_path / 'anti_stereotyped_type2.txt.test'
  lines = path.read_text().splitlines()
  path.write_text('\n'.join(lines[:-1]))
  with pytest.raises(
    ValueError, match='has 396 sentences and .* 395, expected'
  ):
    winobias.read(tmp_path)
  path.write_text('\n'.join([*lines[:-1], '396 no brackets']))
  with pytest.raises(ValueError, match=r'type2.txt.test, line 396: 0 occ'):
    winobias.read(tmp_path)
  path.unlink()
  with pytest.raises(
    FileNotFoundError, match='anti_stereotyped_type2.txt.test'
  ):
    winobias.read(tmp_path)
