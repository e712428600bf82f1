"""Peters et al. 2018, Table 3: where ELMo enters a task model.

python -m train.tables --table elmo/where
"""

from configs.tables import base
from configs.tables.base import Column, Row


def _row(name: str, *values: float) -> Row:
  return Row(name, values, **base.NO_ELMO)


TABLE = base.Table(
  id='elmo/where',
  title='Where to include ELMo (dev set)',
  source='Peters et al. 2018, Table 3',
  columns=(
    base.on_dev('squad_v1.1/f1', 'squad1', 'f1'),
    base.on_dev('snli/accuracy', 'snli', 'accuracy'),
    Column('srl_ontonotes/f1', missing='needs a task of OntoNotes'),
  ),
  rows=(
    _row('Input only', 85.1, 88.9, 84.7),
    _row('Input & output', 85.6, 89.5, 84.3),
    _row('Output only', 84.8, 88.7, 80.9),
  ),
)
