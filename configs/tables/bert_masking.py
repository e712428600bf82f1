r"""Devlin et al. 2019 (v2), Appendix C.2, Table 8: masking strategies.

Each row needs weights of its own pre-training. The feature-based column
concatenates the last four layers, as in the appendix.

  python -m train.tables --table bert/masking --data sets \
    --weights '80 / 10 / 10=runs/bert_base'
"""

from configs.tables import base
from configs.tables.base import Column, Part, Row


def _row(mask: int, same: int, random: int, *values: float) -> Row:
  shares = f'mask={mask}/{same}/{random}'
  return Row(
    f'{mask} / {same} / {random}',
    values,
    family='bert',
    needs=f'BERT-Base pre-trained with --config bert_base:{shares}',
  )


TABLE = base.Table(
  id='bert/masking',
  title=(
    'Masking strategies during pre-training: share of [MASK] / same / random'
    ' (dev)'
  ),
  source='Devlin et al. 2019 (v2), Appendix C.2, Table 8',
  columns=(
    base.on_dev('mnli/accuracy', 'mnli', 'accuracy'),
    base.on_dev('ner_conll2003_finetuned/f1', 'conll2003', 'f1'),
    Column(
      'ner_conll2003_feature_based/f1',
      (
        Part(
          'conll2003',
          ('dev/f1',),
          label='feature_based',
          **base.frozen('concat_last_4'),
        ),
      ),
    ),
  ),
  notes=(
    base.ONE_RATE_NOTE,
    base.NER_NOTE,
    'Which dev set of MNLI was scored is not published; ours: matched.',
  ),
  rows=(
    _row(80, 10, 10, 84.2, 95.4, 94.9),
    _row(100, 0, 0, 84.3, 94.9, 94.0),
    _row(80, 0, 20, 84.1, 95.2, 94.6),
    _row(80, 20, 0, 84.4, 95.2, 94.7),
    _row(0, 20, 80, 83.7, 94.8, 94.6),
    _row(0, 0, 100, 83.6, 94.9, 94.6),
  ),
)
