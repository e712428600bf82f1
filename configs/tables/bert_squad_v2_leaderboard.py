r"""Systems on the leaderboard of SQuAD 2.0, context for a no-answer head.

All rows are quoted; a user's own weights stand below them, scored on dev.

  python -m train.tables --table bert/squad_v2_leaderboard --data squad \
    --weights google-bert/bert-large-uncased
"""

from configs.tables import base
from configs.tables.base import Row

TABLE = base.Table(
  id='bert/squad_v2_leaderboard',
  title=(
    'SQuAD 2.0 leaderboard, March-May 2019 (context for the no-answer span'
    ' head)'
  ),
  source='SQuAD 2.0 leaderboard as lectured in June 2019',
  columns=(
    base.dev_for_test('squad_v2_test/em', 'squad2', 'em'),
    base.dev_for_test('squad_v2_test/f1', 'squad2', 'f1'),
  ),
  rows=(
    Row('Human', (86.831, 89.452)),
    Row('BERT + DAE + AoA (ensemble)', (87.147, 89.474)),
    Row('BERT + ConvLSTM + MTL + Verifier (ensemble)', (86.730, 89.286)),
    Row(
      'BERT + N-Gram Masking + Synthetic Self-Training (ensemble)',
      (86.673, 89.147),
    ),
    Row('XLNet (single)', (86.346, 89.133)),
    Row('SemBERT (ensemble)', (86.166, 88.886)),
  ),
)
