"""Semantic roles (PropBank): the English Web Treebank, CoNLL-2012, CoNLL-2005.

All files have a word a line, an empty line between sentences, a column that
marks the predicates, and behind it a column of roles for each predicate, in the
order of the predicates: `(ARG0*` opens an argument, `*)` closes it, `*` lies
inside or outside. The marked word is the predicate of an example, also where
the role V begins before it: `flopped` of `flip-flopped`, with the V at `flip`,
and 12 others of the English Web Treebank's 50,178 propositions.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from data.tasks import examples, files, own
from data.text import text_files
from data.vocabulary import tag_schemes

# All that occur in one of the three splits.
_EWT_ROLES = """
V ARG0 ARG1 ARG1-DSP ARG2 ARG3 ARG4 ARG5 ARGA
ARGM-ADJ ARGM-ADV ARGM-CAU ARGM-COM ARGM-CXN ARGM-DIR ARGM-DIS ARGM-EXT ARGM-GOL
ARGM-LOC ARGM-LVB ARGM-MNR ARGM-MOD ARGM-NEG ARGM-PRD ARGM-PRP ARGM-PRR ARGM-REC
ARGM-TMP
C-V C-ARG0 C-ARG1 C-ARG1-DSP C-ARG2 C-ARG3 C-ARG4
C-ARGM-ADV C-ARGM-COM C-ARGM-CXN C-ARGM-DIR C-ARGM-EXT C-ARGM-GOL C-ARGM-LOC
C-ARGM-MNR C-ARGM-PRP C-ARGM-PRR C-ARGM-TMP
R-ARG0 R-ARG1 R-ARG2 R-ARG3 R-ARG4
R-ARGM-ADJ R-ARGM-ADV R-ARGM-CAU R-ARGM-COM R-ARGM-DIR R-ARGM-GOL R-ARGM-LOC
R-ARGM-MNR R-ARGM-TMP
"""
# As programs for the set list them; the set is licensed.
_CONLL2012_ROLES = """
V ARG0 ARG1 ARG2 ARG3 ARG4 ARG5 ARGA
ARGM-ADJ ARGM-ADV ARGM-CAU ARGM-COM ARGM-DIR ARGM-DIS ARGM-DSP ARGM-EXT ARGM-GOL
ARGM-LOC ARGM-LVB ARGM-MNR ARGM-MOD ARGM-NEG ARGM-PNC ARGM-PRD ARGM-PRP ARGM-PRR
ARGM-PRX ARGM-REC ARGM-TMP
C-ARG0 C-ARG1 C-ARG2 C-ARG3 C-ARG4
C-ARGM-ADJ C-ARGM-ADV C-ARGM-CAU C-ARGM-COM C-ARGM-DIR C-ARGM-DIS C-ARGM-DSP
C-ARGM-EXT C-ARGM-LOC C-ARGM-MNR C-ARGM-MOD C-ARGM-NEG C-ARGM-PRP C-ARGM-TMP
R-ARG0 R-ARG1 R-ARG2 R-ARG3 R-ARG4 R-ARG5
R-ARGM-ADV R-ARGM-CAU R-ARGM-COM R-ARGM-DIR R-ARGM-EXT R-ARGM-GOL R-ARGM-LOC
R-ARGM-MNR R-ARGM-MOD R-ARGM-PNC R-ARGM-PRD R-ARGM-PRP R-ARGM-TMP
"""
_CONLL2005_ROLES = """
V A0 A1 A2 A3 A4 A5 AA
AM AM-ADV AM-CAU AM-DIR AM-DIS AM-EXT AM-LOC AM-MNR AM-MOD AM-NEG AM-PNC AM-PRD
AM-REC AM-TM AM-TMP
C-V C-A0 C-A1 C-A2 C-A3 C-A4 C-A5
C-AM-ADV C-AM-CAU C-AM-DIR C-AM-DIS C-AM-EXT C-AM-LOC C-AM-MNR C-AM-NEG C-AM-PNC
C-AM-TMP
R-A0 R-A1 R-A2 R-A3 R-A4 R-AA
R-AM-ADV R-AM-CAU R-AM-DIR R-AM-EXT R-AM-LOC R-AM-MNR R-AM-PNC R-AM-TMP
"""
_BRACKETS = re.compile(r'(?:\(([^()*]+))?\*(\))?')
METRICS = ('f1', 'precision', 'recall', 'perfect')


class Columns(NamedTuple):
  """The columns of a format, numbered from 0.

  Attributes:
    word: of the words.
    fixed: how many columns stand before the roles.
    mark: of the predicates' marks; other words have `-`.
    lemma: of the predicates' lemmas.
    behind: how many columns stand behind the roles.
    sense: the mark is a roleset (come.03), 'whole'; its number (03), 'number';
      or neither, ''.
    part_of_speech: groups the predicates in verbs and others; None: no groups.
    separator: between columns; None is white space.
  """

  word: int
  fixed: int
  mark: int
  lemma: int
  behind: int = 0
  sense: str = ''
  part_of_speech: int | None = None
  separator: str | None = None


EWT = Columns(3, 8, 7, 6, sense='whole', part_of_speech=4, separator='\t')
# The last column has the coreference.
CONLL2012 = Columns(3, 11, 7, 6, behind=1, sense='number')


def conll2005(fields: Sequence[str]) -> Columns:
  """Returns the columns of a file of CoNLL-2005 from the fields of a line.

  The word is the first column. The set's parts can be joined in several ways:
  the lemma of a predicate, or `-`, is the last column that has no `*`.
  """
  plain = [i for i, field in enumerate(fields) if '*' not in field]
  lemma = plain[-1] if plain else 0
  return Columns(0, lemma + 1, lemma, lemma)


def any_columns(fields: Sequence[str]) -> Columns:
  """Returns the columns of one of the three formats from a line's fields."""
  if len(fields) >= EWT.fixed and all(map(str.isdecimal, fields[1:3])):
    # The coreference at the end of CoNLL-2012's lines has no `*`.
    has_end = len(fields) > CONLL2012.fixed and '*' not in fields[-1]
    return CONLL2012 if has_end else EWT
  return conll2005(fields)


# The number of a line, and its fields.
Line = tuple[int, list[str]]
# Columns, or how they are told from the fields of a file's first line.
Chosen = Columns | Callable[[Sequence[str]], Columns]


def rows(file: epath.Path, split: str, *, columns: Chosen) -> examples.Found:
  """Yields (place, example) of each predicate of a file.

  Of a folder all files are read whose names hold `gold_conll`. A split that
  need not have labels may lack the columns of roles. Raises ValueError, with
  file and line, at a wrong number of columns, at brackets that do not match,
  and at roles of a predicate that overlap.
  """
  held: list[tuple[str, examples.RoleExample]] = []
  skipped: list[int] = []
  number = 0
  for path in _files(file):
    for lines, chosen in sentences(path, columns):
      found = list(_examples(path, split, number, lines, chosen))
      number += 1
      if not found:
        skipped.append(len(lines))
        continue
      yield from held
      held, before = found, (tuple(skipped), ())
      held[0] = (held[0][0], dataclasses.replace(held[0][1], skipped=before))
      skipped = []
  if held:
    where, last = held.pop()
    ends = last.skipped[0], tuple(skipped)
    held.append((where, dataclasses.replace(last, skipped=ends)))
  yield from held


def _files(file: epath.Path) -> list[epath.Path]:
  if not file.is_dir():
    return [file]
  found = [x for x in text_files.find(str(file))[0] if 'gold_conll' in x.name]
  if not found:
    raise ValueError(
      f'{file}: found no file of roles, expected names with gold_conll. '
      f'{files.contents(file)}'
    )
  return found


def sentences(
  file: epath.Path, columns: Chosen
) -> Iterator[tuple[list[Line], Columns]]:
  """Yields the lines of each sentence, all of as many fields.

  Raises ValueError at a line of another number of fields, or of too few.
  """
  sentence: list[Line] = []
  chosen = columns if isinstance(columns, Columns) else None
  for number, text in itertools.chain(files.read_lines(file), [(0, '')]):
    # In CoNLL-2005, where the word is first, # is a word.
    if text.startswith('#') and (chosen is None or chosen.word):
      continue
    if text.strip():
      if chosen is None:
        separator = '\t' if '\t' in text else None
        chosen = columns(text.split(separator))._replace(separator=separator)
      fields = text.split(chosen.separator)
      least = chosen.fixed + chosen.behind
      width = len(sentence[0][1]) if sentence else max(least, len(fields))
      if len(fields) != width:
        expected = f'{width} as in the line before' if sentence else f'{least}'
        raise ValueError(
          f'{file}, line {number:,}: found {len(fields)} columns, expected '
          f'{expected}{"" if sentence else " or more"}, and an empty line '
          f'between sentences: {text[:80]!r}'
        )
      sentence.append((number, fields))
    elif sentence:
      yield sentence, chosen
      sentence = []


def _examples(
  file: epath.Path,
  split: str,
  number: int,
  lines: Sequence[Line],
  columns: Columns,
) -> examples.Found:
  """Yields the predicates of a sentence, each after its word's place."""
  words = tuple(fields[columns.word] for _, fields in lines)
  marked = [i for i, (_, x) in enumerate(lines) if x[columns.mark] != '-']
  count = len(lines[0][1]) - columns.fixed - columns.behind
  if count != len(marked) and (count or examples.needs_labels(split)):
    raise ValueError(
      f'{file}, line {lines[0][0]:,}: found {count} columns of roles in the '
      f'sentence, expected one for each of its {len(marked)} predicates: '
      f'{", ".join(words[i] for i in marked[:10]) or "none"}'
    )
  for order, predicate in enumerate(marked):
    line, fields = lines[predicate]
    lemma, sense = fields[columns.lemma], fields[columns.mark]
    rolesets = {'whole': sense, 'number': f'{lemma}.{sense}', '': ''}
    group = ''
    if columns.part_of_speech is not None:
      is_verb = fields[columns.part_of_speech].startswith('VB')
      group = 'verb' if is_verb else 'other'
    tags = None
    if count:
      place = columns.fixed + order
      tags = _tags(file, [(line, fields[place]) for line, fields in lines])
    yield (
      f'{file}, line {line:,}',
      examples.RoleExample(
        id=f'{number}-{predicate}',
        words=words,
        tags=tags,
        predicate=predicate,
        roleset=rolesets[columns.sense],
        lemma=lemma,
        sentence=number,
        group=group,
      ),
    )


def _tags(
  file: epath.Path, column: Sequence[tuple[int, str]]
) -> tuple[str, ...]:
  """Returns the tags of a column of brackets, (number of the line, field)."""
  tags = []
  role = ''  # of the open bracket
  for line, field in column:
    where = f'{file}, line {line:,}: found {field!r}'
    match = _BRACKETS.fullmatch(field)
    if not match:
      raise ValueError(
        f'{where}, expected a role as (ROLE*, *, *) or (ROLE*), and one role at'
        ' a word: the roles of a predicate do not overlap'
      )
    opened, closed = match.groups()
    if opened and role:
      raise ValueError(
        f'{where} inside of {role}, expected the end of {role} before: the '
        'roles of a predicate do not overlap'
      )
    if closed and not (opened or role):
      raise ValueError(f'{where} outside of a role, expected (ROLE* before it')
    role = opened or role
    tags.append(f'{"B" if opened else "I"}-{role}' if role else 'O')
    if closed:
      role = ''
  if role:
    raise ValueError(
      f'{where} at the end of the sentence, expected the end of {role}, *)'
    )
  return tuple(tags)


def _task(
  name: str,
  title: str,
  roles: str,
  columns: Chosen,
  *,
  names: Mapping[str, tuple[str, ...]],
  folders: tuple[str, ...],
  sizes: Mapping[str, int],
  url: str,
) -> examples.Task:
  return examples.Task(
    rows=functools.partial(rows, columns=columns),
    name=name,
    title=title,
    kind='roles',
    files=names,
    folders=folders,
    labels=tag_schemes.iob2_labels(roles.split()),
    metrics=METRICS,
    submission='props',
    sizes=sizes,
    url=url,
    # Rows of Shi and Lin 2019, paths of He et al. 2017.
    recipe={
      'bert': {
        'optim.learning_rate': 5e-5,
        'task.max_length': 256,
        'task.crf': 'viterbi',
      }
    },
  )


def _packed(*names: str) -> tuple[str, ...]:
  """Returns the names of files, each also packed."""
  return tuple(f'{name}{end}' for name in names for end in ('', '.gz'))


SRL_EWT = _task(
  'srl_ewt',
  'semantic roles of the English Web Treebank',
  _EWT_ROLES,
  EWT,
  names={
    split: (f'ewt_srl_{split}.gold_conll',)
    for split in ('train', 'dev', 'test')
  },
  folders=('ewt_propbank', 'srl_ewt'),
  sizes={'train': 40423, 'dev': 4960, 'test': 4795},
  url='https://github.com/propbank/propbank-release',
)
TASKS = (
  SRL_EWT,
  _task(
    'srl',
    'semantic roles of CoNLL-2012 (OntoNotes)',
    _CONLL2012_ROLES,
    CONLL2012,
    names={
      split: (
        *_packed(f'{split}.conll', f'{split}.english.v4_gold_conll'),
        f'{split}.gold_conll',
        *(f'{root}data/{folder}/data/english' for root in ('', 'v4/')),
        f'data/{folder}',
        folder,
      )
      for split, folder in (
        ('train', 'train'),
        ('dev', 'development'),
        ('test', 'test'),
      )
    },
    folders=('conll2012', 'conll-2012', 'conll-formatted-ontonotes-5.0', 'srl'),
    sizes={},
    url='https://cemantix.org/data/ontonotes.html',
  ),
  _task(
    'srl_conll05',
    'semantic roles of CoNLL-2005',
    _CONLL2005_ROLES,
    conll2005,
    names={
      'train': _packed('train.conll', 'train-set'),
      'dev': _packed('dev.conll', 'devel', 'dev-set'),
      'test': _packed('test.conll', 'test.wsj', 'test-set'),
      'test_brown': _packed('brown.conll', 'test.brown'),
    },
    folders=('conll05', 'conll2005', 'conll05st-release', 'srl_conll05'),
    # Carreras and Marquez 2005, table 1, the propositions.
    sizes={'train': 90750, 'dev': 3248, 'test': 5267, 'test_brown': 804},
    url='https://www.cs.upc.edu/~srlconll',
  ),
)


def _declare(settings: own.Settings, found: own.Read) -> dict[str, Any]:
  labels = settings['labels']
  if not labels:
    types = {tag[2:] for _, e in found() for tag in e.tags if tag != 'O'}
    labels = tag_schemes.iob2_labels(sorted(types))
  return {
    'labels': labels,
    'label_hint': ' (own.labels names other tags)',
    'metrics': METRICS,
    'submission': 'props',
  }


# How a user's own files of roles are read.
OWN = own.OwnForm(
  lambda file, split, text, label: rows(file, split, columns=any_columns),
  _declare,
  in_tables=False,
)
