r"""Zorro: published masked models, and models of yours, by paradigm.

python -m train.tables --table lm/zorro --data sets --weights GPT=runs/gpt \
    --weights BERT=runs/bert --weights 5-gram=books.arpa
"""

from configs.tables import base
from configs.tables.lm_blimp import NOTES

TABLE = base.Table(
  id='lm/zorro',
  title="Zorro: minimal pairs in a child's vocabulary",
  source=(
    'Huebner et al. 2021 (github.com/phueb/UnMasked, results/zorro.csv; means'
    ' of its runs; github.com/phueb/Zorro, reference scores of RoBERTa-base)'
  ),
  columns=(),
  rows=(),
  maker='pair_table',
  notes=NOTES,
)
