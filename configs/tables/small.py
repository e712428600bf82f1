"""What the tables of small pre-trainings share: judges, recipe, notes.

Such a table pre-trains its rows (`configs/ablation.py`), fine-tunes them,
and tells of each of the paper's arguments whether it holds at this size.
"""

from typing import Any

from configs import variants
from configs.tables import base, sesame_elmo
from configs.tables.base import Column, Part, Row, TaskModel

# One recipe for all rows. Its rate is the best of 3e-4, 1e-3 and 3e-3 for a
# BERT of 2 layers of 128 on SciTail, which judges no row (results/README.md);
# 3e-4, the highest of Turc et al. 2019, learns little.
RECIPE = {
  'optim.learning_rate': 1e-3,
  'train.global_batch': 32,
  'train.num_epochs': 3.0,
  'train.count': 'rows',
  'train.select': 'last',
  'train.eval_every': 1_000_000,  # the last step alone is scored
  'task.max_length': 64,
  'data.train_limit': 8_000,
}
DEV = {'data.eval_limit': 2_000}  # examples of a large dev set, evenly spaced
# Names and SQuAD are read as often as by the models of vectors of words, and
# names have a CRF, too: without it BERT's F1 is 52 in place of 65.
CRF = {'task.crf': 'bioul'}
NAMES = RECIPE | DEV | CRF | {'train.num_epochs': 4.0}
# Those keys that hold for frozen features of names, too. In the paper the
# BiLSTM above BERT-Base is as wide as its layers.
BILSTM = {'task.bilstm_dim': 128}
FROZEN = BILSTM | {
  key: NAMES[key]
  for key in (
    'train.select',
    'train.eval_every',
    'task.max_length',
    'data.train_limit',
    'data.eval_limit',
    'task.crf',
  )
}
SQUAD = RECIPE | DEV | {'task.max_length': 256, 'train.num_epochs': 4.0}


def _judge(task: str, metric: str, recipe: dict[str, Any] = RECIPE) -> Column:
  part = Part(task, (f'dev/{metric}',), ('recipe=corrected',), recipe)
  return Column(f'{task}/{metric}', (part,))


SST2 = _judge('sst2', 'accuracy')
MRPC = _judge('mrpc', 'accuracy')
MRPC_F1 = _judge('mrpc', 'f1')
STSB = _judge('stsb', 'spearman')
STSB_PEARSON = _judge('stsb', 'pearson')
COLA = _judge('cola', 'matthews')
SQUAD1 = _judge('squad1', 'f1', SQUAD)
PANX = _judge('panx_en', 'f1', NAMES)
PANX_ALONE = _judge('panx_en', 'f1', RECIPE | DEV)  # each tag by itself
BLIMP = Column('blimp', pairs='blimp')
SENTENCES = (SST2, MRPC, STSB, COLA)
NOTES = (
  'Every row is pre-trained by this table on the same books and articles of'
  ' Wikipedia (WikiText-2) with the same budget (configs/ablation.py), unless'
  ' its name says otherwise, and fine-tuned by one recipe at one rate, chosen'
  ' of three on SciTail, which judges no row. Names are tagged by a CRF,'
  ' as by the models of vectors of words; the papers of BERT and GPT have none.'
  ' Frozen features and vectors of words have recipes of their own. Published'
  ' figures are of models a hundred times larger; only the signs of differences'
  ' compare.',
  'Ours: mean and standard deviation over all fine-tunings, which read at most'
  ' 8,000 examples; of PAN-X and SQuAD 2,000 examples of dev are scored.',
  'Minimal pairs and held-out text are scored by the pre-training alone. Of'
  ' rows that share one, the first has the score.',
  'An interval is of 95 %, by the deviation between pre-trainings, each being'
  ' the mean of its fine-tunings. Two pre-trainings of a row alone tell little'
  ' of that deviation. So it is pooled over all rows of a column whose'
  ' pre-trainings are of one kind (trained; untrained; vectors of words), but'
  ' for rows of equal scores; rows of the same pre-trainings count once.'
  ' Between rows of two kinds, both deviations are joined by the formula of'
  ' Welch and Satterthwaite.',
  'Between rows of the same pre-trainings the interval is by the deviation of'
  ' fine-tunings: it holds for these pre-trainings, and not for another'
  ' pre-training. All intervals leave out how the examples of dev were chosen.',
)
MRPC_NOTE = (
  "279 of the 408 pairs of MRPC's dev are paraphrases, so the answer yes to all"
  ' has an accuracy of 68.4 and an F1 of 81.2; on CoLA one answer to all has 0.'
)
PAIRS_NOTE = (
  "BLiMP's pairs are scored by log-probabilities of a model that reads to the"
  ' right, and by pseudo-log-likelihoods of one that reads both sides: these do'
  ' not compare, so no argument compares them.'
)
WORD_NOTE = (
  'word2vec reads all of the text five times, the others once and a half;'
  " ELMo's task models learn from its vectors, by recipes of their own,"
  ' whose rate falls to 0 like that of the other rows.'
)

# In place of what waits for scores of dev in a word model's own recipe.
UNSCORED = {
  'train.patience': None,
  'train.plateau': None,
  'optim.schedule': 'linear',
}


def _word_model(name: str, recipe: dict[str, Any]) -> TaskModel:
  """Returns a model on vectors of words, of as many examples as the others.

  Its own settings come before those of a column, whose number of examples and
  choice of the last epoch stay. As no epoch but the last is scored, its rate
  falls by a schedule, like those of the other rows.
  """
  kept = ('data.train_limit', 'data.eval_limit')
  own = variants.WORD_MODELS[name] | recipe | UNSCORED
  return TaskModel(name, {k: v for k, v in own.items() if k not in kept})


WORD_MODELS = {
  'sst2': _word_model('bcn', sesame_elmo.SST5),
  'mrpc': _word_model('bilstm_attention', sesame_elmo.MRPC),
  'stsb': _word_model('bilstm_attention', sesame_elmo.MRPC),
  'cola': _word_model('bcn', sesame_elmo.SST5),
  'squad1': _word_model('bidaf', sesame_elmo.SQUAD),
  'panx_en': _word_model('bilstm_crf', sesame_elmo.PANX),
}


def row(
  name: str,
  values: tuple[float | str, ...],
  pretraining: str,
  **fields: Any,
) -> Row:
  """Returns a row whose weights come of a pre-training by a config."""
  words = pretraining.partition(':')[2]
  fields.setdefault('family', words.partition(',')[0])
  return Row(
    name,
    values,
    needs=f'the pre-training {pretraining}',
    pretraining=pretraining,
    **fields,
  )


def word_row(name: str, num_columns: int) -> Row:
  """Returns a row of vectors of words, of the same books."""
  return row(
    name,
    ('',) * num_columns,
    'ablation:word2vec',
    family=base.VECTORS,
    models=WORD_MODELS,
  )
