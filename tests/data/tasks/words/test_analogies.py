"""Questions of analogies: sections, and what is wrong with a line."""

import pytest

from data.tasks.words import analogies

TEXT = """: family
boy girl brother sister

: empty
: gram1-adverb
calm calmly happy happily
calm calmly  rapid rapidly
"""


def test_sections(tmp_path):
  path = tmp_path / 'questions.txt'
  path.write_text(TEXT)
  family, adverbs = analogies.read(path)
  assert family.name == 'family' and not family.is_syntactic
  assert family.questions == (('boy', 'girl', 'brother', 'sister'),)
  assert adverbs.name == 'gram1-adverb' and adverbs.is_syntactic
  assert adverbs.questions[1] == ('calm', 'calmly', 'rapid', 'rapidly')


def test_the_released_questions(sesame_data):
  folder = sesame_data / 'word_similarity'
  sections = analogies.read(folder / 'questions-words.txt')
  assert sum(len(each.questions) for each in sections) == 19_544
  # compute-accuracy.c counts the first five as semantic.
  assert [each.is_syntactic for each in sections] == [False] * 5 + [True] * 9
  phrases = analogies.read(folder / 'questions-phrases.txt')
  assert sum(len(each.questions) for each in phrases) == 3_218


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('', 'found no question, expected four words a line'),
    (': family\n', 'found no question'),
    ('boy girl brother sister', r'line 1: found a question, .* : family'),
    (': a\nboy girl brother', 'line 2: found 3 words, expected 4, as in Ath'),
    (': a\n\nboy girl a b c', r"line 3: found 5 words, .*: 'boy girl a b c'"),
    (': a\n: \n', "line 2: found the section ':', expected a colon and a name"),
    (': a\na b c d\n: a\n', "line 3: found the section ': a' again"),
  ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
  path = tmp_path / 'questions.txt'
  path.write_text(text)
  with pytest.raises(ValueError, match=f'questions.txt.*{message}'):
    analogies.read(path)
