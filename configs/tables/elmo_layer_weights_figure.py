"""Peters et al. 2018, Figure 2: weights of ELMo's layers by task.

python -m train.tables --table elmo/layer_weights_figure
"""

from configs.tables import base
from configs.tables.base import Column

TABLE = base.Table(
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
    Column(name, **base.NO_ELMO) for name in ('token', 'lstm1', 'lstm2')
  ),
  rows=(),
  notes=(f'Ours {base.NEEDS_ELMO}.',),
)
