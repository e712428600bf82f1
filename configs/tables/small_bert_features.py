r"""Devlin et al. 2018 (v1), Table 7, by pre-trainings of minutes.

The model of `small/bert_tasks`, fine-tuned or frozen under two BiLSTMs:

  python -m train.tables --table small/bert_features --data sets
"""

from typing import Any

from configs.tables import base, bert_feature_based, small
from configs.tables.base import Column, Contrast, Part

_PUBLISHED = {row.name: row.values[0] for row in bert_feature_based.TABLE.rows}
FINE_TUNED, SUM = 'Fine-tune all', 'Sum of both layers'
FIRST, MIDDLE, LAST = (
  'First layer (embeddings)',
  'Second-to-last hidden',
  'Last hidden',
)
UNTRAINED = 'Last hidden, no pre-training'


def _row(
  name: str, features: str | None, published: float | str, words: str = ''
) -> base.Row:
  fields: dict[str, Any] = dict(
    args=('recipe=corrected',), overrides=small.NAMES
  )
  if features:
    fields = base.frozen(features)
  return small.row(name, (published,), f'ablation:bert{words}', **fields)


TABLE = base.Table(
  id='small/bert_features',
  title='BERT as frozen features of names, at a small size (dev)',
  source='Devlin et al. 2018 (v1), Table 7',
  columns=(
    Column('panx_en/f1', (Part('panx_en', ('dev/f1',), (), small.FROZEN),)),
  ),
  maker='small_table',
  seeds=3,
  notes=(
    *small.NOTES,
    "The published figures are CoNLL-2003's of twelve layers, the sum that of"
    ' all of them; ours are of two layers, and their embeddings before them.',
    'Frozen rows read the examples for 10 epochs at 1e-3, in batches of 16, by'
    ' the recipe `frozen`; fine-tuned ones for 4, in batches of 32.',
  ),
  contrasts=(
    Contrast('Fine-tuning is better than frozen features', FINE_TUNED, SUM),
    Contrast('Several layers are better than the last', SUM, LAST),
    Contrast('The second-to-last layer is better than the last', MIDDLE, LAST),
    Contrast('Context is better than embeddings', LAST, FIRST),
    Contrast('Frozen features need pre-training', LAST, UNTRAINED),
  ),
  rows=(
    _row(FINE_TUNED, None, _PUBLISHED[FINE_TUNED]),
    _row(FIRST, 'first', _PUBLISHED[FIRST]),
    _row(MIDDLE, 'second_to_last', _PUBLISHED[MIDDLE]),
    _row(LAST, 'last', _PUBLISHED[LAST]),
    _row(SUM, 'sum_all', _PUBLISHED['Sum all 12 layers']),
    _row(UNTRAINED, 'last', '', ',untrained'),
  ),
)
