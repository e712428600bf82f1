r"""Radford et al. 2018, Table 3: questions and common sense.

The paper's recipe is that of gpt/nli; RACE's test set is scored in two parts.

  python -m train.tables --table gpt/qa --data sets \
    --weights 'Finetuned Transformer LM=openai-community/openai-gpt'
"""

from configs.tables import base
from configs.tables.base import Row

TABLE = base.Table(
  id='gpt/qa',
  title=('Question answering and commonsense reasoning (accuracy, test set)'),
  source='Radford et al. 2018, Table 3',
  columns=(
    base.on_test('story_cloze/accuracy', 'story_cloze', 'accuracy'),
    base.on_test('race_middle/accuracy', 'race', 'accuracy/middle'),
    base.on_test('race_high/accuracy', 'race', 'accuracy/high'),
    base.on_test('race/accuracy', 'race', 'accuracy'),
  ),
  notes=('RACE is one run: middle and high are parts of its test set.',),
  rows=(
    Row('val-LS-skip', (76.5, '', '', '')),
    Row('Hidden Coherence Model', (77.6, '', '', '')),
    Row('Dynamic Fusion Net (9x)', ('', 55.6, 49.4, 51.2)),
    Row('BiAttention MRU (9x)', ('', 60.2, 50.3, 53.3)),
    Row('Finetuned Transformer LM', (86.5, 62.9, 57.4, 59.0), **base.GPT),
  ),
)
