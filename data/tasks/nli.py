"""Inference between two sentences beyond GLUE: SNLI, SciTail and XNLI."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from etils import epath

from data.tasks import examples, files, glue
from data.text import text_files

_LABELS = ('contradiction', 'entailment', 'neutral')
# Conneau et al. 2018, English first.
LANGUAGES = tuple('en fr es de el bg ru tr ar vi th zh hi sw ur'.split())


def _snli_rows(file: epath.Path, split: str) -> examples.Found:
  """Reads SNLI's JSONL or table, without pairs that lack a majority label."""
  if text_files.is_jsonl(file):
    texts = ('sentence1', 'sentence2')
    records = files.read_jsonl(file, (), ('gold_label', *texts, 'pairID'))
    found = glue.text_examples(records, texts, 'gold_label', ('pairID',))
  else:
    found = glue.rows(
      file,
      split,
      label='gold_label',
      index=('pairID',),
      open_end=True,  # rows have one to five annotators' labels
    )
  return glue.with_majority(file, found)


_SCITAIL_LABELS = {
  '0': 'neutral',
  '1': 'entails',
  'entailment': 'entails',  # of the release in SNLI's format
}


def _scitail_rows(file: epath.Path, split: str) -> examples.Found:
  """Reads SciTail: the release's two formats, or columns with titles."""

  def to_label(where: str, label: str) -> str:
    del where
    return _SCITAIL_LABELS.get(label, label)

  texts = ('premise', 'hypothesis')
  if text_files.ending(file) in ('.txt', '.jsonl'):
    texts = ('sentence1', 'sentence2')
    records = files.read_jsonl(file, (), (*texts, 'gold_label'))
    return glue.text_examples(records, texts, 'gold_label', to_label=to_label)
  if 'hypothesis' in files.header_of(file):
    return glue.rows(file, split, texts=texts, to_label=to_label)
  records = files.read_tsv(file, (), titles=(*texts, 'label'))
  return glue.text_examples(records, texts, 'label', to_label=to_label)


def _xnli_rows(file: epath.Path, split: str) -> examples.Found:
  """Reads XNLI: dev and test in all languages; training in one, or MNLI's."""
  titles = files.header_of(file)
  if 'language' in titles:
    return _xnli_table(file)
  if 'hypo' not in titles:
    return glue.rows(file, split, label='gold_label', group='en', open_end=True)
  # A machine translation of MultiNLI's training set.
  return glue.rows(
    file,
    split,
    texts=('premise', 'hypo'),
    to_label=lambda _, label: label.replace('contradictory', 'contradiction'),
    group=file.name.removesuffix('.tsv').rpartition('.')[2],
  )


def _xnli_table(file: epath.Path) -> examples.Found:
  columns = ('language', 'pairID', 'sentence1', 'sentence2', 'gold_label')
  for where, record in files.read_tsv(file, columns):
    language, pair, *texts, label = (record[name] for name in columns)
    key = f'{language}-{pair}'
    yield where, examples.TextExample(key, tuple(texts), label, language)


def _xnli_record(
  record: Mapping[str, Any], split: str, number: int
) -> list[examples.TextExample]:
  """Returns the pair of a TFDS record in every language; MNLI's in training."""
  if split == 'train':
    example = glue.MNLI.from_tfds(record, split, number)
    return [dataclasses.replace(example, group='en')]
  translations = record['hypothesis']
  hypotheses = dict(
    zip(translations['language'], translations['translation'], strict=True)
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
  example = glue.MNLI.from_tfds(record, split, number)
  return [] if example.label is None else [example]


def _scitail_names(split: str) -> tuple[str, ...]:
  return (
    f'scitail_1.0_{split}.tsv',
    f'tsv_format/scitail_1.0_{split}.tsv',
    f'{split}.tsv',
    f'scitail_1.0_{split}.txt',
    f'snli_format/scitail_1.0_{split}.txt',
  )


SNLI = examples.Task(
  rows=_snli_rows,
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
  tfds_splits=glue.TFDS_SPLITS,
  url='https://nlp.stanford.edu/projects/snli',
)
SCITAIL = examples.Task(
  rows=_scitail_rows,
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
  tfds_splits=glue.TFDS_SPLITS,
  url='https://allenai.org/data/scitail',
)
_XNLI_TRAIN = tuple(
  f'{folder}{name}'
  for name in (
    *('multinli.train.en.tsv', 'MNLI/train.tsv', 'train.tsv'),
    *(f'multinli.train.{language}.tsv' for language in LANGUAGES[1:]),
  )
  for folder in ('', 'multinli/', '../', '../XNLI-MT-1.0/multinli/')
)
XNLI = examples.Task(
  rows=_xnli_rows,
  name='xnli',
  title='XNLI',
  kind='classification',
  allow_empty=True,  # as MNLI
  files={
    'train': _XNLI_TRAIN,
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
