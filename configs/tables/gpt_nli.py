r"""Radford et al. 2018, Table 2: natural language inference.

The paper's recipe: batch 32, rate 6.25e-5, 3 epochs, auxiliary loss 0.5.

  python -m train.tables --table gpt/nli --data sets \
    --weights 'Finetuned Transformer LM=openai-community/openai-gpt'
"""

from configs.tables import base
from configs.tables.base import Row

ESIM = 'ESIM + ELMo (5x)'
TABLE = base.Table(
  id='gpt/nli',
  title='Natural language inference (accuracy, test set)',
  source='Radford et al. 2018, Table 2',
  columns=(
    base.MNLI_MATCHED,
    base.MNLI_MISMATCHED,
    base.on_test('snli/accuracy', 'snli', 'accuracy'),
    base.on_test('scitail/accuracy', 'scitail', 'accuracy'),
    base.QNLI,
    base.RTE,
  ),
  tells=base.WORD_TELLS,
  notes=(
    base.QNLI_NOTE,
    f'{ESIM} is published as an ensemble of five; ours is the mean of single'
    ' models. Several workdirs answer together by train.predict.',
    base.VECTORS_NOTE,
  ),
  rows=(
    Row(
      ESIM,
      ('', '', 89.3, '', '', ''),
      models=base.models_of('snli'),
      **base.ELMO,
    ),
    Row('CAFE (5x)', (80.2, 79.0, 89.3, '', '', '')),
    Row('Stochastic Answer Network (3x)', (80.6, 80.1, '', '', '', '')),
    Row('CAFE', (78.7, 77.9, 88.5, 83.3, '', '')),
    Row('GenSen', (71.4, 71.3, '', '', 82.3, 59.2)),
    Row('Multi-task BiLSTM + Attn', (72.2, 72.1, '', '', 82.1, 61.7)),
    Row(
      'Finetuned Transformer LM',
      (82.1, 81.4, 89.9, 88.3, 88.1, 56.0),
      **base.GPT,
    ),
  ),
)
