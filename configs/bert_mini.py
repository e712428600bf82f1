"""BERT-Mini on a folder of books: a real corpus for one small machine.

Sizes: google-research/bert's BERT-Mini. Any plain text will do, such as 100
English novels (78 MB, 14 M words). 10,000 steps are two epochs of those, and
2 to 3 hours on 2 CPU cores. No full run has been measured yet; the first 1,400
steps of one with 2,600 reach 0.58 of the unigram perplexity (results/).

  python -m train.main --config bert_mini --config.data.source='books/*.txt'
"""

import ml_collections

from configs import base, variants


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size, e.g. 'bert-small'."""
  config = base.get_config()
  config.model.update(variants.BERT[arg or 'bert-mini'])
  config.model.max_length = 128
  config.model.scan_layers = False  # a CPU runs unrolled layers faster
  config.data.source = 'books/*.txt'
  config.data.tokenizer = 'train:wordpiece:8000'
  config.train.phases = ((10_000, 128, 32, 'continue'),)
  config.train.eval_every = 1_000
  config.train.checkpoint_every = 1_000
  config.train.platform = 'cpu'
  config.optim.learning_rate = 1e-3
  config.optim.warmup_steps = 500
  config.optim.bias_correction = True
  config.init.stddev = 0.05
  config.init.position_stddev = 0.02
  config.model.dropout_rate = 0.0  # one epoch: nothing is seen twice
  config.model.attention_dropout_rate = 0.0
  config.eval.global_batch = 64
  config.eval.max_windows = 2_000
  return config.lock()
