"""Tagged sentences in columns: CoNLL-2003, PAN-X and similar files."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath

from data.tasks import examples, files
from data.vocabulary import tag_schemes

_DOCUMENT = '-DOCSTART-'


def rows(
  file: epath.Path,
  split: str,
  *,
  width: int = 0,
  separator: str | None = '\t',
  prefix: str = '',
  convert: Callable[[Sequence[str]], tuple[str, ...]] = tag_schemes.to_iob2,
) -> examples.Found:
  """Yields (place, example) of a file with a word a line and no titles.

  The word is the first column and its tag the last; a single column has no
  tags. `convert` turns the tags of a sentence into IOB2. A line of nothing but
  white space ends a sentence, a line of -DOCSTART- a document; white space at
  the end of a line means nothing. All lines have `width` columns, 0: as many as
  the first; `separator` None is any white space; `prefix` is removed from words
  that have it.
  """
  sentence: list[list[str]] = []
  first = 0  # line of the sentence
  number = 0
  document = 0
  labelled = examples.needs_labels(split)
  for line, text in itertools.chain(files.read_lines(file), [(0, '')]):
    text = text.rstrip(' \t')
    fields = text.split(separator) if text else []
    if fields and fields[0] != _DOCUMENT:
      width = width or max(len(fields), 2 if labelled else 1)
      if len(fields) != width and (labelled or len(fields) != 1):
        raise ValueError(
          f'{file}, line {line:,}: found {len(fields)} columns, expected '
          f'{width}, the word first and its tag last, an empty line between '
          f'sentences: {text[:80]!r}'
        )
      if sentence and len(fields) != len(sentence[0]):
        raise ValueError(
          f'{file}, line {line:,}: found {len(fields)} columns, expected '
          f'{len(sentence[0])} as in the line before: {text[:80]!r}'
        )
      first = first if sentence else line
      fields[0] = fields[0].removeprefix(prefix)
      sentence.append(fields)
      continue
    if sentence:
      yield (
        f'{file}, line {first:,}',
        _example(number, document, sentence, convert),
      )
      number += 1
      sentence = []
    if fields:
      document += 1


def _example(
  number: int,
  document: int,
  sentence: Sequence[Sequence[str]],
  convert: Callable[[Sequence[str]], tuple[str, ...]],
) -> examples.TaggedExample:
  tags = None
  if len(sentence[0]) > 1:
    tags = convert([fields[-1] for fields in sentence])
  others = [tuple(fields[1:-1]) for fields in sentence]
  return examples.TaggedExample(
    id=str(number),
    words=tuple(fields[0] for fields in sentence),
    tags=tags,
    document=document,
    columns=tuple(others) if any(others) else (),
  )


ENTITY_METRICS = ('f1', 'precision', 'recall')
# In TFDS's order, which is Hugging Face's as well.
_CONLL_TAGS = tag_schemes.iob2_labels(('PER', 'ORG', 'LOC', 'MISC'))
_PANX_TAGS = tag_schemes.iob2_labels(('PER', 'ORG', 'LOC'))


def _record(
  record: Mapping[str, Any],
  split: str,
  number: int,
  *,
  tags: str,
  labels: Sequence[str],
) -> examples.TaggedExample:
  """Returns the example of a TFDS record, which names no document."""
  del split
  return examples.TaggedExample(
    id=str(number),
    words=tuple(record['tokens']),
    tags=tag_schemes.to_iob2([labels[tag] for tag in record[tags]]),
    document=number,
  )


_CONLL_FOLDERS = ('conll2003', 'CoNLL-2003', 'conll03')
# Other languages -> (year, stem of the files, sentences of dev and test).
_CONLL_OTHERS = {
  'de': (2003, 'deu', (2867, 3005)),
  'es': (2002, 'esp', (1915, 1517)),
  'nl': (2002, 'ned', (2895, 5195)),
}


def _conll(language: str) -> examples.Task:
  """Returns dev and test of another language of CoNLL-2002 and CoNLL-2003.

  Their columns are more or fewer than the English ones.
  """
  year, stem, sizes = _CONLL_OTHERS[language]
  return examples.Task(
    rows=functools.partial(rows, separator=None),
    name=f'conll{year}_{language}',
    title=f'CoNLL-{year}, {language}',
    kind='tagging',
    files={'dev': (f'{stem}.testa',), 'test': (f'{stem}.testb',)},
    folders=('conll2002', 'CoNLL-2002', 'conll02', *_CONLL_FOLDERS),
    labels=_CONLL_TAGS,
    metrics=ENTITY_METRICS,
    submission='conll',
    sizes=dict(zip(('dev', 'test'), sizes, strict=True)),
    url=f'https://www.clips.uantwerpen.be/conll{year}/ner',
  )


_RECIPE = {'bert': {'optim.learning_rate': 5e-5, 'train.global_batch': 16}}
CONLL2003 = examples.Task(
  rows=functools.partial(rows, width=4, separator=None),
  name='conll2003',
  title='CoNLL-2003',
  kind='tagging',
  files={
    'train': ('eng.train', 'train.txt'),
    'dev': ('eng.testa', 'valid.txt'),
    'test': ('eng.testb', 'test.txt'),
  },
  folders=_CONLL_FOLDERS,
  labels=_CONLL_TAGS,
  metrics=ENTITY_METRICS,
  submission='conll',
  sizes={'train': 14041, 'dev': 3250, 'test': 3453},
  tfds=examples.Tfds(
    'conll2003',
    functools.partial(_record, tags='ner', labels=_CONLL_TAGS),
    {'train': 'train', 'dev': 'dev', 'test': 'test'},
  ),
  url='https://www.clips.uantwerpen.be/conll2003/ner',
  recipe=_RECIPE,
  language='en',
  languages={language: _conll(language) for language in _CONLL_OTHERS},
)


# Of XTREME (Hu et al. 2020, table 6).
_PANX_LANGUAGES = (
  'af',
  'ar',
  'bg',
  'bn',
  'de',
  'el',
  'en',
  'es',
  'et',
  'eu',
  'fa',
  'fi',
  'fr',
  'he',
  'hi',
  'hu',
  'id',
  'it',
  'ja',
  'jv',
  'ka',
  'kk',
  'ko',
  'ml',
  'mr',
  'ms',
  'my',
  'nl',
  'pt',
  'ru',
  'sw',
  'ta',
  'te',
  'th',
  'tl',
  'tr',
  'ur',
  'vi',
  'yo',
  'zh',
)


def _panx(language: str) -> examples.Task:
  return examples.Task(
    rows=functools.partial(rows, width=2, prefix=f'{language}:'),
    name=f'panx_{language}',
    title=f'PAN-X, {language}',
    kind='tagging',
    files={
      split: (f'{split}-{language}.tsv', f'{language}/{split}')
      for split in ('train', 'dev', 'test')
    },
    folders=('panx', 'PAN-X', 'wikiann', 'panx_more'),
    labels=_PANX_TAGS,
    metrics=ENTITY_METRICS,
    submission='conll',
    tfds=examples.Tfds(
      f'wikiann/{language}',
      functools.partial(_record, tags='tags', labels=_PANX_TAGS),
      {'train': 'train', 'dev': 'validation', 'test': 'test'},
    ),
    url='https://github.com/afshinrahimi/mmner',
  )


def _panx_source(language: str, title: str) -> examples.Task:
  """Returns PAN-X in a language to train on; the others are scored."""
  return dataclasses.replace(
    _panx(language),
    title=title,
    sizes={'train': 20000, 'dev': 10000, 'test': 10000},
    recipe=_RECIPE,
    language=language,
    languages={
      other: _panx(other) for other in _PANX_LANGUAGES if other != language
    },
  )


TASKS = (
  CONLL2003,
  _panx_source('en', 'PAN-X English'),
  _panx_source('zh', 'PAN-X Chinese'),
)
