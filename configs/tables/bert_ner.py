r"""Devlin et al. 2018 (v1), Table 3: entities of CoNLL-2003.

The paper chose the hyper-parameters on dev; the model is a cased one.

  python -m train.tables --table bert/ner --data conll2003 \
    --weights BERT-Base=google-bert/bert-base-cased
"""

from configs.tables import base
from configs.tables.base import Row


def get_table() -> base.Table:
  """Returns the table."""
  return base.Table(
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
    rows=(
      Row('ELMo+BiLSTM+CRF', (95.7, 92.2), run=True, missing=base.NEEDS_ELMO),
      Row('CVT+Multi', ('', 92.6)),
      Row(
        'BERT-Base',
        (96.4, 92.4),
        run=True,
        family='bert',
        needs=base.CASED_BASE,
      ),
      Row(
        'BERT-Large',
        (96.6, 92.8),
        run=True,
        family='bert',
        needs=base.CASED_LARGE,
      ),
    ),
  )
