r"""Peters et al. 2018, Table 3: where ELMo enters a task model.

A user's own weights, of any family, repeat every row.

  python -m train.tables --table elmo/where --data sets --weights runs/elmo \
    --config.task.word_vectors=glove.txt
"""

from configs.tables import base
from configs.tables.base import Row


def _row(name: str, place: str, *values: float) -> Row:
  return Row(
    name,
    values,
    # Of SRL, ELMo takes the place of vectors of words at the input alone.
    overrides={'task.mix_at': place}
    | ({'task.word_dim': 100} if place == 'output' else {}),
    models=base.models_of('squad1', 'snli', 'srl'),
    **base.ELMO,
  )


ROWS = (
  _row('Input only', 'input', 85.1, 88.9, 84.7),
  _row('Input & output', 'both', 85.6, 89.5, 84.3),
  _row('Output only', 'output', 84.8, 88.7, 80.9),
)
TABLE = base.Table(
  id='elmo/where',
  title='Where to include ELMo (dev set)',
  source='Peters et al. 2018, Table 3',
  columns=(
    base.on_dev('squad_v1.1/f1', 'squad1', 'f1'),
    base.on_dev('snli/accuracy', 'snli', 'accuracy'),
    base.on_dev('srl_ontonotes/f1', 'srl', 'f1'),
  ),
  tells=base.WORD_TELLS,
  notes=(base.VECTORS_NOTE,),
  rows=ROWS,
  repeated=tuple(row.name for row in ROWS),
)
