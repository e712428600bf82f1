r"""BLiMP: published systems, and models of yours, by paradigm.

python -m train.tables --table lm/blimp --data sets --weights GPT=runs/gpt \
    --weights BERT=runs/bert --weights 5-gram=books.arpa
"""

from configs.tables import base

NOTES = (
  'A pair is right where the good sentence has the higher score; a tie is'
  ' wrong. Figures are per cent of pairs, means over paradigms.',
  'Ways of scoring do not compare: a masked model has both neighbours of a'
  ' word in sight, and a mean over pieces favours other sentences than a sum.',
)
TABLE = base.Table(
  id='lm/blimp',
  title='BLiMP: does a model prefer the acceptable sentence?',
  source=(
    'Warstadt et al. 2020 (github.com/alexwarstadt/blimp, models_summary.jsonl'
    ' and human_validation_summary.csv, as corrected in 2021); Huebner et al.'
    ' 2021 (github.com/phueb/UnMasked, results/blimp.csv; means of its runs)'
  ),
  columns=(),
  rows=(),
  maker='pair_table',
  notes=NOTES,
)
