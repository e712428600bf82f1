"""Inference between two sentences beyond GLUE: SNLI, SciTail and XNLI."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from data.tasks import checks, examples, files, glue
from data.text import text_files

_LABELS = ('contradiction', 'entailment', 'neutral')
# Conneau et al. 2018, English first.
LANGUAGES = tuple('en fr es de el bg ru tr ar vi th zh hi sw ur'.split())


def _snli_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TextExample]]:
  """SNLI: JSONL, or its table; pairs without a majority label are dropped."""
  if text_files.is_jsonl(file):
    found = _snli_records(file)
  else:
    found = glue.rows(
      file,
      split,
      label='gold_label',
      index=('pairID',),
      open_end=True,  # of the five annotators' labels only those that exist
    )
  return glue.with_majority(file, found)


def _snli_records(
  file: epath.Path,
) -> Iterator[tuple[str, examples.TextExample]]:
  fields = ('gold_label', 'sentence1', 'sentence2', 'pairID')
  for line, record in files.read_jsonl(file, fields):
    where = f'{file}, line {line:,}'
    label, first, second, key = (
      files.text_of(where, record, field) for field in fields
    )
    yield where, examples.TextExample(key, (first, second), label)


_SCITAIL_LABELS = {
  '0': 'neutral',
  '1': 'entails',
  'entailment': 'entails',  # of the release in SNLI's format
}


def _scitail_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TextExample]]:
  """SciTail: the release's two formats, or columns with titles."""
  if text_files.ending(file) in ('.txt', '.jsonl'):
    found = _scitail_records(file)
  elif 'hypothesis' in files.header_of(file):
    found = glue.rows(file, split, texts=('premise', 'hypothesis'))
  else:
    found = _scitail_table(file)
  for where, example in found:
    label = _SCITAIL_LABELS.get(example.label, example.label)
    yield where, examples.TextExample(example.id, example.texts, label)


def _scitail_records(
  file: epath.Path,
) -> Iterator[tuple[str, examples.TextExample]]:
  fields = ('sentence1', 'sentence2', 'gold_label')
  for number, (line, record) in enumerate(files.read_jsonl(file, fields)):
    where = f'{file}, line {line:,}'
    first, second, label = (
      files.text_of(where, record, field) for field in fields
    )
    yield where, examples.TextExample(str(number), (first, second), label)


def _scitail_table(
  file: epath.Path,
) -> Iterator[tuple[str, examples.TextExample]]:
  table = files.read_tsv(file, (0, 1, 2), width=3)
  for number, (line, (first, second, label)) in enumerate(table):
    yield (
      f'{file}, line {line:,}',
      examples.TextExample(str(number), (first, second), label),
    )


def _xnli_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TextExample]]:
  """XNLI: all languages of dev and test; training in one, or MNLI's."""
  titles = files.header_of(file)
  if 'language' in titles:
    yield from _xnli_table(file)
  elif 'hypo' in titles:  # machine translations of MultiNLI's training set
    language = file.name.removesuffix('.tsv').rpartition('.')[2]
    found = glue.rows(file, split, texts=('premise', 'hypo'))
    for where, example in found:
      label = example.label
      if label == 'contradictory':
        label = 'contradiction'
      yield (
        where,
        examples.TextExample(example.id, example.texts, label, language),
      )
  else:
    found = glue.rows(file, split, label='gold_label', open_end=True)
    for where, example in found:
      yield (
        where,
        examples.TextExample(example.id, example.texts, example.label, 'en'),
      )


def _xnli_table(
  file: epath.Path,
) -> Iterator[tuple[str, examples.TextExample]]:
  columns = ('language', 'pairID', 'sentence1', 'sentence2', 'gold_label')
  for line, fields in files.read_tsv(file, columns):
    language, pair, first, second, label = fields
    yield (
      f'{file}, line {line:,}',
      examples.TextExample(
        f'{language}-{pair}', (first, second), label, language
      ),
    )


def _xnli_record(
  record: Mapping[str, Any], split: str, number: int
) -> list[examples.TextExample]:
  """Returns the pair of a TFDS record in every language; MNLI's in training."""
  if split == 'train':
    example = glue.MNLI.from_tfds(record, split, number)
    return [
      examples.TextExample(example.id, example.texts, example.label, 'en')
    ]
  hypotheses = dict(
    zip(
      record['hypothesis']['language'],
      record['hypothesis']['translation'],
      strict=True,
    )
  )
  return [
    examples.TextExample(
      f'{language}-{number}',
      (record['premise'][language], hypotheses[language]),
      glue.TFDS_NLI[record['label']],
      language,
    )
    for language in LANGUAGES
  ]


def _snli_record(
  record: Mapping[str, Any], split: str, number: int
) -> list[examples.TextExample]:
  """Returns the example of a TFDS record, none without a majority label."""
  example = glue.text_record(
    record,
    split,
    number,
    texts=('premise', 'hypothesis'),
    labels=glue.TFDS_NLI,
  )
  return [] if example.label is None else [example]


def _scitail_names(split: str) -> tuple[str, ...]:
  return (
    f'scitail_1.0_{split}.tsv',
    f'tsv_format/scitail_1.0_{split}.tsv',
    f'{split}.tsv',
    f'scitail_1.0_{split}.txt',
    f'snli_format/scitail_1.0_{split}.txt',
  )


SNLI = checks.declare(
  _snli_rows,
  name='snli',
  title='SNLI',
  kind='classification',
  # Some hypotheses are empty in the release.
  allow_empty=True,
  files={
    split: (f'snli_1.0_{split}.jsonl', f'snli_1.0_{split}.txt', f'{split}.tsv')
    for split in ('train', 'dev', 'test')
  },
  folders=('SNLI', 'snli', 'snli_1.0'),
  labels=_LABELS,
  num_texts=2,
  sizes={'train': 549367, 'dev': 9842, 'test': 9824},
  tfds='snli',
  from_tfds=_snli_record,
  tfds_splits={'train': 'train', 'dev': 'validation', 'test': 'test'},
  url='https://nlp.stanford.edu/projects/snli',
)
SCITAIL = checks.declare(
  _scitail_rows,
  name='scitail',
  title='SciTail',
  kind='classification',
  files={split: _scitail_names(split) for split in ('train', 'dev', 'test')},
  folders=('scitail', 'SciTail', 'SciTailV1.1'),
  labels=('entails', 'neutral'),
  num_texts=2,
  sizes={'train': 23596, 'dev': 1304, 'test': 2126},
  tfds='sci_tail',
  from_tfds=functools.partial(
    glue.text_record,
    texts=('premise', 'hypothesis'),
    labels=('entails', 'neutral'),
  ),
  tfds_splits={'train': 'train', 'dev': 'validation', 'test': 'test'},
  url='https://allenai.org/data/scitail',
)
XNLI = checks.declare(
  _xnli_rows,
  name='xnli',
  title='XNLI',
  kind='classification',
  allow_empty=True,  # as MNLI
  files={
    'train': tuple(
      f'{folder}{name}'
      for name in (
        *(f'multinli.train.{language}.tsv' for language in LANGUAGES[:1]),
        'MNLI/train.tsv',
        'train.tsv',
        *(f'multinli.train.{language}.tsv' for language in LANGUAGES[1:]),
      )
      for folder in ('', 'multinli/', '../', '../XNLI-MT-1.0/multinli/')
    ),
    'dev': ('xnli.dev.tsv',),
    'test': ('xnli.test.tsv',),
  },
  folders=('XNLI', 'xnli', 'XNLI-1.0'),
  labels=_LABELS,
  num_texts=2,
  sizes={'train': 392702, 'dev': 37350, 'test': 75150},
  tfds='xnli',
  from_tfds=_xnli_record,
  tfds_splits={'train': 'glue/mnli:train', 'dev': 'validation', 'test': 'test'},
  url='https://github.com/facebookresearch/XNLI',
)

TASKS = (SNLI, SCITAIL, XNLI)
