r"""google-research/bert, multilingual.md: XNLI's Chinese, trained on Chinese.

The training set is MultiNLI as XNLI's authors translated it by machine. The
release's recipe: batch 32, rate 5e-5, 2 epochs, 128 tokens.

  python -m train.tables --table multilingual/chinese --data sets \
    --weights 'BERT Chinese only=google-bert/bert-base-chinese'
"""

from configs.tables import base
from configs.tables.base import Row

TABLE = base.Table(
  id='multilingual/chinese',
  title='XNLI in Chinese, trained on the translated set (test accuracy)',
  source='google-research/bert, multilingual.md',
  columns=(base.on_test('xnli_zh/accuracy', 'xnli_zh', 'accuracy'),),
  seeds=1,
  notes=('The source names no number of runs; ours is one, without --seeds.',),
  rows=(
    Row('XNLI baseline', (67.0,)),
    Row('BERT multilingual', (74.2,), **base.MULTILINGUAL),
    Row(
      'BERT Chinese only',
      (77.2,),
      family='bert',
      needs='BERT-Base, Chinese, such as google-bert/bert-base-chinese',
    ),
  ),
)
