r"""Radford et al. 2018, Table 4: similarity and classification.

The paper's recipe is that of gpt/nli; STS-B is read in both orders.

  python -m train.tables --table gpt/similarity_classification --data glue \
    --weights 'Finetuned Transformer LM=openai-community/openai-gpt'
"""

from configs.tables import base
from configs.tables.base import Column, Part, Row

# Mean over nine tasks of the mean of their metrics (Wang et al. 2018, sec. 5).
GLUE = Column(
  'glue/score',
  (
    Part('cola', ('dev/matthews',)),
    Part('sst2', ('dev/accuracy',)),
    Part('mrpc', ('dev/f1', 'dev/accuracy')),
    Part('stsb', ('dev/pearson', 'dev/spearman')),
    Part('qqp', ('dev/f1', 'dev/accuracy')),
    Part('mnli', ('dev/accuracy', 'dev_mismatched/accuracy')),
    Part('qnli', ('dev/accuracy',)),
    Part('rte', ('dev/accuracy',)),
    Part('wnli', ('dev/accuracy',)),
  ),
  dev_for_test=True,
)

TABLE = base.Table(
  id='gpt/similarity_classification',
  title='Semantic similarity and classification (GLUE test server)',
  source='Radford et al. 2018, Table 4',
  columns=(
    base.COLA,
    base.SST2,
    base.MRPC_F1,
    base.STSB_PEARSON,
    base.QQP_F1,
    GLUE,
  ),
  notes=(base.QNLI_NOTE,),
  rows=(
    Row('Sparse byte mLSTM', ('', 93.2, '', '', '', '')),
    Row('TF-KLD', ('', '', 86.0, '', '', '')),
    Row('ECNU (mixed ensemble)', ('', '', '', 81.0, '', '')),
    Row(
      'Single-task BiLSTM + ELMo + Attn',
      (35.0, 90.2, 80.2, 55.5, 66.1, 64.8),
      models=base.GLUE_MODELS,
      **base.ELMO,
    ),
    Row(
      'Multi-task BiLSTM + ELMo + Attn',
      (18.9, 91.6, 83.5, 72.8, 63.3, 68.9),
      models=base.GLUE_MODELS,
      together=base.GLUE,
      **base.ELMO,
    ),
    Row(
      'Finetuned Transformer LM',
      (45.4, 91.3, 82.3, 82.0, 70.3, 72.8),
      **base.GPT,
    ),
  ),
)
