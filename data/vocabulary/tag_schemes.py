"""How tags mark spans of words: IOB1, IOB2, BIOUL and their other spellings.

IOB2 begins every span with B-TYPE and goes on with I-TYPE; IOB1 begins a span
with I-TYPE, but after another span of its type. BIOUL ends a span with L-TYPE,
and U-TYPE is a span of one word (Ratinov and Roth 2009). O is
outside of spans in all of them. BIOES writes E and S for L and U, BMES M for I
as well; some corpora write B_TYPE, TYPE-B or TYPE_B. `Scheme` reads them all.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

_IOB = ('B-', 'I-')
_BIOUL = ('B-', 'I-', 'L-', 'U-')
_OUTSIDE = 'O'
# Begin and end of a sentence, which no tag is called.
_START, _END = '<', '>'


class Scheme(NamedTuple):
  """How tags are spelt that mark spans.

  Attributes:
    name: IOB, BIOES, BIOUL or BMES.
    separator: between mark and type.
    type_first: TYPE-B instead of B-TYPE.
  """

  name: str
  separator: str = '-'
  type_first: bool = False

  def split(self, tag: str) -> tuple[str, str] | None:
    """Returns (mark, type) of a tag but O; None if it is not in the scheme."""
    if self.type_first:
      kind, separator, mark = tag.rpartition(self.separator)
    else:
      mark, separator, kind = tag.partition(self.separator)
    return (mark, kind) if separator and kind and mark in _MARKS else None

  def holds(self, tag: str) -> bool:
    """Returns whether a tag is one of the scheme."""
    found = self.split(tag)
    return tag == _OUTSIDE or (
      found is not None and found[0] in _SCHEMES[self.name]
    )

  def to_iob2(self, tags: Sequence[str]) -> tuple[str, ...]:
    """Returns tags in IOB2; others than the scheme's stay as they are."""
    found, open_type = [], None
    for tag in tags:
      mark, kind = self.split(tag) or ('', None)
      if kind is None:
        found.append(tag)
      else:
        begins = mark in 'BSU' or kind != open_type
        found.append(f'{"B" if begins else "I"}-{kind}')
      open_type = None if mark in 'ELSU' else kind
    return tuple(found)


# Name -> the marks of its tags.
_SCHEMES = {'IOB': 'BI', 'BIOES': 'BIES', 'BIOUL': 'BILU', 'BMES': 'BMES'}
_MARKS = tuple('BIELSUM')


def scheme_of(labels: Iterable[str]) -> Scheme | None:
  """Returns the scheme that all labels are of; None if they mark no spans."""
  labels = set(labels) - {_OUTSIDE}
  for type_first in (False, True):
    for separator in '-_':
      for name in _SCHEMES:
        scheme = Scheme(name, separator, type_first)
        if labels and all(map(scheme.holds, labels)):
          return scheme
  return None


def iob2_labels(types: Iterable[str]) -> tuple[str, ...]:
  """Returns O, and B- and I- of each type."""
  return (_OUTSIDE, *(mark + name for name in types for mark in _IOB))


def bioul_labels(labels: Sequence[str]) -> tuple[str, ...]:
  """Returns O, and B-, I-, L- and U- of each type of IOB2 labels, in order."""
  types = dict.fromkeys(label[2:] for label in labels if label != _OUTSIDE)
  return (_OUTSIDE, *(mark + name for name in types for mark in _BIOUL))


def marks_spans(labels: Iterable[str]) -> bool:
  """Returns whether all labels are O, B-TYPE or I-TYPE."""
  return all(label == _OUTSIDE or label[:2] in _IOB for label in labels)


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
  """Returns tags of IOB1 or IOB2 in IOB2: every span begins with B-."""
  found = []
  before = _OUTSIDE
  for tag in tags:
    if tag.startswith('I-') and before[1:] != tag[1:]:
      tag = f'B-{tag[2:]}'
    found.append(tag)
    before = tag
  return tuple(found)


def from_bioul(tags: Sequence[str]) -> tuple[str, ...]:
  """Returns tags of BIOUL in IOB2; a span that has no begin gets one."""
  in_iob = {'L-': 'I-', 'U-': 'B-'}
  return to_iob2([in_iob.get(tag[:2], tag[:2]) + tag[2:] for tag in tags])


def to_bioul(tags: Sequence[str]) -> tuple[str, ...]:
  """Returns tags of IOB1 or IOB2 in BIOUL."""
  tags = to_iob2(tags)
  # Mark -> mark of the last word of a span.
  last = {'B': 'U', 'I': 'L'}
  return tuple(
    tag
    if tag == _OUTSIDE or following == f'I-{tag[2:]}'
    else last[tag[0]] + tag[1:]
    for tag, following in zip(tags, (*tags[1:], _OUTSIDE), strict=True)
  )


def check_iob2(where: str, tags: Sequence[str]) -> None:
  """Raises ValueError at an I- of IOB2 that goes on with no span.

  `where` is the place of the sentence, for the message.
  """
  for i, tag in enumerate(tags):
    before = tags[i - 1] if i else _OUTSIDE
    if tag.startswith('I-') and before[1:] != tag[1:]:
      after = f'after {before!r}' if i else 'at the begin of the sentence'
      raise ValueError(
        f'{where}, word {i + 1:,}: found the tag {tag!r} {after}, expected '
        f'B-{tag[2:]}: in IOB2 every span begins with B-'
      )


def allowed(labels: Sequence[str]) -> tuple[tuple[bool, ...], ...]:
  """Returns whether one of K labels may follow another, [from, to].

  The table is [K + 2, K + 2]: K is the begin of a sentence, K + 1 its end.
  Labels with an L- or U- are read as BIOUL, others as IOB2; as in AllenNLP
  0.9.0 (conditional_random_field.py), a sentence is not empty. Labels that
  mark no spans, such as parts of speech, may all follow each other.
  """
  is_bioul = any(label[:2] in _BIOUL[2:] for label in labels)
  marks = _BIOUL if is_bioul else _IOB
  states = (*labels, _START, _END)
  if not all(x == _OUTSIDE or x[:2] in marks for x in labels):
    return ((True,) * len(states),) * len(states)

  def follows(before: str, after: str) -> bool:
    if _END == before or _START == after or before + after == _START + _END:
      return False
    if after[0] in 'IL':
      return before[0] in 'BI' and before[1:] == after[1:]
    # Only BIOUL tells that a span ends.
    return not (is_bioul and before[0] in 'BI')

  return tuple(tuple(follows(x, y) for y in states) for x in states)
