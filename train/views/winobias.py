"""WinoBias: a pronoun, the occupation that it means, and another occupation.

Zhao et al. 2018, "Gender Bias in Coreference Resolution". A line of its files
is `1 [The developer] argued with the designer because [she] did not like the
design.`: the brackets are round the right occupation and the pronoun. A
sentence of a pro-stereotyped file and the one of the same number in the
anti-stereotyped file have the same right occupation; the pronoun's gender is
the one that goes with it by the statistics of labour, or the other.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from etils import epath

from data.text import text_files

KINDS = ('pro', 'anti')
TYPES = (1, 2)
SPLITS = ('dev', 'test')
OCCUPATIONS = ('female_occupations.txt', 'male_occupations.txt')
PRONOUNS = frozenset(
  {'he', 'she', 'him', 'her', 'his', 'hers', 'himself', 'herself'}
)
_BRACKETS = re.compile(r'\[([^\[\]]*)\]')
Span = tuple[int, int]  # characters [start, end) of a text


class Sentence(NamedTuple):
  """A sentence without brackets, and where its words are.

  Attributes:
    right: the occupation that the pronoun means, without its article.
    other: the other occupation.
  """

  text: str
  pronoun: Span
  right: Span
  other: Span


class Pair(NamedTuple):
  """Two sentences that differ in the pronoun; `type` is 1 or 2."""

  type: int
  pro: Sentence
  anti: Sentence


def read(folder: epath.PathLike) -> list[Pair]:
  """Reads all pairs of the folder that holds WinoBias' plain files.

  Raises an OSError for a missing file, and ValueError, with file and line, for
  a line without its brackets, or without a second occupation.
  """
  folder = epath.Path(folder).expanduser()
  names = [
    line.strip() for name in OCCUPATIONS for line in _lines(folder / name)
  ]
  occupations = [name for name in names if name]
  if not occupations:
    raise ValueError(f'{folder / OCCUPATIONS[0]}: no occupation, one a line')
  pairs = []
  for type_ in TYPES:
    for split in SPLITS:
      paths = [
        folder / f'{kind}_stereotyped_type{type_}.txt.{split}' for kind in KINDS
      ]
      sides = [_read_sentences(path, occupations) for path in paths]
      if len(sides[0]) != len(sides[1]):
        raise ValueError(
          f'{paths[0]} has {len(sides[0]):,} sentences and {paths[1].name}'
          f' {len(sides[1]):,}, expected as many'
        )
      pairs += [Pair(type_, *both) for both in zip(*sides, strict=True)]
  if not pairs:
    raise ValueError(f'{folder}: the files of WinoBias are empty')
  return pairs


def _lines(path: epath.Path) -> list[str]:
  text_files.check_file(path)
  return list(text_files.lines_of(path))


def _read_sentences(
  path: epath.Path, occupations: Sequence[str]
) -> list[Sentence]:
  sentences = []
  for number, line in enumerate(_lines(path), start=1):
    if not line.strip():
      continue
    try:
      sentences.append(parse(line, occupations))
    except ValueError as error:
      raise ValueError(f'{path}, line {number:,}: {error}') from None
  return sentences


def parse(line: str, occupations: Sequence[str]) -> Sentence:
  """Returns the sentence of a line of WinoBias.

  If several pronouns are in brackets, the first is asked about. The other
  occupation is the first word, outside of brackets, that is one of the
  `occupations` and not the right one. Raises ValueError if a part is missing.
  """
  line = re.sub(r'^\s*\d+\s+', '', line).strip()
  text, spans = '', []
  for place, part in enumerate(_BRACKETS.split(line)):
    if place % 2:
      start = len(text) + len(part) - len(part.lstrip())
      spans.append((start, start + len(part.strip())))
    text += part
  pronouns, others = [], []
  for span in spans:
    is_pronoun = text[slice(*span)].lower() in PRONOUNS
    (pronouns if is_pronoun else others).append(span)
  if not pronouns or len(others) != 1:
    raise ValueError(
      f'{len(others)} occupations and {len(pronouns)} pronouns in brackets,'
      f' expected 1 and at least 1: {line[:80]!r}'
    )
  ((start, end),) = others
  article = re.match(r'(the|a|an)\s+', text[start:end], re.IGNORECASE)
  right = start + (article.end() if article else 0), end
  named = text[slice(*right)].lower()
  pattern = '|'.join(map(re.escape, sorted(occupations, key=len, reverse=True)))
  for found in re.finditer(rf'\b(?:{pattern})\b', text, re.IGNORECASE):
    outside = all(found.end() <= a or b <= found.start() for a, b in spans)
    if outside and found[0].lower() != named:
      return Sentence(text, pronouns[0], right, found.span())
  raise ValueError(f'no second occupation: {line[:80]!r}')
