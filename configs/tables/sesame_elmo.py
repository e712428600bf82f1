r"""ELMo's task models beside AllenNLP's, from the same vectors and batches.

results/elmo_reference.json records AllenNLP 0.9.0's models on PyTorch
(tests/bench/task_models.py) by the same recipes, first vectors of words,
batches and seeds. Each row stands beside its own row there.

  python -m train.tables --table sesame/elmo --data DIR \
    --weights 'GloVe 50d=VECTORS' \
    --weights 'GloVe + ELMo at the input=runs/elmo' \
    --weights 'GloVe + ELMo at both=runs/elmo' \
    --config.task.word_vectors=VECTORS
"""

from typing import Any

from configs.tables import base
from configs.tables.base import Column, Part, Row, TaskModel

# Sizes and lengths of training, small enough for two CPU cores. Where they are
# silent, those of `variants.WORD_MODELS` hold.
RECIPE = {
  'model.lstm_dim': 64,
  'model.hidden_dim': 64,
  'model.dropout_rate': 0.2,
  'task.word_dim': 50,  # of drawn vectors, as GloVe's
  'task.lower_words': True,  # as GloVe's
  'task.max_length': 64,
  'train.global_batch': 64,
  'train.num_epochs': 6.0,
  'optim.learning_rate': 1e-3,
}
SST5 = RECIPE
SCITAIL = RECIPE | {'train.num_epochs': 4.0, 'data.train_limit': 5_000}
PANX = RECIPE | {
  'model.filters': ((3, 64),),
  'train.num_epochs': 4.0,
  'data.train_limit': 10_000,
}
MRPC = RECIPE | {'task.mix_dropout': 0.0}
MODELS = {
  'sst5': TaskModel('bcn'),
  'scitail': TaskModel('esim'),
  'panx_en': TaskModel('bilstm_crf'),
  'mrpc': TaskModel('bilstm_attention'),
}


def _columns(task: str, recipe: dict[str, Any], *metrics: str) -> list[Column]:
  return [
    Column(
      f'{task}/{metric}'.replace('/dev/', '/').replace('/test/', '_test/'),
      (Part(task, (metric,), overrides=recipe),),
    )
    for metric in metrics
  ]


COLUMNS = (
  *_columns('sst5', SST5, 'dev/accuracy', 'test/accuracy'),
  *_columns('scitail', SCITAIL, 'dev/accuracy'),  # test has no labels
  *_columns('panx_en', PANX, 'dev/f1'),  # test has no tags
  *_columns('mrpc', MRPC, 'dev/f1', 'dev/accuracy'),
)
NOTHING = ('',) * len(COLUMNS)


def _elmo(name: str, place: str) -> Row:
  return Row(
    name,
    NOTHING,
    overrides={'task.mix_at': place},
    models=MODELS,
    requires=('task.word_vectors',),
    reference=f'vectors+language_model@{place}',
    **base.ELMO,
  )


AT_INPUT = _elmo('GloVe + ELMo at the input', 'input')
AT_BOTH = _elmo('GloVe + ELMo at both', 'both')
TABLE = base.Table(
  id='sesame/elmo',
  title="ELMo's task models beside AllenNLP's (dev but where it says)",
  source='results/elmo_reference.json',
  columns=COLUMNS,
  reference='results/elmo_reference.json',
  seeds=3,
  tells=base.WORD_TELLS,
  notes=(
    'Two means agree if they differ by no more than twice the standard error of'
    ' their difference, or than half a point.',
  ),
  rows=(
    Row('AllenNLP 0.9.0', NOTHING),
    Row(
      'Drawn vectors', NOTHING, models=MODELS, reference='drawn', **base.DRAWN
    ),
    Row('GloVe 50d', NOTHING, models=MODELS, reference='vectors', **base.GLOVE),
    AT_INPUT,
    AT_BOTH,
  ),
  repeated=(AT_INPUT.name, AT_BOTH.name),
)
