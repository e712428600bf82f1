r"""Devlin et al. 2018, Table 5, by pre-trainings of minutes.

Each row is pre-trained twice, and each of these fine-tuned three times a task.
The command goes on where it was stopped.

  python -m train.tables --table small/bert_tasks --data sets
"""

from configs.tables import base, small
from configs.tables.base import Contrast

FULL, NO_NSP, LTR = 'MLM & NSP', 'No NSP', 'LTR & No NSP'
BILSTM, UNTRAINED = 'LTR & No NSP + BiLSTM', 'no pre-training'
WORDS = 'word2vec'
NONE = ''

TABLE = base.Table(
  id='small/bert_tasks',
  title='Effect of the pre-training tasks, at a small size (dev)',
  source='Devlin et al. 2018, Table 5',
  columns=(*small.SENTENCES, small.SQUAD1, small.PANX, small.BLIMP),
  maker='small_table',
  seeds=3,
  notes=(*small.NOTES, small.MRPC_NOTE, small.WORD_NOTE, small.PAIRS_NOTE),
  contrasts=(
    Contrast('Pre-training helps', FULL, UNTRAINED),
    Contrast('Pre-training is better than vectors of words', FULL, WORDS),
    Contrast('Predicting the next sentence helps', FULL, NO_NSP),
    Contrast('Reading both sides helps', NO_NSP, LTR),
    Contrast('A BiLSTM on top helps a model of one side', BILSTM, LTR),
    Contrast('Both sides are better than one and a BiLSTM', NO_NSP, BILSTM),
  ),
  rows=(
    small.row(
      FULL, (92.7, 86.7, NONE, NONE, 88.5, NONE, NONE), 'ablation:bert'
    ),
    small.row(
      NO_NSP, (92.6, 86.5, NONE, NONE, 87.9, NONE, NONE), 'ablation:bert,no_nsp'
    ),
    small.row(
      LTR,
      (92.1, 77.5, NONE, NONE, 77.8, NONE, NONE),
      'ablation:bert,ltr_no_nsp',
    ),
    small.row(
      BILSTM,
      (91.6, 75.7, NONE, NONE, 84.9, NONE, NONE),
      'ablation:bert,ltr_no_nsp',
      overrides={'task.bilstm_layers': 2} | small.BILSTM,
    ),
    small.row(UNTRAINED, (NONE,) * 7, 'ablation:bert,untrained'),
    small.word_row(WORDS, 7),
  ),
)
