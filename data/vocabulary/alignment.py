"""Where the characters of a changed text come from."""

import re
from collections.abc import Iterator

Span = tuple[int, int]

_RUNS = re.compile(r'\s+|\S+')
# A change ends where so many characters are the same again, if it is not longer
# than that, old and new characters together.
_SAME = 4
_LONGEST = 100


def align(before: str, after: str) -> list[Span]:
  """Returns where each character of a changed text comes from.

  Args:
    before: a text.
    after: the text after small changes here and there.

  Returns:
    For each character of `after` start and end in `before`. What is equal or
    was exchanged one for one has a character each; of any other change each
    new character has all the old ones, of which there may be none. What was
    only taken out belongs to no character.
  """
  # Hardly a repair changes the number of words, and then each is one's own.
  old, new = _RUNS.findall(before), _RUNS.findall(after)
  if len(old) != len(new) or before[:1].isspace() != after[:1].isspace():
    old, new = [before], [after]
  spans, start = [], 0
  for run, changed in zip(old, new, strict=True):
    for a, b, count in _changes(run, changed):
      if b - a == count:
        spans += [(start + i, start + i + 1) for i in range(a, b)]
      else:
        spans += [(start + a, start + b)] * count
    start += len(run)
  return spans


def _changes(before: str, after: str) -> Iterator[tuple[int, int, int]]:
  """What is equal or changed: start and end, and the number of new ones."""
  i = j = 0
  while j < len(after):
    if before[i : i + 1] == after[j]:
      yield i, i + 1, 1
      i, j = i + 1, j + 1
    else:
      a, b = _resume(before, after, i, j)
      yield i, a, b - j
      i, j = a, b


def _resume(before: str, after: str, i: int, j: int) -> tuple[int, int]:
  """Where both run on alike after the shortest change."""
  for length in range(1, _LONGEST):
    for taken in range(length + 1):
      a, b = i + taken, j + length - taken
      if before[a : a + _SAME] == after[b : b + _SAME]:
        return min(a, len(before)), min(b, len(after))
  return len(before), len(after)


def repair(text: str) -> tuple[str, list[Span]]:
  """Returns a text as ftfy repairs it, and where its characters come from.

  The text is that of `ftfy.fix_text`. It, too, repairs line by line, and stops
  reading HTML's entities where the first `<` stands.
  """
  import ftfy

  unescape = 'auto'
  repaired, spans, start = [], [], 0
  for line in re.findall(r'[^\n]*\n|[^\n]+', text):
    if '<' in line:
      unescape = False
    new = ftfy.fix_text(line, unescape_html=unescape)
    spans += [(start + a, start + b) for a, b in align(line, new)]
    repaired.append(new)
    start += len(line)
  return ''.join(repaired), spans
