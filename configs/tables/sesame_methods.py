r"""Methods from before BERT beside BERT, from the same text, on four tasks.

Rows are drawn vectors, those of word2vec and of GloVe, and ELMo's layers, all
read by ELMo's task models; GPT and BERT are fine-tuned. One row has published
vectors of GloVe, of a far larger text, VECTORS. With the models' workdirs:

  python -m train.tables --table sesame/methods --data DIR \
    --weights word2vec=runs/word2vec/vectors.txt \
    --weights GloVe=runs/glove/vectors.txt --weights ELMo=runs/elmo \
    --weights 'GloVe, published=VECTORS' \
    --weights 'GPT, fine-tuned=runs/gpt' --weights 'BERT, fine-tuned=runs/bert'
"""

import dataclasses

from configs.tables import base, sesame_elmo
from configs.tables.base import Column, Part, Row

# Set by set, less of them where all would take hours on two CPU cores.
LIMITS = {'scitail': 5_000, 'panx_en': 10_000}
METRICS = {
  'sst5': ('dev/accuracy', 'test/accuracy'),
  'scitail': ('dev/accuracy',),  # test has no labels
  'panx_en': ('dev/f1',),  # test has no tags
  'stsb': ('dev/spearman', 'dev/pearson'),
}
MODELS = {
  task: dataclasses.replace(sesame_elmo.MODELS[of], overrides=recipe)
  for task, of, recipe in (
    ('sst5', 'sst5', sesame_elmo.SST5),
    ('scitail', 'scitail', sesame_elmo.SCITAIL),
    ('panx_en', 'panx_en', sesame_elmo.PANX),
    ('stsb', 'mrpc', sesame_elmo.MRPC),
  )
}
TUNED = {
  'optim.learning_rate': 2e-4,
  'train.global_batch': 32,
  'train.num_epochs': 3.0,
  'task.max_length': 64,
}


def _column(task: str, metric: str) -> Column:
  limit = LIMITS.get(task)
  overrides = {} if limit is None else {'data.train_limit': limit}
  name = f'{task}/{metric}'.replace('/dev/', '/').replace('/test/', '_test/')
  return Column(name, (Part(task, (metric,), overrides=overrides),))


COLUMNS = tuple(
  _column(task, metric) for task, found in METRICS.items() for metric in found
)
NOTHING = ('',) * len(COLUMNS)


def _tuned(name: str, family: str, needs: str) -> Row:
  return Row(name, NOTHING, family=family, needs=needs, overrides=TUNED)


ELMO = Row(
  'ELMo',
  NOTHING,
  overrides={'task.mix_at': 'input', 'task.word_dim': 0},
  models=MODELS,
  **base.ELMO,
)
TABLE = base.Table(
  id='sesame/methods',
  title='Methods before BERT beside BERT (dev but where it says)',
  source='ours; no published figures',
  columns=COLUMNS,
  seeds=3,
  tells=base.WORD_TELLS,
  rows=(
    Row('drawn vectors', NOTHING, models=MODELS, **base.DRAWN),
    Row('word2vec', NOTHING, models=MODELS, **base.GLOVE),
    Row('GloVe', NOTHING, models=MODELS, **base.GLOVE),
    Row('GloVe, published', NOTHING, models=MODELS, **base.GLOVE),
    ELMO,
    _tuned('GPT, fine-tuned', 'gpt', 'a GPT, such as the workdir of gpt_mini'),
    _tuned('BERT, fine-tuned', 'bert', 'a BERT, such as that of bert_mini'),
  ),
)
