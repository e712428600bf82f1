"""WikiText and the Penn Treebank as people write them, and their words."""

import re

import pytest

from data.text import detokenize


@pytest.mark.parametrize(
  ('tokens', 'text'),
  [
    (' = Robert <unk> = \n', '= Robert <unk> =\n'),
    (' = = Career = = \n', '== Career ==\n'),
    (' = = = 2000 – 2005 = = = \n', '=== 2000 – 2005 ===\n'),
    (' a guest @-@ starring role \n', 'a guest-starring role\n'),
    (' 1 @,@ 234 @.@ 5 tons \n', '1,234.5 tons\n'),
    (" It 's his , isn 't it ? \n", "It's his, isn't it?\n"),
    (" the ships ' hulls ; the ' 90s \n", "the ships' hulls; the '90s\n"),
    (' He said : " No ! " , then left . \n', 'He said: "No!", then left.\n'),
    (' ( " A " and [ b ] ) at 71 % \n', '("A" and [b]) at 71%\n'),
    (' = 5 ° C for $ 3 ... \n', '= 5°C for $3...\n'),
    (' one " odd quote \n', 'one " odd quote\n'),
    (' \n \n', '\n\n'),
    ('', ''),
  ],
)
def test_wikitext(tokens, text):
  assert detokenize.wikitext(tokens) == text


@pytest.mark.parametrize(
  ('tokens', 'text'),
  [
    (" mr. <unk> is n't here \n", "mr. <unk> isn't here\n"),
    (" it 's up N N to $ N billion \n", "it's up 1 1 to $1 billion\n"),
    (" the companies ' # N bid \n", "the companies' #1 bid\n"),
    (' no nn N.V. we wo \n', 'no nn N.V. we wo\n'),
  ],
)
def test_penn_treebank(tokens, text):
  assert detokenize.penn_treebank(tokens) == text


def test_all_of_wikitext(sesame_data):
  """Nothing but white space and the marks of the tokenisation goes."""
  path = sesame_data / 'wikitext-2/wiki.test.tokens'
  tokens = path.read_bytes().decode()
  text = detokenize.wikitext(tokens)
  assert text.count('\n') == tokens.count('\n')
  letters = re.sub(r' @([-,.])@ ', r'\1', tokens)
  assert text.split() != tokens.split()
  assert ''.join(text.split()) == ''.join(letters.split())
  assert not re.search(r' [,.;?)](?: |$)|\( | @[-,.]@ |^ | $', text, re.M)
  assert text.count('<unk>') == tokens.count('<unk>')
  # One function of a line after the other.
  lines = tokens.split('\n')
  assert [detokenize.wikitext(line) for line in lines] == text.split('\n')


def test_words_of_the_original(sesame_data):
  path = sesame_data / 'wikitext-2/wiki.test.tokens'
  tokens = path.read_bytes().decode()
  assert detokenize.count_words(tokens) == 245_569  # the published counts
  assert detokenize.count_words(tokens, line_ends=False) == 241_211
  assert set(detokenize.DETOKENIZERS) == {'none', 'wikitext', 'ptb'}
