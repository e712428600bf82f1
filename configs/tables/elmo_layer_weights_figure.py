"""Peters et al. 2018, Figure 2: what tasks make of ELMo's layers.

python -m train.tables --table elmo/layer_weights_figure
"""

from configs.tables import base
from configs.tables.base import Column


def get_table() -> base.Table:
  """Returns the table: its figures are not printed."""
  return base.Table(
    id='elmo/layer_weights_figure',
    title=(
      'Softmax-normalised scalar-mix weights per task and layer (a heat map:'
      ' token layer, LSTM-1, LSTM-2; input and output)'
    ),
    source=(
      'Peters et al. 2018, Figure 2; no printed figures: coref and SQuAD lean'
      ' on LSTM-1, the others are balanced'
    ),
    columns=tuple(
      Column(name, missing=base.NEEDS_ELMO)
      for name in ('token', 'lstm1', 'lstm2')
    ),
    rows=(),
    notes=(f'Ours {base.NEEDS_ELMO}.',),
  )
