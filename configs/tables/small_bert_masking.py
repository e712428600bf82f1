r"""Devlin et al. 2019 (v2), Table 8, by pre-trainings of minutes.

Each row is a share of [MASK], same and random tokens:

  python -m train.tables --table small/bert_masking --data sets
"""

import dataclasses

from configs.tables import base, bert_masking, small
from configs.tables.base import Column, Contrast

_PART = small.PANX.parts[0]
FEATURES = Column(
  'panx_en_feature_based/f1',
  (
    dataclasses.replace(
      _PART,
      args=('recipe=frozen',),
      overrides=small.FROZEN | {'task.features': 'sum_all'},
      label='feature_based',
    ),
  ),
)
OURS = '80 / 10 / 10'

TABLE = base.Table(
  id='small/bert_masking',
  title='Masking strategies, [MASK] / same / random, at a small size (dev)',
  source='Devlin et al. 2019 (v2), Appendix C.2, Table 8',
  columns=(small.SST2, small.PANX, FEATURES, small.BLIMP),
  maker='small_table',
  seeds=3,
  notes=(
    *small.NOTES,
    "The published figures of names are CoNLL-2003's, ours PAN-X's; its frozen"
    ' features are the last four layers side by side, ours the sum of all.',
    "The held-out perplexities are of each row's own masks and do not compare:"
    ' a token that is left as it is can be copied.',
  ),
  contrasts=(
    Contrast('Other tokens than [MASK] help', OURS, '100 / 0 / 0'),
    Contrast('Tokens left as they are help', OURS, '80 / 0 / 20'),
    Contrast('Random tokens help', OURS, '80 / 20 / 0'),
    Contrast('[MASK] is better than random tokens', OURS, '0 / 20 / 80'),
    Contrast('[MASK] is better than random tokens alone', OURS, '0 / 0 / 100'),
  ),
  # The paper's judge of sentences is MNLI, ours SST-2.
  rows=tuple(
    small.row(
      row.name,
      ('', *row.values[1:], ''),
      f'ablation:bert,mask={row.name.replace(" ", "")}',
    )
    for row in bert_masking.TABLE.rows
  ),
)
