"""GPT-Mini on a folder of books: a real corpus for one small machine.

Hardware: one small machine.

4 layers of 256, as BERT-Mini. On 100 English novels (78 MB, 19.6 M training
tokens, 3 held out): 0.175 of the unigram perplexity after 1,500 steps, a third
of an epoch, in 58 minutes on 2 CPU cores; 100.5 with 128 tokens or more of
context. A modified Kneser-Ney 5-gram of all training text has 88.9.

  python -m train.main --config gpt_mini --config.data.source='books/*.txt'
"""

import ml_collections

from configs import variants
from configs.sections import gpt as gpt_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `variants.vary_gpt`."""
  config = gpt_section.get_config()
  variants.fit_cpu(config)
  config.model.max_length = 256
  config.data.source = 'books/*.txt'
  config.data.tokenizer = 'train:bpe:8000'
  config.train.phases = ((1_500, 256, 16, 'continue'),)
  config.train.eval_every = 250
  config.train.checkpoint_every = 250
  config.optim.learning_rate = 1e-3
  config.optim.warmup_steps = 100
  config.init.stddev = 0.05  # smaller weights stay at unigrams for long
  config.init.position_stddev = 0.05
  config.eval.max_windows = 512
  variants.vary_gpt(config, 'gpt-mini', arg)
  if config.optim.name == 'muon':
    config.optim.learning_rate = 5e-3  # as good as 1e-2 at 250 steps
  return config.lock()
