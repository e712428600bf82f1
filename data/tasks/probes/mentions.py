"""Probes of OntoGUM: types of entities, and coreference in a sentence."""

import itertools
import re
from collections.abc import Sequence

from etils import epath

from data.tasks import files
from data.tasks.annotated import coreference
from data.tasks.probes import targets
from data.tasks.probes.targets import Probe, Sentence, Span, Target

_BRACKETS = re.compile(r'\(([^()-]+)-([^()]+?)(\)|(?=\(|$))|([^()-]+)\)')
_WIDTH, _ENTITIES = 9, 7  # columns
SAME, OTHER = '1', '0'  # labels of pairs of mentions


def _entity_rows(file: epath.Path, split: str) -> targets.Found:
  """Yields sentences with the spans of their entities, in order."""
  del split
  lines: list[tuple[str, str, str]] = []
  for number, text in itertools.chain(files.read_lines(file), [(0, '')]):
    if text.startswith('#'):
      continue
    if text:
      fields = text.split('\t')
      where = f'{file}, line {number:,}'
      if len(fields) != _WIDTH:
        raise ValueError(
          f'{where}: found {len(fields)} columns, expected {_WIDTH} with tabs:'
          ' number, form, lemma, UPOS, XPOS, head, relation, entities,'
          f' coreference: {text[:80]!r}'
        )
      lines.append((where, fields[1], fields[_ENTITIES].strip('_')))
    elif lines:
      words = tuple(word for _, word, _ in lines)
      yield lines[0][0], Sentence(words, tuple(_entities(lines)))
      lines = []


def _entities(lines: Sequence[tuple[str, str, str]]) -> list[Target]:
  """Returns the entities of a sentence, (place, word, brackets) a word."""
  opened: list[tuple[str, str, int]] = []  # number, type, first word
  found = []
  for place, (where, _, column) in enumerate(lines):
    if _BRACKETS.sub('', column):
      raise ValueError(
        f'{where}: found the entities {column!r}, expected brackets such as'
        ' (12-person, 12) or (12-person)'
      )
    for number, kind, ends, closed in _BRACKETS.findall(column):
      if number and ends:
        found.append(Target(((place, place + 1),), (kind,)))
      elif number:
        opened.append((number, kind, place))
      else:
        # The one that began last, as brackets nest.
        match = [x for x in opened if x[0] == closed]
        if not match:
          raise ValueError(
            f'{where}: found {closed}) without ({closed}- before it in its'
            ' sentence'
          )
        opened.remove(match[-1])
        _, kind, first = match[-1]
        found.append(Target(((first, place + 1),), (kind,)))
  if opened:
    raise ValueError(
      f'{where}: found ({opened[-1][0]}- without {opened[-1][0]}) after it in'
      ' its sentence'
    )
  return sorted(found, key=lambda target: target.spans)


def _coreference_rows(file: epath.Path, split: str) -> targets.Found:
  """Yields sentences with all pairs of their mentions."""
  for where, document in coreference.COREF_GUM.rows(file, split):
    cluster_of = {
      mention: number
      for number, cluster in enumerate(document.clusters or ())
      for mention in cluster
    }
    begin = 0
    for words in document.sentences:
      end = begin + len(words)
      inside: list[tuple[Span, int]] = [
        ((first - begin, last + 1 - begin), number)
        for (first, last), number in sorted(cluster_of.items())
        if begin <= first < end
      ]
      found = [
        Target((one, two), (SAME if of_one == of_two else OTHER,))
        for (one, of_one), (two, of_two) in itertools.combinations(inside, 2)
      ]
      yield where, Sentence(words, tuple(found))
      begin = end


_GUM = dict(
  files={
    split: names
    for split, names in coreference.COREF_GUM.files.items()
    if split != 'test2'
  },
  folders=coreference.COREF_GUM.folders,
  corpus='ontogum',
  url=coreference.COREF_GUM.url,
)
PROBES = (
  Probe(
    name='entities', title='Entities', num_spans=1, rows=_entity_rows, **_GUM
  ),
  Probe(
    name='coref',
    title='Coreference',
    num_spans=2,
    rows=_coreference_rows,
    is_whole=False,
    is_scored=lambda label: label == SAME,
    **_GUM,
  ),
)
