"""BERT-Mini on a folder of books: a real corpus for one small machine.

Hardware: one small machine.

Sizes: google-research/bert's BERT-Mini. On 100 English novels (78 MB, 14 M
words, 5 % held out), with a rate that falls to 0 in 2,441 steps (10 M tokens,
half an hour on one core): 0.39 of the unigram perplexity after 1,000 steps,
0.19 after 1,500 and 0.13 at the end (results/tables/small_modern_bert_mini.md).
6,000 steps are hardly more than an epoch. Next sentences of novels are
hardly learnt by the end of the 2,441 (NSP accuracy 0.55).

  python -m train.main --config bert_mini --config.data.source='books/*.txt'
"""

import ml_collections

from configs import base, variants


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `variants.vary_bert`."""
  config = base.get_config()
  variants.fit_cpu(config)
  config.model.max_length = 128
  config.data.source = 'books/*.txt'
  config.data.tokenizer = 'train:wordpiece:8000'
  config.train.phases = ((6_000, 128, 32, 'continue'),)
  config.train.eval_every = 500
  config.train.checkpoint_every = 500
  config.optim.name = 'adamw'
  config.optim.learning_rate = 1.5e-3
  config.optim.warmup_steps = 300
  config.init.stddev = 0.05
  config.init.position_stddev = 0.05
  config.init.self_score = 12.0
  config.eval.max_windows = 2_000
  variants.vary_bert(config, 'bert-mini', arg)
  if config.optim.name == 'muon':
    config.optim.learning_rate = 5e-3  # of 5e-3 and 1e-2 better at 400 steps
  return config.lock()
