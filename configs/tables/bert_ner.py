r"""Devlin et al. 2018 (v1), Table 3: entities of CoNLL-2003.

The paper chose the hyper-parameters on dev; ours too, among the 12 settings of
appendix A.3, each with every seed. Set --config.optim.learning_rate=5e-5
--config.train.global_batch=16 --config.train.num_epochs=3.0 to run one setting.
The model is cased.

  python -m train.tables --table bert/ner --data conll2003 \
    --weights BERT-Base=google-bert/bert-base-cased
"""

from configs.tables import base
from configs.tables.base import Row

TABLE = base.Table(
  id='bert/ner',
  title=(
    'CoNLL-2003 NER (entity F1; hyper-parameters chosen on dev, mean over 5'
    ' random restarts)'
  ),
  source='Devlin et al. 2018 (v1), Table 3',
  columns=(
    base.on_dev('ner_conll2003_dev/f1', 'conll2003', 'f1'),
    base.on_test('ner_conll2003_test/f1', 'conll2003', 'f1'),
  ),
  grids={'bert': base.PAPER_GRID},
  tells=(
    *base.PAPER_GRID,
    'task.document_context',
    'task.max_length',
    'train.select',
    'task.word_vectors',
  ),
  notes=(
    "A BERT's rate, batch and epochs are the best on dev of those that"
    ' appendix A.3 names, by the mean over the seeds, unless its settings say'
    ' otherwise.',
    base.NER_NOTE,
    base.VECTORS_NOTE,
  ),
  rows=(
    Row(
      'ELMo+BiLSTM+CRF',
      (95.7, 92.2),
      models=base.models_of('conll2003'),
      **base.ELMO,
    ),
    Row('CVT+Multi', ('', 92.6)),
    Row('BERT-Base', (96.4, 92.4), **base.CASED_BASE),
    Row('BERT-Large', (96.6, 92.8), **base.CASED_LARGE),
  ),
)
