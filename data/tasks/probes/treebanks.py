"""Probes of the English Web Treebank: parts of speech, trees, roles, heads.

Parts of speech, constituents and roles are read from PropBank's columns (see
`annotated.roles`), dependencies from CoNLL-U.
"""

import itertools
import re
from collections.abc import Sequence

from etils import epath

from data.tasks.annotated import roles, universal
from data.tasks.probes import targets
from data.tasks.probes.targets import Probe, Sentence, Target

_PARSE = 5  # column of the parse bits
_BITS = re.compile(r'\(([^()*\s]+)|(\*)|(\))')
_FUNCTION = re.compile(r'[-=|]')


def _words(lines: Sequence[roles.Line]) -> tuple[str, ...]:
  return tuple(fields[roles.EWT.word] for _, fields in lines)


def _place(file: epath.Path, lines: Sequence[roles.Line]) -> str:
  return f'{file}, line {lines[0][0]:,}'


def _pos_rows(file: epath.Path, split: str) -> targets.Found:
  """Yields sentences with the part of speech of each word."""
  del split
  for lines, _ in roles.sentences(file, roles.EWT):
    found = [
      Target(((i, i + 1),), (fields[roles.EWT.part_of_speech],))
      for i, (_, fields) in enumerate(lines)
    ]
    yield _place(file, lines), Sentence(_words(lines), tuple(found))


def _constituent_rows(file: epath.Path, split: str) -> targets.Found:
  """Yields sentences with the nodes of their trees, outer ones first."""
  del split
  for lines, _ in roles.sentences(file, roles.EWT):
    found = _constituents(file, lines)
    yield _place(file, lines), Sentence(_words(lines), tuple(found))


def _constituents(
  file: epath.Path, lines: Sequence[roles.Line]
) -> list[Target]:
  """Returns a target for each node above the parts of speech."""
  opened: list[tuple[str, int, int]] = []  # label, first word, order
  found: list[tuple[int, Target]] = []
  count = 0
  for place, (number, fields) in enumerate(lines):
    bits = fields[_PARSE]
    where = f'{file}, line {number:,}: found the parse bit {bits!r}'
    if _BITS.sub('', bits) or bits.count('*') != 1:
      raise ValueError(
        f'{where}, expected brackets round one *, as in (NP* or *))'
      )
    for label, _, closed in _BITS.findall(bits):
      if label:
        opened.append((label, place, count))
        count += 1
      elif closed:
        if not opened:
          raise ValueError(f'{where}, expected no ) without its (')
        name, first, order = opened.pop()
        target = Target(((first, place + 1),), (without_function(name),))
        found.append((order, target))
  if opened:
    raise ValueError(
      f'{where} at the end of the sentence, expected the end of'
      f' {opened[-1][0]}, a )'
    )
  return [target for _, target in sorted(found, key=lambda item: item[0])]


def without_function(label: str) -> str:
  """Returns a node's label without function tags and numbers: NP of NP-SBJ=2.

  A label that begins with a mark, such as -LRB-, stays.
  """
  return label[0] + _FUNCTION.split(label[1:])[0] if label[0] != '-' else label


def _role_rows(file: epath.Path, split: str) -> targets.Found:
  """Yields sentences with (predicate, argument) of all their predicates.

  Sentences without a predicate are left out, and so are the predicates without
  a word of the role V.
  """
  by_sentence = itertools.groupby(
    roles.rows(file, split, columns=roles.EWT),
    key=lambda row: row[1].sentence,
  )
  for _, group in by_sentence:
    propositions = list(group)
    where, first = propositions[0]
    found = []
    for _, example in propositions:
      spans = targets.spans_of_tags(example.tags or ())
      predicates = [span for role, span in spans if role == 'V']
      found += [
        Target((predicate, span), (role,))
        for predicate in predicates[-1:]
        for role, span in spans
        if role != 'V'
      ]
    yield where, Sentence(first.words, tuple(found))


def _dependency_rows(file: epath.Path, split: str) -> targets.Found:
  """Yields sentences with (word, head) of each word; a root is its own head."""
  del split
  for kept in universal.sentences(file):
    found = []
    for place, (where, fields) in enumerate(kept):
      head = fields[6]
      if not (head.isdecimal() and int(head) <= len(kept)):
        raise ValueError(
          f'{where}: found the head {head}, expected one from 0 to {len(kept)}'
        )
      other = int(head) - 1 if int(head) else place
      spans = (place, place + 1), (other, other + 1)
      found.append(Target(spans, (fields[7],)))
    words = tuple(fields[1] for _, fields in kept)
    yield kept[0][0], Sentence(words, tuple(found))


def _is_plain_role(label: str) -> bool:
  """Returns whether a role refers to no other, and goes on with none."""
  return not label.startswith(('R-', 'C-'))


_EWT = dict(
  files=roles.SRL_EWT.files,
  folders=roles.SRL_EWT.folders,
  corpus='ewt',
  url=roles.SRL_EWT.url,
)
PROBES = (
  Probe(
    name='pos',
    title='Part of speech',
    num_spans=1,
    rows=_pos_rows,
    has_control=True,
    **_EWT,
  ),
  Probe(
    name='constituents',
    title='Constituents',
    num_spans=1,
    rows=_constituent_rows,
    **_EWT,
  ),
  Probe(
    name='dependencies',
    title='Dependencies',
    num_spans=2,
    rows=_dependency_rows,
    files=universal.UD_POS.files,
    folders=universal.UD_POS.folders,
    corpus='ewt',
    url=universal.UD_POS.url,
  ),
  Probe(
    name='srl',
    title='Semantic roles',
    num_spans=2,
    rows=_role_rows,
    is_whole=False,
    is_scored=_is_plain_role,
    **_EWT,
  ),
)
