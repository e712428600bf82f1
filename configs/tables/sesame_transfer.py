"""Fine-tuning beside Hugging Face's Trainer, from the same weights.

results/transfer_reference.json records the Trainer with the same weights
(all-MiniLM-L6-v2: 6 layers, width 384), batches, recipe and seeds, except for
wnli, scitail and sst5. The means agree if they differ by no more than half a
point, or than twice the standard error of the difference.

  python -m train.tables --table sesame/transfer --data DIR --weights MiniLM=DIR
"""

from configs.tables import base
from configs.tables.base import Column, Part, Row

# With recipe=stable the same as the recipes of tests/bench/tuning.py.
RECIPE = {
  'optim.learning_rate': 1e-4,
  'train.global_batch': 32,
  'train.num_epochs': 3.0,
  'train.count': 'rows',
  'train.select': 'last',
  'task.max_length': 128,
}
TWO_EPOCHS = RECIPE | {'train.num_epochs': 2.0}
ONE_EPOCH = RECIPE | {'train.num_epochs': 1.0}
LIMITED = ONE_EPOCH | {'data.train_limit': 10_000}
SQUAD = ONE_EPOCH | {  # windows of 384 pieces, 128 apart: the task's default
  'optim.learning_rate': 2e-4,
  'task.max_length': 384,
  'data.train_limit': 8_000,
  'train.micro_batches': 4,  # a quarter of the activations
}


def _columns(
  task: str, recipe: dict, *metrics: str, seeds: int | None = None
) -> list[Column]:
  return [
    Column(
      f'{task}/{metric}'.replace('/dev/', '/').replace('/test/', '_test/'),
      (Part(task, (metric,), ('recipe=stable',), recipe, seeds=seeds),),
    )
    for metric in metrics
  ]


COLUMNS = (
  *_columns('mrpc', RECIPE, 'dev/f1', 'dev/accuracy'),
  *_columns('rte', RECIPE, 'dev/accuracy'),
  *_columns('cola', TWO_EPOCHS, 'dev/matthews'),
  *_columns('stsb', TWO_EPOCHS, 'dev/spearman', 'dev/pearson'),
  *_columns('sst2', LIMITED, 'dev/accuracy'),
  *_columns('wnli', RECIPE, 'dev/accuracy'),
  *_columns('scitail', LIMITED, 'dev/accuracy', seeds=3),
  *_columns('sst5', ONE_EPOCH, 'dev/accuracy', seeds=3),
  *_columns('panx_en', ONE_EPOCH, 'dev/f1'),  # test has no tags
  *_columns('squad1', SQUAD, 'dev/em', 'dev/f1', seeds=2),
)
TABLE = base.Table(
  id='sesame/transfer',
  title="Fine-tuning beside Hugging Face's Trainer (dev but where it says)",
  source='results/transfer_reference.json',
  columns=COLUMNS,
  reference='results/transfer_reference.json',
  rows=(Row('Hugging Face Trainer', ('',) * len(COLUMNS)),),
)
