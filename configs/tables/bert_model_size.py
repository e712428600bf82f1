r"""Devlin et al. 2018, Table 6: effect of model size.

Each row needs weights of its size; the perplexity is of their held-out text.

  python -m train.tables --table bert/model_size --data glue \
    --weights 'L12 H768 A12=runs/bert_base'
"""

from configs.tables import base
from configs.tables.base import Column, Part, Row


def _row(layers: int, width: int, heads: int, *values: float) -> Row:
  name = f'L{layers} H{width} A{heads}'
  shipped = {(12, 768): 'bert_base', (24, 1024): 'bert_large'}.get(
    (layers, width), f'bert_base:bert-{name.lower().replace(" ", "-")}'
  )
  return Row(
    name,
    (layers, width, heads, *values),
    family='bert',
    needs=f'a BERT of this size, pre-trained with --config {shipped}',
  )


TABLE = base.Table(
  id='bert/model_size',
  title=(
    'Effect of model size (held-out masked-LM perplexity; dev accuracy'
    ' averaged over 5 restarts)'
  ),
  source='Devlin et al. 2018, Table 6',
  columns=(
    Column('layers'),
    Column('hidden'),
    Column('heads'),
    Column(
      'mlm/ppl',
      (Part(base.PRETRAINING, ('eval/mlm_perplexity',)),),
      percent=False,
    ),
    base.on_dev('mnli_matched/accuracy', 'mnli', 'accuracy'),
    base.on_dev('mrpc/accuracy', 'mrpc', 'accuracy'),
    base.on_dev('sst2/accuracy', 'sst2', 'accuracy'),
  ),
  notes=(base.ONE_RATE_NOTE,),
  rows=(
    _row(3, 768, 12, 5.84, 77.9, 79.8, 88.4),
    _row(6, 768, 3, 5.24, 80.6, 82.2, 90.7),
    _row(6, 768, 12, 4.68, 81.9, 84.8, 91.3),
    _row(12, 768, 12, 3.99, 84.4, 86.7, 92.9),
    _row(12, 1024, 16, 3.54, 85.7, 86.9, 93.3),
    _row(24, 1024, 16, 3.23, 86.6, 87.8, 93.7),
  ),
)
