r"""Devlin et al. 2018, Table 6, by pre-trainings of 10 to 60 minutes.

The command goes on where it was stopped:

  python -m train.tables --table small/bert_sizes --data sets
"""

from configs.tables import base, small
from configs.tables.base import Column, Contrast

DEEP = {'model.num_layers': 4}
# At 400 steps 5e-3 was better than 1e-2 for bert_mini:modern.
WIDE = {
  'model.embed_dim': 256,
  'model.num_heads': 4,
  'model.mlp_dim': 640,
  'optim.learning_rate': 5e-3,
}
SIZES = {
  'L2 H128': {},
  'L4 H128': DEEP,
  'L2 H256': WIDE,
  'L4 H256': DEEP | WIDE,
}
PERPLEXITY = Column('mlm/ppl', percent=False, held_out='mlm')
SMALLEST, LONGER, WIDER, LARGEST = SIZES

TABLE = base.Table(
  id='small/bert_sizes',
  title='Effect of model size, at small sizes (dev)',
  source='Devlin et al. 2018, Table 6',
  columns=(PERPLEXITY, *small.SENTENCES, small.PANX, small.BLIMP),
  maker='small_table',
  seeds=3,
  notes=(
    *small.NOTES,
    'Layers of 256 have a learning rate of 5e-3, of 128 one of 1e-2.',
  ),
  contrasts=tuple(
    Contrast(f'{larger} is better than {smaller}', larger, smaller)
    for smaller, larger in (
      (SMALLEST, LONGER),
      (SMALLEST, WIDER),
      (LONGER, LARGEST),
      (WIDER, LARGEST),
      (SMALLEST, LARGEST),
    )
  ),
  rows=tuple(
    small.row(name, ('',) * 7, 'ablation:bert', changes=changes)
    for name, changes in SIZES.items()
  ),
)
