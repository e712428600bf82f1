r"""Peters et al. 2018, Figure 1: dev scores by the share of the training set.

Each of a user's weights, a language model or vectors of words alone, has a row
for each share and a curve in the figure, a PNG beside the table:

  python -m train.tables --table elmo/sample_efficiency --data sets \
    --weights ELMo=runs/elmo --weights 'without ELMo=glove.txt' \
    --config.task.word_vectors=glove.txt --seeds 2
"""

from configs.tables import base
from configs.tables.base import Row

# The paper's range in steps of half a decade, which are ours.
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# A column and a task model for each task; SciTail and the English Web Treebank
# are ours.
COLUMNS = (
  base.on_dev('snli/accuracy', 'snli', 'accuracy'),
  base.on_dev('scitail/accuracy', 'scitail', 'accuracy'),
  base.on_dev('srl_ontonotes/f1', 'srl', 'f1'),
  base.on_dev('srl_ewt/f1', 'srl_ewt', 'f1'),
)
MODELS = base.models_of('snli', 'srl') | {
  'scitail': base.ELMO_MODELS['snli'],
  'srl_ewt': base.ELMO_MODELS['srl'],
}
NAMES = tuple(f'{100 * share:g} %' for share in SHARES)

TABLE = base.Table(
  id='elmo/sample_efficiency',
  title='Scores on dev by the share of the training set',
  source=(
    'Peters et al. 2018, Figure 1 (SNLI and SRL); it prints no figures: ELMo'
    ' gains most where examples are few, and SRL with ELMo scores at 1 % about'
    ' as the baseline does at 10 %'
  ),
  columns=COLUMNS,
  repeated=NAMES,
  tells=base.WORD_TELLS,
  notes=(
    base.VECTORS_NOTE,
    "A share is of the task's official number of training examples, of"
    " OntoNotes' roles of those in the files; they are taken evenly spaced."
    ' Epochs and patience are those of the whole set, so a small share has few'
    ' steps.',
    'SciTail and the English Web Treebank are not in the paper: ours, by the'
    ' models of SNLI and OntoNotes.',
  ),
  rows=tuple(
    Row(name, ('',) * len(COLUMNS), models=MODELS, share=share)
    for name, share in zip(NAMES, SHARES, strict=True)
  ),
)
