r"""Devlin et al. 2018, Table 6, by pre-trainings of minutes to an hour.

The command goes on where it was stopped:

  python -m train.tables --table small/bert_sizes --data sets
"""

from configs.tables import base, small
from configs.tables.base import Column, Contrast, Part

SIZES = {
  'L2 H128': 'bert-tiny',
  'L4 H256': 'bert-mini',
  'L4 H512': 'bert-small',
  'L8 H512': 'bert-medium',
}
PERPLEXITY = Column(
  'mlm/ppl', (Part(base.PRETRAINING, ('eval/mlm_perplexity',)),), percent=False
)
NAMES = [*SIZES]

TABLE = base.Table(
  id='small/bert_sizes',
  title='Effect of model size, at small sizes (dev)',
  source='Devlin et al. 2018, Table 6',
  columns=(PERPLEXITY, *small.SENTENCES, small.PANX, small.BLIMP),
  maker='small_table',
  seeds=3,
  notes=small.NOTES,
  contrasts=tuple(
    Contrast(f'{larger} is better than {smaller}', larger, smaller)
    for smaller, larger in zip(NAMES, NAMES[1:], strict=False)
  ),
  rows=tuple(
    small.row(name, ('',) * 7, f'ablation:bert,{size}')
    for name, size in SIZES.items()
  ),
)
