r"""Devlin et al. 2018, Table 2: SQuAD v1.1.

The released commands of single systems: Base with batch 12, Large with 24, rate
3e-5, 2 epochs; the paper: batch 32, 5e-5, 3 epochs.

  python -m train.tables --table bert/squad --data squad \
    --weights 'BERT-Base (Single)=google-bert/bert-base-uncased'
"""

from configs.tables import base
from configs.tables.base import Column, Row

ENSEMBLE = (
  'is an ensemble of 7 systems from different pre-training checkpoints, and a'
  ' cell here is of single ones'
)
TRIVIA_FIRST = (
  "BERT-Large fine-tuned on TriviaQA for an epoch first: that run's workdir"
  ' (python -m train.main --config transfer:task=triviaqa,recipe=bert)'
)

TABLE = base.Table(
  id='bert/squad',
  title=(
    'SQuAD v1.1 (dev EM, dev F1, test EM, test F1); the ensemble is 7 systems'
    ' with different pre-training checkpoints and fine-tuning seeds'
  ),
  source='Devlin et al. 2018, Table 2',
  columns=(
    base.on_dev('squad_v1.1_dev/em', 'squad1', 'em'),
    base.on_dev('squad_v1.1_dev/f1', 'squad1', 'f1'),
    Column('squad_v1.1_test/em', missing=base.TEST_IS_HIDDEN),
    Column('squad_v1.1_test/f1', missing=base.TEST_IS_HIDDEN),
  ),
  rows=(
    Row('Human', ('', '', 82.3, 91.2)),
    Row('#1 Ensemble - nlnet', ('', '', 86.0, 91.7)),
    Row('#2 Ensemble - QANet', ('', '', 84.5, 90.5)),
    Row('#1 Single - nlnet', ('', '', 83.5, 90.1)),
    Row('#2 Single - QANet', ('', '', 82.5, 89.3)),
    Row(
      'BiDAF+ELMo (Single)',
      ('', 85.8, '', ''),
      models=base.models_of('squad1'),
      **base.ELMO,
    ),
    Row('R.M. Reader (Single)', (78.9, 86.3, 79.5, 86.6)),
    Row('R.M. Reader (Ensemble)', (81.2, 87.9, 82.3, 88.5)),
    Row('BERT-Base (Single)', (80.8, 88.5, '', ''), **base.BERT_BASE),
    Row('BERT-Large (Single)', (84.1, 90.9, '', ''), **base.BERT_LARGE),
    Row('BERT-Large (Ensemble)', (85.8, 91.8, '', ''), missing=ENSEMBLE),
    Row(
      'BERT-Large (Single + TriviaQA)',
      (84.2, 91.1, 85.1, 91.8),
      family='bert',
      needs=TRIVIA_FIRST,
    ),
    Row(
      'BERT-Large (Ensemble + TriviaQA)',
      (86.2, 92.2, 87.4, 93.2),
      missing=ENSEMBLE,
    ),
  ),
)
