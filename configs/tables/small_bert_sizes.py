r"""Devlin et al. 2018, Table 6, by pre-trainings of 10 to 60 minutes.

The command goes on where it was stopped:

  python -m train.tables --table small/bert_sizes --data sets
"""

from configs.tables import base, bert_model_size, small
from configs.tables.base import Column, Contrast

# The paper's rows: perplexity, MRPC and SST-2 behind sizes and MNLI.
_QUOTED = tuple(
  base.Row(row.name, (row.values[3], row.values[6], row.values[5]) + ('',) * 4)
  for row in bert_model_size.TABLE.rows
)
L3, _, L6, L12, L12_WIDE, L24 = (row.name for row in _QUOTED)
DEEP = {'model.num_layers': 4}
WIDE = {'model.embed_dim': 256, 'model.num_heads': 4, 'model.mlp_dim': 640}
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
    small.MRPC_NOTE,
    'All are pre-trained and fine-tuned at the rates that were chosen for 2'
    ' layers of 128.',
    'The published differences beside ours are of the rows that differ by the'
    f' same thing: twice the layers ({L3} and {L6}; {L12_WIDE} and {L24}), more'
    f' width ({L12} and {L12_WIDE}, 1.3 times where ours is twice), or both'
    f' ({L6} and {L12_WIDE}).',
  ),
  contrasts=tuple(
    Contrast(f'{larger} is better than {smaller}', larger, smaller, published)
    for smaller, larger, published in (
      (SMALLEST, LONGER, (L6, L3)),
      (SMALLEST, WIDER, (L12_WIDE, L12)),
      (LONGER, LARGEST, (L12_WIDE, L12)),
      (WIDER, LARGEST, (L24, L12_WIDE)),
      (SMALLEST, LARGEST, (L12_WIDE, L6)),
    )
  ),
  rows=(
    *_QUOTED,
    *(
      small.row(name, ('',) * 7, 'ablation:bert', changes=changes)
      for name, changes in SIZES.items()
    ),
  ),
)
