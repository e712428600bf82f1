r"""Devlin et al. 2018 (v1), Table 7: frozen features of BERT-Base for NER.

A user's own weights repeat every row.

  python -m train.tables --table bert/feature_based --data conll2003 \
    --weights mine=runs/bert
"""

from configs.tables import base
from configs.tables.base import Row

FINE_TUNED = Row('Fine-tune all', (96.4,), **base.CASED_BASE)


def _frozen(name: str, value: float, features: str) -> Row:
  return Row(name, (value,), **base.CASED_BASE, **base.frozen(features))


ROWS = (
  FINE_TUNED,
  _frozen('First layer (embeddings)', 91.0, 'first'),
  _frozen('Second-to-last hidden', 95.6, 'second_to_last'),
  _frozen('Last hidden', 94.9, 'last'),
  _frozen('Sum last four hidden', 95.9, 'sum_last_4'),
  _frozen('Concat last four hidden', 96.1, 'concat_last_4'),
  _frozen('Sum all 12 layers', 95.5, 'sum_all'),
)
TABLE = base.Table(
  id='bert/feature_based',
  title=(
    'BERT-Base as frozen features for CoNLL-2003 NER: chosen layers feed a'
    ' randomly initialised two-layer 768-dimensional BiLSTM before the'
    ' classifier'
  ),
  source='Devlin et al. 2018 (v1), Table 7',
  columns=(base.on_dev('ner_conll2003_dev/f1', 'conll2003', 'f1'),),
  notes=(base.ONE_RATE_NOTE, base.NER_NOTE),
  rows=ROWS,
  repeated=tuple(row.name for row in ROWS),
)
