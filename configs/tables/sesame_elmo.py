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
# Larger models, which share the vectors' form with the others alone.
WORDS = {'task.word_dim': 50, 'task.lower_words': True}
# Eight layers, as published, learn much later: after 50 s on a core their F1 of
# verbs in short sentences was 0.16, that of four at half the batch 0.51.
SRL = WORDS | {
  'model.lstm_dim': 100,
  'model.num_layers': 4,
  'train.global_batch': 40,
  'train.num_epochs': 4.0,
}
COREF = WORDS | {
  'model.lstm_dim': 64,
  'model.hidden_dim': 64,
  'model.char_embed_dim': 16,
  'model.filters': ((5, 50),),
  'optim.schedule': 'constant',  # as AllenNLP's
  'train.num_epochs': 8.0,
}
SQUAD = WORDS | {
  'model.lstm_dim': 50,
  'model.filters': ((5, 50),),
  'train.global_batch': 20,
  'train.num_epochs': 4.0,
  'data.train_limit': 8_000,
  'data.eval_limit': 2_000,
}
MODELS = {
  'sst5': TaskModel('bcn'),
  'scitail': TaskModel('esim'),
  'panx_en': TaskModel('bilstm_crf'),
  'mrpc': TaskModel('bilstm_attention'),
}
# Of the rows of GloVe, alone and with ELMo at the input, where these models
# have it: two seeds each, as a run takes minutes.
STRUCTURED = {
  'srl_ewt': TaskModel('deep_srl', {'model.variant': 'allennlp'}),
  'coref_gum': TaskModel('e2e_coref', {'model.variant': 'allennlp'}),
  'squad1': TaskModel('bidaf'),
}
STRUCTURED_SEEDS = 2


def _columns(
  task: str, recipe: dict[str, Any], *metrics: str, seeds: int | None = None
) -> list[Column]:
  return [
    Column(
      f'{task}/{metric}'.replace('/dev/', '/').replace('/test/', '_test/'),
      (Part(task, (metric,), overrides=recipe, seeds=seeds),),
    )
    for metric in metrics
  ]


def _structured(
  task: str, recipe: dict[str, Any], *metrics: str
) -> list[Column]:
  return _columns(task, recipe, *metrics, seeds=STRUCTURED_SEEDS)


COLUMNS = (
  *_columns('sst5', SST5, 'dev/accuracy', 'test/accuracy'),
  *_columns('scitail', SCITAIL, 'dev/accuracy'),  # test has no labels
  *_columns('panx_en', PANX, 'dev/f1'),  # test has no tags
  *_columns('mrpc', MRPC, 'dev/f1', 'dev/accuracy'),
  *_structured('srl_ewt', SRL, 'dev/f1/verb', 'dev/f1'),
  *_structured('coref_gum', COREF, 'dev/average_f1'),
  *_structured('squad1', SQUAD, 'dev/f1', 'dev/em'),
)
NOTHING = ('',) * len(COLUMNS)


def _elmo(name: str, place: str, models: dict[str, TaskModel]) -> Row:
  return Row(
    name,
    NOTHING,
    overrides={'task.mix_at': place},
    models=models,
    requires=('task.word_vectors',),
    reference=f'vectors+language_model@{place}',
    **base.ELMO,
  )


AT_INPUT = _elmo('GloVe + ELMo at the input', 'input', MODELS | STRUCTURED)
AT_BOTH = _elmo('GloVe + ELMo at both', 'both', MODELS)
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
    Row(
      'GloVe 50d',
      NOTHING,
      models=MODELS | STRUCTURED,
      reference='vectors',
      **base.GLOVE,
    ),
    AT_INPUT,
    AT_BOTH,
  ),
  repeated=(AT_INPUT.name, AT_BOTH.name),
)
