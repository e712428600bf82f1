"""Radford et al. 2018, Table 5: effect of pre-training and auxiliary loss.

A user's own weights are run with and without the auxiliary loss.

  python -m train.tables --table gpt/ablation --data glue --weights runs/gpt
"""

from configs.tables import base
from configs.tables.base import Row

FULL = 'Transformer w/ aux LM (full)'
UNTRAINED = 'Transformer w/o pre-training'
NO_LOSS = 'Transformer w/o aux LM'
SINGLE = (
  base.COLA,
  base.SST2,
  base.MRPC_F1,
  base.STSB_PEARSON,
  base.QQP_F1,
  base.MNLI_MEAN,
  base.QNLI,
  base.RTE,
)

TABLE = base.Table(
  id='gpt/ablation',
  title=(
    'Ablations (the full-model row repeats the test-server figures of gpt/nli'
    ' and gpt/similarity_classification; MNLI is the mean of matched and'
    ' mismatched; the average is unweighted)'
  ),
  source='Radford et al. 2018, Table 5',
  columns=(base.mean_of('average', SINGLE), *SINGLE),
  notes=(base.QNLI_NOTE,),
  repeated=(FULL, NO_LOSS),
  rows=(
    Row(
      FULL, (74.7, 45.4, 91.3, 82.3, 82.0, 70.3, 81.8, 88.1, 56.0), **base.GPT
    ),
    Row(
      UNTRAINED,
      (59.9, 18.9, 84.0, 79.4, 30.9, 65.5, 75.7, 71.2, 53.8),
      family='gpt',
      needs=f'{base.GPT["needs"]}, of which only the vocabulary is taken',
      untrained='gpt',
    ),
    Row(
      NO_LOSS,
      (75.0, 47.9, 92.0, 84.9, 83.2, 69.8, 81.1, 86.9, 54.4),
      **base.GPT,
      overrides={'task.lm_weight': 0.0},
    ),
    Row(
      'LSTM w/ aux LM',
      (69.1, 30.3, 90.5, 83.2, 71.8, 68.1, 73.7, 81.1, 54.6),
      family='lstm',
      needs='an LSTM of 2048 units pre-trained with --config gpt:lstm',
    ),
  ),
)
