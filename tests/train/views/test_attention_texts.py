import pytest

from train.views import attention_texts
from train.views.attention_texts import ShownText


def test_texts_of_options_and_examples():
  choose = attention_texts.choose
  assert choose(None, 'a', 'b', ['c']) == (ShownText('a', 'b'), ShownText('c'))
  nurse, doctor = choose('nurse', None, None, [])
  assert 'nurse said she' in nurse.first and 'doctor said he' in doctor.first
  bank = choose('bank', None, None, [])
  assert len(bank) == 5
  for texts in attention_texts.EXAMPLES.values():
    for text in texts:
      words = text.first.lower().strip('.').split()
      assert text.word in words and text.target in (None, *words)


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    ((None, None, None, []), 'no text: expected --text, --example, --sen'),
    ((None, ' \n', None, []), r"--text is ' .n', expected a text"),
    ((None, 'a', '', []), "--pair is '', expected a text"),
    ((None, 'a', None, ['b', ' ']), "--beside is ' ', expected a text"),
    ((None, 'a', None, ['b'] * 8), '--beside: 9 texts in all, expected 8'),
    (('nurse', 'a', None, []), '--example has texts of its own'),
    (('cat', None, None, []), '--example=cat: expected one of nurse, bank'),
  ],
)
def test_texts_that_are_refused(given, message):
  with pytest.raises(ValueError, match=message):
    attention_texts.choose(*given)


def test_a_figure_takes_no_text():
  attention_texts.check_none('winobias', None, None, None, [], precise=False)
  with pytest.raises(ValueError, match='give no --text, --precise with it'):
    attention_texts.check_none('winobias', None, 'a', None, [], precise=True)
