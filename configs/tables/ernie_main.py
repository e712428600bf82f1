r"""ERNIE's release, README: ERNIE 1.0 and BERT on five Chinese tasks.

Settings are those of the release's scripts, for both rows: a constant rate, and
Adam with its bias correction. XNLI's batch there is of 65,536 tokens, which its
README gives as 512 pairs.

  python -m train.tables --table ernie/main --data sets \
    --weights 'BERT Chinese=google-bert/bert-base-chinese' \
    --weights 'ERNIE=nghuyong/ernie-1.0-base-zh'
"""

import dataclasses
from typing import Any

from configs.tables import base
from configs.tables.base import Column, Row

SCRIPTS = {
  'optim.name': 'adamw',
  'optim.epsilon': 1e-8,
  'optim.schedule': 'constant',
  'optim.warmup_fraction': 0.0,
}
SPLITS = ('dev', 'test')
XNLI = {
  'optim.learning_rate': 1e-4,
  'train.global_batch': 512,
  'train.num_epochs': 3.0,
  'task.max_length': 512,
}


def _columns(
  name: str, task: str, metric: str, settings: dict[str, Any] | None = None
) -> tuple[Column, ...]:
  """Returns a task's columns of dev and test."""
  overrides = SCRIPTS | (settings or {})
  return tuple(
    dataclasses.replace(
      column,
      parts=tuple(
        dataclasses.replace(part, overrides=overrides) for part in column.parts
      ),
    )
    for column in (
      base.on_dev(f'{name}_dev/{metric}', task, metric),
      base.on_test(f'{name}_test/{metric}', task, metric),
    )
  )


def _quoted(split: str, metric: str) -> Column:
  return Column(
    f'nlpcc_dbqa_{split}/{metric}',
    missing='NLPCC-DBQA, which ranks answers of a document, is no task here',
  )


TABLE = base.Table(
  id='ernie/main',
  title='ERNIE 1.0 and BERT on five Chinese tasks',
  source='PaddlePaddle/ERNIE, release/r2.0, ERNIE/README.md',
  columns=(
    *_columns('xnli', 'xnli_zh', 'accuracy', XNLI),
    *_columns('lcqmc', 'lcqmc', 'accuracy', {'optim.weight_decay': 0.0}),
    *_columns('msra_ner', 'msra_ner', 'f1'),
    *_columns('chnsenticorp', 'chnsenticorp', 'accuracy'),
    *(_quoted(split, metric) for metric in ('mrr', 'f1') for split in SPLITS),
  ),
  tells=(
    *base.PAPER_GRID,
    'optim.schedule',
    'task.max_length',
    'train.select',
  ),
  notes=(
    "The model that is scored is the last step's; which one the release scored"
    ' it does not say.',
    "MSRA published no dev set: without ERNIE's file dev.tsv, ours is its test"
    ' set.',
    "MSRA's number of epochs is 3 or 6, by the commit of the release's script.",
  ),
  rows=(
    Row(
      'BERT Chinese',
      (78.1, 77.2, 88.8, 87.0, 94.0, 92.6, 94.6, 94.3, 94.7, 94.6, 80.7, 80.8),
      family='bert',
      needs='BERT-Base, Chinese, such as google-bert/bert-base-chinese',
    ),
    Row(
      'ERNIE',
      (79.9, 78.4, 89.7, 87.4, 95.0, 93.8, 95.2, 95.4, 95.0, 95.1, 82.3, 82.7),
      family='bert',
      needs='ERNIE 1.0, such as nghuyong/ernie-1.0-base-zh or ernie_base',
    ),
  ),
)
