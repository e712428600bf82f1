r"""Peters et al. 2018, Figure 2: weights of ELMo's layers by task.

A heat map of finished fine-tunings with task.features=mix, of any model; runs
of the same name, and those of a sweep, are averaged:

python -m train.tables --table elmo/layer_weights_figure \
  --weights SST-5=runs/sst5 --weights NER=runs/ner
"""

from configs.tables import base

TABLE = base.Table(
  id='elmo/layer_weights_figure',
  title='Softmax-normalised weights of the layers, by task and place',
  source=(
    'Peters et al. 2018, Figure 2; it prints no figures: at the input LSTM-1'
    ' leads, most for coref and SQuAD; the output is balanced'
  ),
  columns=(),
  rows=(),
  notes=(
    "Column token is the embedding layer (ELMo's token layer), column 1 the"
    ' first layer above it.',
    'A weight is the softmax of the learned weights of a place; gamma is the'
    ' learned scale of the weighted sum. Figures of several runs are means,'
    ' with the sample standard deviation.',
  ),
  maker='layer_figure',
)
