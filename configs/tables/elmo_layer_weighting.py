r"""Peters et al. 2018, Table 2: how ELMo's layers are weighted.

A user's own weights, of any family, repeat the rows with layers.

  python -m train.tables --table elmo/layer_weighting --data sets \
    --weights Baseline=glove.txt --weights runs/elmo \
    --config.task.word_vectors=glove.txt
"""

from typing import Any

from configs.tables import base
from configs.tables.base import Row

LAST = 'Last layer only'
MEAN = 'All layers, lambda=1'
FREE = 'All layers, lambda=0.001'
MODELS = base.models_of('squad1', 'snli', 'srl')


def _row(name: str, *values: float, **overrides: Any) -> Row:
  return Row(
    name,
    values,
    overrides={f'task.{key}': value for key, value in overrides.items()},
    models=MODELS,
    **base.ELMO,
  )


TABLE = base.Table(
  id='elmo/layer_weighting',
  title=(
    'Alternate layer weighting schemes (dev set); lambda regularises the'
    ' scalar-mix weights'
  ),
  source='Peters et al. 2018, Table 2',
  columns=(
    base.on_dev('squad_v1.1/f1', 'squad1', 'f1'),
    base.on_dev('snli/accuracy', 'snli', 'accuracy'),
    base.on_dev('srl_ontonotes/f1', 'srl', 'f1'),
  ),
  tells=base.WORD_TELLS,
  notes=(base.VECTORS_NOTE,),
  rows=(
    Row('Baseline', (80.8, 88.1, 81.6), models=MODELS, **base.GLOVE),
    _row(
      LAST,
      84.7,
      89.1,
      84.1,
      features='last',
      mix_l2=0.0,
      mix_layer_norm=False,  # one layer is no mix
    ),
    _row(MEAN, 85.0, 89.3, 84.6, features='mix', mix_l2=1.0),
    _row(FREE, 85.2, 89.5, 84.8, features='mix', mix_l2=0.001),
  ),
  repeated=(LAST, MEAN, FREE),
)
