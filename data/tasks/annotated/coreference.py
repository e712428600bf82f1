"""Coreference: CoNLL-2012's columns (OntoNotes), and OntoGUM's.

A cluster's number in brackets marks a mention: `(7` at its first word, `7)` at
its last, `(7)` at its only word, with or without | between several.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from data.tasks import examples, files, own
from data.tasks.examples import Mention
from data.text import text_files

METRICS = (
  'average_f1',
  *(
    f'{name}_{part}'
    for part in ('f1', 'precision', 'recall')
    for name in ('muc', 'b3', 'ceafe')
  ),
)
# Broadcast conversations and news, magazines, newswire, pivot text (the Bible),
# telephone, web; in the order of e2e-coref, coref_model.py.
_ONTONOTES_GENRES = ('bc', 'bn', 'mz', 'nw', 'pt', 'tc', 'wb')
# Of train, dev and test; test2 is of other genres.
_GUM_GENRES = [
  'academic',
  'bio',
  'conversation',
  'court',
  'essay',
  'fiction',
  'interview',
  'letter',
  'news',
  'podcast',
  'speech',
  'textbook',
  'vlog',
  'voyage',
  'whow',
]
_BRACKETS = re.compile(r'\(([^()|]+)(\)?)|([^()|]+)\)')
_CONLL_BEGIN = re.compile(
  r'#\s*begin document \((?P<name>.*)\);?(?: part (?P<part>\d+))?\s*'
)
_CONLL_END = re.compile(r'#\s*end document')
_GUM_BEGIN = re.compile(r'# newdoc id = (?P<name>\S+)')
# Of the files of a folder; the first that one has.
_ENDINGS = ('gold_conll', '_conll', '.conll')
_SPEAKER, _WIDTH = 9, 12  # columns of CoNLL-2012 without a predicate
_CONLL_COLUMNS = (
  'document, part, number, word, POS, parse, lemma, frame, sense, speaker, '
  'entities, one for each predicate, coreference'
)
GUM_COLUMNS = (
  'number',
  'form',
  'lemma',
  'UPOS',
  'XPOS',
  'head',
  'relation',
  'entities',
  'coreference',
)
# Brackets that do not balance in the release of OntoGUM.
_UNBALANCED = ('GENTLE_poetry_road',)

# Begin of the document, and its lines with their numbers.
_Document = tuple[int, re.Match[str], list[tuple[int, str]]]


class UnbalancedError(ValueError):
  """A bracket that closes nothing, or stays open in its sentence."""


class OpenBrackets:
  """The brackets of a sentence that wait for their ends, by name."""

  def __init__(self) -> None:
    self._begun: dict[str, list[tuple[str, Any]]] = {}

  def begin(self, where: str, name: str, content: Any) -> None:
    """Opens a bracket."""
    self._begun.setdefault(name, []).append((where, content))

  def end(self, where: str, name: str) -> Any:
    """Closes the bracket that began last; returns its content."""
    if not self._begun.get(name):
      raise UnbalancedError(
        f'{where}: found {name}) without ({name} before it in its sentence'
      )
    _, content = self._begun[name].pop()
    return content

  def end_sentence(self) -> None:
    """Raises UnbalancedError if a bracket is still open."""
    for name, begun in self._begun.items():
      for where, _ in begun:
        raise UnbalancedError(
          f'{where}: found ({name} without {name}) after it in its sentence'
        )


class Brackets:
  """The clusters of a document, from its words' brackets in their order."""

  def __init__(self) -> None:
    self._open = OpenBrackets()
    # Cluster, in the order of the first brackets -> its mentions, each with its
    # place in the file.
    self.found: dict[str, dict[Mention, str]] = {}
    self.merged = 0

  def read(self, where: str, number: int, column: str) -> None:
    """Reads the column of the word of this number."""
    if _BRACKETS.sub('', column).strip('|'):
      raise ValueError(
        f'{where}: found the coreference {column!r}, expected brackets such as '
        '(12, 12) or (12), or that none is there'
      )
    for begun, only, ended in _BRACKETS.findall(column):
      of_cluster = self.found.setdefault(begun or ended, {})
      if begun:
        self._open.begin(where, begun, number)
      if only or ended:
        first = self._open.end(where, begun or ended)
        of_cluster[first, number] = where

  def end_sentence(self) -> None:
    """Raises UnbalancedError if a bracket is still open."""
    self._open.end_sentence()

  def clusters(self) -> list[dict[Mention, str]]:
    """Returns the clusters, each mention with its place in the file.

    Clusters that share a mention are one, as in e2e-coref's minimize.py;
    `merged` counts them.
    """
    clusters: list[dict[Mention, str]] = []
    for found in self.found.values():
      shared = [cluster for cluster in clusters if cluster.keys() & found]
      clusters = [cluster for cluster in clusters if cluster not in shared]
      clusters.append(functools.reduce(dict.__or__, shared, {}) | found)
      self.merged += len(shared)
    return clusters


def _documents(
  file: epath.Path,
  begin: re.Pattern[str],
  line_of_begin: str,
  end: re.Pattern[str] | None = None,
) -> Iterator[_Document]:
  """Yields the documents of a file; one without its `end` is refused.

  `line_of_begin` is a line that `begin` matches, for the message.
  """
  document = None
  for number, line in files.read_lines(file):
    begun = begin.match(line)
    if end and document and (begun or end.match(line)):
      if begun:
        break
      yield document
      document = None
    elif begun:
      if document:
        yield document
      document = number, begun, []
    elif document:
      document[-1].append((number, line))
    elif line.strip():
      raise ValueError(
        f'{file}, line {number:,}: found {line[:80]!r}, expected the first '
        f'line of a document: {line_of_begin}'
      )
  if document and end:
    raise ValueError(
      f'{file}, line {document[0]:,}: found no end of this document, expected '
      'the line #end document'
    )
  if document:
    yield document


class _Builder:
  """Gathers the sentences and brackets of a document."""

  def __init__(self) -> None:
    self.brackets = Brackets()
    self._sentences: list[list[str]] = [[]]
    self._speakers: list[list[str]] = [[]]
    self._count = 0

  def add(self, where: str, word: str, speaker: str, column: str) -> None:
    """Adds a word; the column is empty without brackets."""
    if column:
      self.brackets.read(where, self._count, column)
    self._sentences[-1].append(word)
    self._speakers[-1].append(speaker)
    self._count += 1

  def end_sentence(self) -> None:
    """Ends a sentence, if it has a word."""
    if self._sentences[-1]:
      self.brackets.end_sentence()
      self._sentences.append([])
      self._speakers.append([])

  def example(self, key: str, genre: str) -> examples.DocumentExample:
    """Returns the document, its clusters in the order of their mentions."""
    clusters = self.brackets.clusters()
    kept = [mentions for mentions in clusters if len(mentions) > 1]
    alone = [mentions for mentions in clusters if len(mentions) == 1]
    return examples.DocumentExample(
      key,
      tuple(map(tuple, self._sentences[:-1])),
      tuple(map(tuple, self._speakers[:-1])),
      genre,
      tuple(sorted(tuple(sorted(mentions)) for mentions in kept)),
      tuple(sorted(itertools.chain(*alone))),
    )


def conll_rows(file: epath.Path, split: str) -> examples.Found:
  """Yields the documents of a file, or folder, in CoNLL-2012's columns.

  Each part of a document is one of its own, `NAME; part 000`. A split for which
  labels are not needed has none if no word has a bracket. A folder is read with
  all folders inside it: files *gold_conll, if there is none *_conll, else
  *.conll; of English alone if it has several languages.
  """
  found = [
    example for path in _conll_files(file) for example in _conll_documents(path)
  ]
  labelled = examples.needs_labels(split) or any(
    e.clusters or e.singles for _, e in found
  )
  for where, example in found:
    if not labelled:
      example = dataclasses.replace(example, clusters=None)
    yield where, example


def _conll_files(file: epath.Path) -> list[epath.Path]:
  if not file.is_dir():
    return [file]
  inside, _, _ = text_files.find(str(file))
  for ending in _ENDINGS:
    found = [path for path in inside if path.name.endswith(ending)]
    english = [path for path in found if 'english' in path.parts]
    if found:
      return english or found
  raise ValueError(
    f'{file}: found no document, expected files of names that end in'
    f' {" or ".join(_ENDINGS)}: rename them, or join them into one file and'
    f' name that. {files.contents(file)}'
  )


def _conll_documents(file: epath.Path) -> examples.Found:
  merged = single = 0
  for begin, header, lines in _documents(
    file, _CONLL_BEGIN, '#begin document (NAME); part 000', _CONLL_END
  ):
    document = _Builder()
    for number, line in lines:
      where = f'{file}, line {number:,}'
      # Between tabs a column may be empty: the last one, without brackets.
      fields = line.split('\t') if '\t' in line else line.split()
      if not line.strip():
        document.end_sentence()
        continue
      fields = [field.strip() for field in fields]
      if len(fields) < _WIDTH:
        raise ValueError(
          f'{where}: found {len(fields)} columns, expected at least {_WIDTH}: '
          f'{_CONLL_COLUMNS}: {line[:80]!r}'
        )
      column = fields[-1].strip('-_')
      speaker = fields[_SPEAKER].removeprefix('-')
      # As e2e-coref and AllenNLP read OntoNotes' /. and /?
      word = fields[3][1:] if fields[3] in ('/.', '/?') else fields[3]
      document.add(where, word, speaker, column)
    document.end_sentence()
    name, part = header['name'], header['part']
    key = name if part is None else f'{name}; part {part}'
    example = document.example(key, name[:2])
    merged += document.brackets.merged
    single += len(example.singles)
    yield f'{file}, line {begin:,}', example
  _note(file, merged, single)


def _gum_rows(file: epath.Path, split: str) -> examples.Found:
  """Yields the documents of a split of OntoGUM."""
  del split
  merged = single = 0
  for begin, header, lines in _documents(
    file, _GUM_BEGIN, '# newdoc id = NAME'
  ):
    where, name = f'{file}, line {begin:,}', header['name']
    try:
      document, genre = _gum_document(file, lines)
    except UnbalancedError as error:
      if name not in _UNBALANCED:
        raise
      files.note(f'{error}; the document {name} is left out (1 in the release)')
      continue
    example = document.example(name, genre)
    merged += document.brackets.merged
    single += len(example.singles)
    yield where, example
  _note(file, merged, single)


def _gum_document(
  file: epath.Path, lines: Sequence[tuple[int, str]]
) -> tuple[_Builder, str]:
  """Returns a document of OntoGUM, and its genre."""
  document, genre, speaker = _Builder(), '', ''
  for number, line in lines:
    where = f'{file}, line {number:,}'
    if line.startswith('# '):
      name, _, value = line[2:].partition(' = ')
      genre = value if name == 'genre' else genre
      speaker = value if name == 'speaker' else speaker
      continue
    if not line:
      document.end_sentence()
      speaker = ''
      continue
    fields = files.split_columns(where, line, GUM_COLUMNS)
    document.add(where, fields[1], speaker, fields[-1].strip('_'))
  document.end_sentence()
  return document, genre


def _note(file: epath.Path, merged: int, single: int) -> None:
  if merged:
    files.note(
      f'{file}: {merged:,} clusters joined to others with the same mention'
    )
  if single:
    files.note(
      f'{file}: {single:,} mentions that are alone in their cluster left out;'
      ' only the scores with_singles count them'
    )


def genres_of(found: examples.Found) -> tuple[str, ...]:
  """Returns the genres of documents, sorted."""
  return tuple(sorted({example.genre for _, example in found}))


COREF = examples.Task(
  rows=conll_rows,
  name='coref',
  title='CoNLL-2012 coreference',
  kind='coreference',
  files={
    split: (
      f'{split}.english.v4_gold_conll',
      f'{split}.conll',
      f'v4/data/{name}',
      f'data/{name}',
      name,
    )
    for split, name in (
      ('train', 'train'),
      ('dev', 'development'),
      ('test', 'test'),
    )
  },
  folders=('conll-2012', 'conll2012', 'conll-formatted-ontonotes-5.0', 'coref'),
  labels=_ONTONOTES_GENRES,
  metrics=METRICS,
  submission='coref',
  sizes={'train': 2802, 'dev': 343, 'test': 348},
  url='https://conll.cemantix.org/2012/data.html',
)
COREF_GUM = examples.Task(
  rows=_gum_rows,
  name='coref_gum',
  title='OntoGUM coreference',
  kind='coreference',
  files={name: (f'{name}.tsv',) for name in ('train', 'dev', 'test', 'test2')},
  folders=('ontogum',),
  labels=tuple(_GUM_GENRES),
  metrics=METRICS,
  submission='coref',
  sizes={'train': 177, 'dev': 30, 'test': 30, 'test2': 25},  # see _UNBALANCED
  url='https://github.com/amir-zeldes/gum/tree/master/coref/ontogum',
)
TASKS = (COREF, COREF_GUM)


def _declare(settings: own.Settings, found: own.Read) -> dict[str, Any]:
  return {
    'labels': settings['labels'] or genres_of(found()),
    'metrics': METRICS,
    'submission': 'coref',
  }


# How a user's own files of documents are read.
OWN = own.OwnForm(
  lambda file, split, text, label: conll_rows(file, split),
  _declare,
  in_tables=False,
)
