"""Inference between two sentences beyond GLUE: SNLI, SciTail and XNLI."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Any

from etils import epath

from data.tasks import examples, files, glue
from data.text import text_files

_LABELS = ('contradiction', 'entailment', 'neutral')
# Conneau et al. 2018, English first.
LANGUAGES = (
  'en',
  'fr',
  'es',
  'de',
  'el',
  'bg',
  'ru',
  'tr',
  'ar',
  'vi',
  'th',
  'zh',
  'hi',
  'sw',
  'ur',
)


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
  """Reads XNLI: dev and test in all languages; training in one, or MNLI's.

  XTREME has a file for each language instead, without titles.
  """
  titles = files.header_of(file)
  if 'language' in titles:
    return _xnli_table(file)
  if 'text_a' in titles:  # ERNIE's release
    return glue.rows(file, split, texts=('text_a', 'text_b'), to_label=_to_xnli)
  if len(titles) < 4 and not {'hypo', 'gold_label'} & set(titles):
    titles = ('premise', 'hypothesis', 'label')[: len(titles)]
    records = files.read_tsv(file, (), titles=titles)
    return glue.text_examples(records, titles[:2], 'label')
  if 'hypo' not in titles:
    return glue.rows(file, split, label='gold_label', group='en', open_end=True)
  # A machine translation of MultiNLI's training set.
  return glue.rows(
    file,
    split,
    texts=('premise', 'hypo'),
    to_label=_to_xnli,
    group=file.name.removesuffix('.tsv').rpartition('.')[2],
  )


def _to_xnli(where: str, label: str) -> str:
  del where
  return label.replace('contradictory', 'contradiction')


def _xnli_rows_of(
  file: epath.Path, split: str, *, language: str
) -> examples.Found:
  """Yields XNLI's rows in one language, which need not be told apart."""
  for where, example in _xnli_rows(file, split):
    if example.group in ('', language):
      yield where, dataclasses.replace(example, group='')


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
    example = glue.MNLI.tfds.read(record, split, number)
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


def _xnli_record_of(
  record: Mapping[str, Any], split: str, number: int, *, language: str
) -> list[examples.TextExample]:
  """Returns the pair of a TFDS record in one language."""
  return [
    dataclasses.replace(example, group='')
    for example in _xnli_record(record, split, number)
    if example.group == language
  ]


def _snli_record(
  record: Mapping[str, Any], split: str, number: int
) -> list[examples.TextExample]:
  example = glue.MNLI.tfds.read(record, split, number)
  return [] if example.label is None else [example]


def _scitail_names(split: str) -> tuple[str, ...]:
  return (
    f'scitail_1.0_{split}.tsv',
    f'tsv_format/scitail_1.0_{split}.tsv',
    f'{split}.tsv',
    f'scitail_1.0_{split}.txt',
    f'snli_format/scitail_1.0_{split}.txt',
  )


SNLI = examples.TextTask(
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
  tfds=examples.Tfds('snli', _snli_record, glue.TFDS_SPLITS),
  url='https://nlp.stanford.edu/projects/snli',
)
SCITAIL = examples.TextTask(
  rows=_scitail_rows,
  name='scitail',
  title='SciTail',
  kind='classification',
  files={split: _scitail_names(split) for split in ('train', 'dev', 'test')},
  folders=('scitail', 'SciTail', 'SciTailV1.1'),
  labels=('entails', 'neutral'),
  num_texts=2,
  sizes={'train': 23596, 'dev': 1304, 'test': 2126},
  tfds=examples.Tfds(
    'sci_tail',
    functools.partial(
      glue.text_record,
      texts=('premise', 'hypothesis'),
      labels=('entails', 'neutral'),
    ),
    glue.TFDS_SPLITS,
  ),
  url='https://allenai.org/data/scitail',
)
# English first. Translations lie beside XNLI, or in a folder of their own.
_XNLI_TRAIN = {
  language: tuple(
    f'{folder}{name}'
    for name in (
      f'multinli.train.{language}.tsv',
      *(('MNLI/train.tsv', 'train.tsv') if language == 'en' else ()),
    )
    for folder in ('', 'multinli/', '../', '../XNLI-MT-1.0/multinli/')
  )
  for language in LANGUAGES
}
XNLI = examples.TextTask(
  rows=_xnli_rows,
  name='xnli',
  title='XNLI',
  kind='classification',
  allow_empty=True,  # as MNLI
  files={
    'train': tuple(itertools.chain(*_XNLI_TRAIN.values())),
    'dev': ('xnli.dev.tsv', 'dev-en.tsv'),
    'test': ('xnli.test.tsv', 'test-en.tsv'),
  },
  folders=('XNLI', 'xnli', 'XNLI-1.0'),
  labels=_LABELS,
  num_texts=2,
  sizes={'train': 392702, 'dev': 37350, 'test': 75150},
  tfds=examples.Tfds(
    'xnli',
    _xnli_record,
    {'train': 'glue/mnli:train', 'dev': 'validation', 'test': 'test'},
  ),
  url='https://github.com/facebookresearch/XNLI',
  # google-research/bert, multilingual.md.
  recipe={'bert': {'optim.learning_rate': 5e-5, 'train.num_epochs': 2.0}},
)


def _xnli(language: str) -> examples.Task:
  """Returns XNLI in one language alone."""
  splits = dict(XNLI.tfds.splits)
  if language != 'en':
    del splits['train']  # MNLI's
  return dataclasses.replace(
    XNLI,
    rows=functools.partial(_xnli_rows_of, language=language),
    name=f'xnli_{language}',
    title=f'XNLI, {language}',
    files={
      'train': _XNLI_TRAIN[language],
      'dev': ('xnli.dev.tsv', f'dev-{language}.tsv'),
      'test': ('xnli.test.tsv', f'test-{language}.tsv'),
    },
    sizes={'train': 392702, 'dev': 2490, 'test': 5010},
    tfds=examples.Tfds(
      'xnli',
      functools.partial(_xnli_record_of, language=language),
      splits,
    ),
  )


_IN_LANGUAGES = {language: _xnli(language) for language in LANGUAGES}
_ZH = _IN_LANGUAGES['zh']
XNLI_ZH = dataclasses.replace(
  _ZH,  # and ERNIE's release, which has this language alone
  files={split: (*names, f'{split}.tsv') for split, names in _ZH.files.items()},
)
XNLI = dataclasses.replace(XNLI, language='en', languages=_IN_LANGUAGES)

TASKS = (SNLI, SCITAIL, XNLI, XNLI_ZH)
