r"""google-research/bert, README: BERT-Large that masks whole words.

In pre-training all pieces of a word are masked at once, at the same rate of
tokens; the rest is as in BERT-Large. `bert_large:whole_word` is the config.

  python -m train.tables --table bert/whole_word --data sets \
    --weights 'Large uncased, whole word=WEIGHTS'
"""

from configs.tables import base
from configs.tables.base import Row


def _row(name: str, *values: float) -> Row:
  case = 'cased' if ' cased' in name else 'uncased'
  needs = f'google-bert/bert-large-{case}'
  if name.endswith('word'):
    needs += '-whole-word-masking, or the workdir of bert_large:whole_word'
  return Row(name, values, family='bert', needs=needs)


TABLE = base.Table(
  id='bert/whole_word',
  title='Whole-word masking, BERT-Large (SQuAD 1.1 dev F1, EM, MNLI accuracy)',
  source='google-research/bert @ eedf5716 : README.md',
  columns=(
    base.on_dev('squad_v1.1/f1', 'squad1', 'f1'),
    base.on_dev('squad_v1.1/em', 'squad1', 'em'),
    base.on_dev('mnli/accuracy', 'mnli', 'accuracy'),
  ),
  notes=('Which set of MNLI was scored is not published; ours: dev matched.',),
  rows=(
    _row('Large uncased', 91.0, 84.3, 86.05),
    _row('Large uncased, whole word', 92.8, 86.7, 87.07),
    _row('Large cased', 91.5, 84.8, 86.09),
    _row('Large cased, whole word', 92.9, 86.7, 86.46),
  ),
)
