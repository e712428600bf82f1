r"""Peters et al. 2018, Table 1: ELMo in the systems of six tasks.

A user's own weights, of any family, are read by the same task models.

  python -m train.tables --table elmo/main --data sets \
    --weights 'Baseline without ELMo=glove.txt' \
    --weights 'ELMo + baseline=runs/elmo' --config.task.word_vectors=glove.txt
"""

from configs.tables import base
from configs.tables.base import Row

BASELINE = 'Baseline without ELMo'
WITH_ELMO = 'ELMo + baseline'
MODELS = base.models_of(
  'squad1', 'snli', 'srl', 'coref', 'conll2003', 'sst5_phrases'
)

TABLE = base.Table(
  id='elmo/main',
  title='ELMo on six tasks (test set)',
  source='Peters et al. 2018, Table 1',
  columns=(
    base.dev_for_test('squad_v1.1/f1', 'squad1', 'f1'),
    base.on_test('snli/accuracy', 'snli', 'accuracy'),
    base.on_test('srl_ontonotes/f1', 'srl', 'f1'),
    base.on_test('coref_ontonotes/avg_f1', 'coref', 'average_f1'),
    base.on_test('ner_conll2003/f1', 'conll2003', 'f1'),
    base.on_test('sst5/accuracy', 'sst5_phrases', 'accuracy'),
  ),
  repeated=(WITH_ELMO,),
  tells=base.WORD_TELLS,
  notes=(
    base.VECTORS_NOTE,
    'Ours of SST-5 is trained on all phrases of its trees.',
  ),
  rows=(
    Row('Previous SOTA', (84.4, 88.6, 81.7, 67.2, '91.93±0.19', 53.7)),
    Row(
      BASELINE,
      (81.1, 88.0, 81.4, 67.2, 90.15, 51.4),
      models=MODELS,
      **base.GLOVE,
    ),
    Row(
      WITH_ELMO,
      (85.8, '88.7±0.17', 84.6, 70.4, '92.22±0.10', '54.7±0.5'),
      models=MODELS,
      **base.ELMO,
    ),
    Row(
      'Increase (absolute / relative error reduction)',
      (
        '4.7 / 24.9%',
        '0.7 / 5.8%',
        '3.2 / 17.2%',
        '3.2 / 9.8%',
        '2.06 / 21%',
        '3.3 / 6.8%',
      ),
      increase=(BASELINE, WITH_ELMO),
    ),
  ),
)
