r"""Devlin et al. 2018, Table 5: effect of the pre-training tasks.

Each row needs its own pre-training, with bert_base's data and steps. In
fine-tuning, `left_to_right` weights stay so and read the last token, not [CLS].

  python -m train.tables --table bert/pretraining_tasks --data sets \
    --weights 'No NSP=runs/no_nsp'
"""

from configs.tables import base
from configs.tables.base import Row

LEFT_TO_RIGHT = 'BERT-Base pre-trained with --config bert_base:ltr_no_nsp'

TABLE = base.Table(
  id='bert/pretraining_tasks',
  title=('Effect of the pre-training tasks (dev set, BERT-Base architecture)'),
  source='Devlin et al. 2018, Table 5',
  columns=(
    base.on_dev('mnli_matched/accuracy', 'mnli', 'accuracy'),
    base.on_dev('qnli/accuracy', 'qnli', 'accuracy'),
    base.on_dev('mrpc/accuracy', 'mrpc', 'accuracy'),
    base.on_dev('sst2/accuracy', 'sst2', 'accuracy'),
    base.on_dev('squad_v1.1/f1', 'squad1', 'f1'),
  ),
  notes=(base.ONE_RATE_NOTE, base.QNLI_NOTE),
  rows=(
    Row('BERT-Base', (84.4, 88.4, 86.7, 92.7, 88.5), **base.BERT_BASE),
    Row(
      'No NSP',
      (83.9, 84.9, 86.5, 92.6, 87.9),
      family='bert',
      needs='BERT-Base pre-trained with --config bert_base:no_nsp',
    ),
    Row(
      'LTR & No NSP',
      (82.1, 84.3, 77.5, 92.1, 77.8),
      family='bert',
      needs=LEFT_TO_RIGHT,
    ),
    Row(
      'LTR & No NSP + BiLSTM',
      (82.1, 84.1, 75.7, 91.6, 84.9),
      family='bert',
      needs=LEFT_TO_RIGHT,
      # Sized as in the paper's feature-based NER: no size is given here.
      overrides={'task.bilstm_layers': 2},
    ),
  ),
)
