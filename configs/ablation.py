r"""Small models of one text and one budget, whose pre-training is varied.

Hardware: 1 CPU core, 20 to 60 minutes.

2 layers of 128, 8,000 steps of 4,096 tokens (33 M in all) of any text. The
tables give it books and the articles of WikiText-2, of which these are one and
a half times all. The layers' form and the optimiser are those of
`bert_tiny:modern` and `gpt_tiny:modern`, which learn in such a budget, but
their rate is lower and their decay larger. What is predicted is the paper's:
next sentences, too, and masks at 15 %. BERT's pieces are cased, as the paper's
are for names.

`ablation:word2vec` are vectors of words of 100 features, for which word2vec
reads all of the text five times, as by default.

  python -m train.tables --table small/bert_tasks --data sets
  python -m train.main --config ablation:bert,no_nsp \
    --config.data.source='books/*.txt'
"""

from collections.abc import Sequence

import ml_collections

from configs import base, bert_tiny, variants, word2vec_novels
from configs.sections import gpt as gpt_section

STEPS = 8_000
STEPS_OF_PARTS = 2_000  # of 'modern' and '2018', whose parts a table compares
SCORED_EVERY = 500  # steps
# 1e-2 and 0.01 are better after 450 steps. After 8,000 they leave weights six
# (BERT) to twenty times (GPT) as large as they were drawn, which fine-tuning
# hardly moves.
LONG = {'learning_rate': 3e-3, 'weight_decay': 0.1}


def get_config(arg: str = 'bert') -> ml_collections.ConfigDict:
  """Returns the config of a family: bert, gpt, lstm or word2vec.

  Behind it may come 'untrained', a step at rate 0 that leaves the weights as
  they were drawn, and behind bert words of `variants.vary_bert`, as in
  'bert,no_nsp': 'modern' predicts what `bert_tiny:modern` does, too. '2018' has
  the form, the optimiser and the rate of `bert_tiny`.
  """
  if arg == 'word2vec':
    return word2vec_novels.get_config().lock()
  family, *words = arg.split(',')
  is_trained = 'untrained' not in words
  words = [word for word in words if word != 'untrained']
  makers = {'bert': _bert, 'gpt': _gpt, 'lstm': _lstm}
  if family not in makers or (words and family != 'bert'):
    raise ValueError(
      f'ablation:{arg}: expected gpt, lstm, word2vec, or bert and words of a'
      ' BERT, as in ablation:bert,no_nsp'
    )
  config = makers[family](words)
  config.data.source = 'books/*.txt'
  of_parts = {'modern', '2018'} & {*words}
  steps = STEPS_OF_PARTS if of_parts else STEPS
  config.train.phases = ((steps, 128, 32, 'continue'),)
  config.train.eval_every = SCORED_EVERY
  config.train.checkpoint_every = SCORED_EVERY
  config.optim.warmup_steps = 100
  config.eval.max_windows = 512
  if not is_trained:
    config.train.phases = ((1, 128, 32, 'continue'),)
    config.optim.update(learning_rate=0.0, warmup_steps=0)
  return config.lock()


def _bert(words: Sequence[str]) -> ml_collections.ConfigDict:
  if '2018' in words:
    return _bert_of_2018([word for word in words if word != '2018'])
  config = base.get_config()
  variants.fit_cpu(config)
  is_modern = 'modern' in words
  words = [word for word in words if word != 'modern']
  objective = config.train.objective
  # The form is the last: it fits the MLP to a size.
  variants.vary_bert(config, 'bert-tiny', ','.join((*words, 'modern')))
  if not is_modern:  # it predicts what the paper's does
    for word in words:
      objective = variants.BERT_TASKS.get(word, {}).get(
        'train.objective', objective
      )
    config.train.objective = objective
    config.data.packed = None
    config.model.window = 0
    config.objective.first_mask_rate = None
  config.optim.update(
    {'learning_rate': 1e-2, 'weight_decay': 0.01} if is_modern else LONG
  )
  config = _of_books(config)
  if not is_modern:
    config.data.tokenizer += ':cased'
    config.model.max_length = 256  # of fine-tuning on SQuAD
  return config


def _bert_of_2018(words: Sequence[str]) -> ml_collections.ConfigDict:
  config = bert_tiny.get_config(','.join(words))
  return _of_books(config.copy_and_resolve_references())


def _of_books(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  config.data.tokenizer = 'train:wordpiece:8000'
  config.model.max_length = 128
  config.init.stddev = 0.06
  config.init.position_stddev = 0.02
  config.eval.draws = 1
  return config


def _gpt(words: Sequence[str]) -> ml_collections.ConfigDict:
  del words
  config = gpt_section.get_config()
  variants.fit_cpu(config)
  variants.vary_gpt(config, 'gpt-tiny', 'modern')
  config.optim.update(LONG)
  return _left_to_right(config)


def _lstm(words: Sequence[str]) -> ml_collections.ConfigDict:
  del words
  config = gpt_section.get_lstm_config()
  config.model.update(embed_dim=128, lstm_dim=256, dropout_rate=0.0)
  config.optim.learning_rate = 2e-3
  return _left_to_right(config)


def _left_to_right(
  config: ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  config.data.tokenizer = 'train:bpe:8000'
  config.model.max_length = 128
  config.init.stddev = 0.05
  return config
