"""What the tables of small pre-trainings share: judges, recipe, notes.

Such a table pre-trains its rows (`configs/ablation.py`), fine-tunes them,
and tells of each of the paper's arguments whether it holds at this size.
"""

from typing import Any

from configs.tables.base import Column, Part, Row

# One recipe for all rows, chosen beforehand: what fine-tunes a model of two
# layers of 128 (Turc et al. 2019 try 3e-5 to 3e-4 for them).
RECIPE = {
  'optim.learning_rate': 3e-4,
  'train.global_batch': 32,
  'train.num_epochs': 3.0,
  'train.count': 'rows',
  'train.select': 'last',
  'task.max_length': 64,
  'data.train_limit': 8_000,
}
SQUAD = RECIPE | {'task.max_length': 256, 'train.num_epochs': 2.0}


def _judge(task: str, metric: str, recipe: dict[str, Any] = RECIPE) -> Column:
  part = Part(task, (f'dev/{metric}',), ('recipe=corrected',), recipe)
  return Column(f'{task}/{metric}', (part,))


SST2 = _judge('sst2', 'accuracy')
MRPC = _judge('mrpc', 'accuracy')
STSB = _judge('stsb', 'spearman')
COLA = _judge('cola', 'matthews')
SQUAD1 = _judge('squad1', 'f1', SQUAD)
PANX = _judge('panx_en', 'f1')
BLIMP = Column('blimp', pairs='blimp')
SENTENCES = (SST2, MRPC, STSB, COLA)
NOTES = (
  'Every row is pre-trained by this table on the same books with the same'
  ' budget (configs/ablation.py), and fine-tuned by one recipe at one rate,'
  ' chosen before any figure was seen. Published figures are of models a'
  ' hundred times larger; only the signs of differences compare.',
  'Ours: mean and standard deviation over all fine-tunings. An interval is of'
  ' 95 %, by the deviation between pre-trainings, pooled over the rows, each'
  ' pre-training being the mean of its fine-tunings.',
)


def row(
  name: str,
  values: tuple[float | str, ...],
  pretraining: str,
  **fields: Any,
) -> Row:
  """Returns a row whose weights come of a pre-training by a config."""
  words = pretraining.partition(':')[2]
  family = words.partition(',')[0]
  return Row(
    name,
    values,
    family=family,
    needs=f'the pre-training {pretraining}',
    pretraining=pretraining,
    **fields,
  )
