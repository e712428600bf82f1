"""Benchmarks' tokenised text to text as people write it, and its words.

A model that reads text is scored on WikiText and the Penn Treebank by undoing
their tokenisation, and its loss is shared out over the words of the original
(Radford et al. 2019, section 3.1). Pure functions of text; apply them to whole
documents or lines, never to a part of a line.
"""

import re
from collections.abc import Callable

# WikiText splits hyphens, commas and points inside words and numbers, and
# marks the place.
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
  """Undoes the tokenisation of WikiText-2 and WikiText-103.

  Hyphens, marks, brackets, contractions and double quotes lose the spaces that
  they were given, headings those between their signs, lines those at their
  ends. `<unk>` and the case stay. A single quote that opens a quotation cannot
  be told from an apostrophe and stays as it is.

  Args:
    text: lines of a `.tokens` file.

  Returns:
    As many lines as there were.
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
  """Replaces where `$` is the end of a line."""
  return '\n'.join(pattern.sub(by, line) for line in text.split('\n'))


def penn_treebank(text: str) -> str:
  """Undoes the tokenisation of the Penn Treebank as Mikolov et al. cut it.

  Contractions and possessives are joined to their words. The text has no case
  and no marks left to restore. `N`, which stands for any number, becomes 1, and
  a sign of currency is joined to it; `<unk>` stays.

  Args:
    text: lines of a `ptb.*.txt` file.

  Returns:
    As many lines as there were.
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
  """Returns the words of the ORIGINAL text, for a perplexity per word.

  Args:
    text: as published, before it is detokenised.
    line_ends: count the end of each line as a word, as language models of
      words predict it: 245,569 in WikiText-2's test set, else 241,211.
  """
  words = len(text.split())
  return words + text.count('\n') if line_ends else words
