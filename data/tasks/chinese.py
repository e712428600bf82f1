"""ERNIE's Chinese tasks: ChnSentiCorp, LCQMC and MSRA's named entities.

Each is read from the files of its authors, or from those of ERNIE's release,
which have titles (PaddlePaddle/ERNIE, ERNIE/reader/task_reader.py).
"""

import functools
from typing import Any

from etils import epath

from data.tasks import examples, files, glue
from data.tasks.annotated import conll
from data.vocabulary import tag_schemes

_BINARY = ('0', '1')
_PAIR = ('text_a', 'text_b')
_APART = '\x02'  # between the characters of a sentence of ERNIE's release


def _lcqmc_rows(file: epath.Path, split: str) -> examples.Found:
  """Reads pairs with titles, or without; two columns have no labels."""
  titles = files.header_of(file)
  if _PAIR[0] in titles:
    return glue.rows(file, split, texts=_PAIR)
  titles = (*_PAIR, 'label')[: 2 if len(titles) == 2 else 3]
  records = files.read_tsv(file, (), titles=titles)
  return glue.text_examples(records, _PAIR, 'label')


def _msra_rows(file: epath.Path, split: str) -> examples.Found:
  """Reads a character a line with its tag, or a sentence a line with both."""
  if _PAIR[0] not in files.header_of(file):
    yield from conll.rows(file, split, width=2)
    return
  fields = ('text_a', 'label') if examples.needs_labels(split) else ('text_a',)
  found = files.read_tsv(file, fields, optional=('label',))
  for number, (where, record) in enumerate(found):
    words, tags = (
      None if value is None else tuple(value.split(_APART))
      for value in (record['text_a'], record.get('label'))
    )
    if tags is not None:
      tags = tag_schemes.to_iob2(tags)
    yield where, examples.TaggedExample(str(number), words, tags)


def _ernie(
  rate: float, batch: int, epochs: float, length: int
) -> dict[str, dict[str, Any]]:
  """Returns a recipe of PaddlePaddle/ERNIE, ERNIE/script/run_*.sh."""
  return {
    'bert': {
      'optim.learning_rate': rate,
      'train.global_batch': batch,
      'train.num_epochs': epochs,
      'task.max_length': length,
    }
  }


def _names(split: str) -> tuple[str, ...]:
  return (f'{split}.tsv',)


CHNSENTICORP = examples.TextTask(
  rows=functools.partial(glue.rows, texts=('text_a',)),
  name='chnsenticorp',
  title='ChnSentiCorp',
  kind='classification',
  files={split: _names(split) for split in ('train', 'dev', 'test')},
  folders=('chnsenticorp', 'ChnSentiCorp'),
  labels=_BINARY,
  sizes={'train': 9600, 'dev': 1200, 'test': 1200},
  url='https://github.com/ymcui/Chinese-BERT-wwm',
  recipe=_ernie(5e-5, 24, 10.0, 256),
)
LCQMC = examples.TextTask(
  rows=_lcqmc_rows,
  name='lcqmc',
  title='LCQMC',
  kind='classification',
  files={split: _names(split) for split in ('train', 'dev', 'test')},
  folders=('lcqmc', 'LCQMC'),
  labels=_BINARY,
  num_texts=2,
  symmetric=True,
  sizes={'train': 238766, 'dev': 8802, 'test': 12500},
  url='https://aclanthology.org/C18-1166',
  recipe=_ernie(2e-5, 32, 3.0, 128),
)
MSRA_NER = examples.Task(
  rows=_msra_rows,
  name='msra_ner',
  title='MSRA-NER',
  kind='tagging',
  # MSRA published no dev set: dev is the test set, unless there is ERNIE's.
  files={
    'train': ('train.tsv', 'train.txt', 'msra_train_bio.txt'),
    'dev': ('dev.tsv', 'dev.txt', 'test.txt', 'msra_test_bio.txt'),
    'test': ('test.tsv', 'test.txt', 'msra_test_bio.txt'),
  },
  folders=('msra_ner', 'MSRA'),
  labels=tag_schemes.iob2_labels(('PER', 'ORG', 'LOC')),
  metrics=conll.ENTITY_METRICS,
  submission='conll',
  sizes={'test': 3442},
  url='https://github.com/OYE93/Chinese-NLP-Corpus',
  recipe=_ernie(5e-5, 16, 3.0, 256),
)

TASKS = (CHNSENTICORP, LCQMC, MSRA_NER)
