"""Undoes the tokenisation of benchmarks, and counts their words.

Models of plain text are scored on WikiText and the Penn Treebank, their loss
spread over the original words (Radford et al. 2019, section 3.1).
"""

import re
from collections.abc import Callable

# WikiText splits and marks hyphens, commas and points inside words and numbers.
_INNER = re.compile(r' @([-,.])@ ')
_HEADING = re.compile(r'^ *((?:= )+)(.*?)((?: =)+) *$', re.MULTILINE)
_BEFORE = re.compile(
  r" (?=(?:[,.;:!?)\]}%]|\.\.\.|'(?:s|t|re|ve|m|ll|d))(?:[ \"]|$))"
)
_AFTER = re.compile(r'(?<![^ \n"(\[{])([(\[{$£€¥#]) ')
_POSSESSIVE = re.compile(r"(?<=s) '(?= |$)")
_YEARS = re.compile(r"(?<![^ \n])' (?=\d)")  # the ' 90s
_DEGREES = re.compile(r' ° ?')
_QUOTED = re.compile(r'(?<![^ (\[{\n])" ([^"\n]*?) "(?![^ ,.;:!?)\]}%\n])')
_EDGES = re.compile(r'^ +| +$', re.MULTILINE)

_PTB_SUFFIX = re.compile(r" (?=(?:n't|'(?:s|re|ve|m|ll|d)?)(?: |$))")
_PTB_NUMBER = re.compile(r'(?<![^ \n])N(?![^ \n])')
_PTB_SIGN = re.compile(r'(?<![^ \n])([$#]) (?=1(?: |$))', re.MULTILINE)


def wikitext(text: str) -> str:
  """Undoes the tokenisation of WikiText-2 and WikiText-103, line by line.

  Removes spaces round hyphens, marks, brackets, contractions and double quotes,
  inside the signs of headings and at line ends. `<unk>` and the case stay, and
  a single quote that opens a quotation, as it looks like an apostrophe.
  """
  text = _INNER.sub(r'\1', text)
  text = _HEADING.sub(_join_heading, text)
  # Marks first: the end of a quotation may stand before one.
  text = _QUOTED.sub(r'"\1"', text)
  text = _each_line(_BEFORE, '', text)
  text = _AFTER.sub(r'\1', text)
  text = _each_line(_POSSESSIVE, "'", text)
  text = _YEARS.sub("'", text)
  text = _DEGREES.sub('°', text)
  return _EDGES.sub('', text)


def _join_heading(match: re.Match) -> str:
  left, title, right = match.groups()
  return f'{left.replace(" ", "")} {title} {right.replace(" ", "")}'


def _each_line(pattern: re.Pattern, by: str, text: str) -> str:
  return '\n'.join(pattern.sub(by, line) for line in text.split('\n'))


def penn_treebank(text: str) -> str:
  """Undoes the Penn Treebank's tokenisation, as Mikolov et al. cut it.

  Joins contractions and possessives to their words and signs of currency to
  numbers; `N`, any number, becomes 1; `<unk>` stays. Case and marks are lost.
  """
  text = _each_line(_PTB_SUFFIX, '', text)
  text = _PTB_NUMBER.sub('1', text)
  text = _PTB_SIGN.sub(r'\1', text)
  return _EDGES.sub('', text)


DETOKENIZERS: dict[str, Callable[[str], str]] = {
  'none': lambda text: text,
  'wikitext': wikitext,
  'ptb': penn_treebank,
}


def count_words(text: str, *, line_ends: bool = True) -> int:
  """Returns the words of the ORIGINAL (tokenised) text, for word perplexity.

  With `line_ends` the end of each line is a word, as language models of words
  predict it: 245,569 words in WikiText-2's test set, else 241,211.
  """
  words = len(text.split())
  return words + text.count('\n') if line_ends else words
