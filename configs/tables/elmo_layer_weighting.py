"""Peters et al. 2018, Table 2: how ELMo's layers are weighted.

python -m train.tables --table elmo/layer_weighting
"""

from configs.tables import base
from configs.tables.base import Column, Row


def _row(name: str, *values: float) -> Row:
  return Row(name, values, run=True, missing=base.NEEDS_ELMO)


def get_table() -> base.Table:
  """Returns the table."""
  return base.Table(
    id='elmo/layer_weighting',
    title=(
      'Alternate layer weighting schemes (dev set); lambda regularises the'
      ' scalar-mix weights'
    ),
    source='Peters et al. 2018, Table 2',
    columns=(
      base.on_dev('squad_v1.1/f1', 'squad1', 'f1'),
      base.on_dev('snli/accuracy', 'snli', 'accuracy'),
      Column('srl_ontonotes/f1', missing='needs a task of OntoNotes'),
    ),
    rows=(
      _row('Baseline', 80.8, 88.1, 81.6),
      _row('Last layer only', 84.7, 89.1, 84.1),
      _row('All layers, lambda=1', 85.0, 89.3, 84.6),
      _row('All layers, lambda=0.001', 85.2, 89.5, 84.8),
    ),
  )
