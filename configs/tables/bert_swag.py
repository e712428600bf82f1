r"""Devlin et al. 2018, Table 4: SWAG.

The paper's recipe: batch 16, rate 2e-5, 3 epochs.

  python -m train.tables --table bert/swag --data swag \
    --weights BERT-Base=google-bert/bert-base-uncased
"""

from configs.tables import base
from configs.tables.base import Column, Row

MODELS = base.models_of('swag')
TABLE = base.Table(
  id='bert/swag',
  title='SWAG (accuracy)',
  source='Devlin et al. 2018, Table 4',
  columns=(
    base.on_dev('swag_dev/accuracy', 'swag', 'accuracy'),
    Column('swag_test/accuracy', missing=base.TEST_IS_HIDDEN),
  ),
  tells=base.WORD_TELLS,
  notes=(base.VECTORS_NOTE,),
  rows=(
    Row('ESIM+GloVe', (51.9, 52.7), models=MODELS, **base.GLOVE),
    Row('ESIM+ELMo', (59.1, 59.2), models=MODELS, **base.ELMO),
    Row('BERT-Base', (81.6, ''), **base.BERT_BASE),
    Row('BERT-Large', (86.6, 86.3), **base.BERT_LARGE),
    Row('Human (expert)', ('', 85.0)),
    Row('Human (5 annotations)', ('', 88.0)),
  ),
)
