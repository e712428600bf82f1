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
_ENTITIES = coreference.GUM_COLUMNS.index('entities')
SAME, OTHER = '1', '0'  # labels of pairs of mentions


def _entity_rows(file: epath.Path, split: str) -> targets.Found:
  """Yields sentences with the spans of their entities, in order."""
  del split
  for lines in files.read_sentences(file, coreference.GUM_COLUMNS):
    words = tuple(fields[1] for _, fields in lines)
    yield lines[0][0], Sentence(words, tuple(_entities(lines)))


def _entities(lines: Sequence[tuple[str, Sequence[str]]]) -> list[Target]:
  """Returns the entities of a sentence, (place, columns) a word."""
  opened = coreference.OpenBrackets()
  found = []
  for word, (where, fields) in enumerate(lines):
    column = fields[_ENTITIES].strip('_')
    if _BRACKETS.sub('', column):
      raise ValueError(
        f'{where}: found the entities {column!r}, expected brackets such as'
        ' (12-person, 12) or (12-person)'
      )
    for begun, kind, only, ended in _BRACKETS.findall(column):
      if begun:
        opened.begin(where, begun, (word, kind))
      if only or ended:
        first, kind = opened.end(where, begun or ended)
        found.append(Target(((first, word + 1),), (kind,)))
  opened.end_sentence()
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
