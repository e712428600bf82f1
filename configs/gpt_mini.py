"""GPT-Mini on a folder of books: a real corpus for one small machine.

4 layers of 256, as BERT-Mini. On 100 English novels (78 MB, 19.6 M tokens to
train on, 3 novels held out): 0.175 of the unigram perplexity after 1,500 steps,
a third of an epoch, in 58 minutes on 2 CPU cores; 100.5 with 128 tokens or more
of context, where a modified Kneser-Ney 5-gram of the whole training text has
88.9 (`python -m train.ngram`).

  python -m train.main --config gpt_mini --config.data.source='books/*.txt'
"""

import ml_collections

from configs import base, variants


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size, e.g. 'gpt'."""
  config = base.get_config()
  config.model.name = 'gpt'
  config.model.update(variants.GPT[arg or 'gpt-mini'])
  config.model.max_length = 256
  config.model.scan_layers = False  # a CPU runs unrolled layers faster
  config.data.source = 'books/*.txt'
  config.data.tokenizer = 'train:bpe:8000'
  config.train.objective = 'lm'
  config.train.phases = ((1_500, 256, 16, 'continue'),)
  config.train.eval_every = 250
  config.train.checkpoint_every = 250
  config.train.platform = 'cpu'
  config.optim.name = 'gpt_adam'
  config.optim.schedule = 'cosine'
  config.optim.learning_rate = 1e-3
  config.optim.warmup_steps = 100
  config.optim.epsilon = 1e-8
  # Smaller weights stay at unigrams for long.
  config.init.stddev = 0.05
  config.init.position_stddev = 0.05
  # Less than an epoch: nothing is seen twice.
  config.model.dropout_rate = 0.0
  config.model.attention_dropout_rate = 0.0
  config.eval.global_batch = 64
  config.eval.max_windows = 512
  return config.lock()
