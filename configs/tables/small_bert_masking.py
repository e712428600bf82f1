r"""Devlin et al. 2019 (v2), Table 8, by pre-trainings of minutes.

python -m train.tables --table small/bert_masking --data sets
"""

import dataclasses

from configs.tables import base, small
from configs.tables.base import Column, Contrast, Row

_PART = small.PANX.parts[0]
FEATURES = Column(
  'panx_en_feature_based/f1',
  (
    dataclasses.replace(
      _PART,
      args=('recipe=frozen',),
      overrides={
        'task.max_length': 64,
        'data.train_limit': 8_000,
        'task.features': 'sum_all',
      },
      label='feature_based',
    ),
  ),
)
OURS = '80 / 10 / 10'


def _row(mask: int, same: int, random: int, *values: float) -> Row:
  # The last three judges are not the paper's.
  return small.row(
    f'{mask} / {same} / {random}',
    ('', *values[1:], ''),
    f'ablation:bert,mask={mask}/{same}/{random}',
  )


TABLE = base.Table(
  id='small/bert_masking',
  title=('Masking strategies, [MASK] / same / random, at a small size (dev)'),
  source='Devlin et al. 2019 (v2), Appendix C.2, Table 8',
  columns=(small.SST2, small.PANX, FEATURES, small.BLIMP),
  maker='small_table',
  seeds=3,
  notes=(
    *small.NOTES,
    "The published figures of names are CoNLL-2003's, ours PAN-X's.",
  ),
  contrasts=(
    Contrast('Some random tokens help', OURS, '100 / 0 / 0'),
    Contrast('Some tokens left as they are help', OURS, '80 / 0 / 20'),
    Contrast('Both are better than the same alone', OURS, '80 / 20 / 0'),
    Contrast('Masks are better than random tokens', OURS, '0 / 20 / 80'),
    Contrast('Masks are better than random alone', OURS, '0 / 0 / 100'),
  ),
  rows=(
    _row(80, 10, 10, 84.2, 95.4, 94.9),
    _row(100, 0, 0, 84.3, 94.9, 94.0),
    _row(80, 0, 20, 84.1, 95.2, 94.6),
    _row(80, 20, 0, 84.4, 95.2, 94.7),
    _row(0, 20, 80, 83.7, 94.8, 94.6),
    _row(0, 0, 100, 83.6, 94.9, 94.6),
  ),
)
