"""ELMo-Small on a folder of books: a real corpus for one small machine.

Hardware: one small machine.

The published small size. On 100 English novels (78 MB, 15.8 M training words, 7
held out): 0.266 of the unigram perplexity in the worse direction (149 and 147
of 561) after 1,200 steps, 0.77 M words each, in 11 minutes on 2 CPU cores.

  python -m train.main --config elmo_small --config.data.source='books/*.txt'
"""

import ml_collections

from configs import variants
from configs.sections import elmo as elmo_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size, e.g. 'elmo'."""
  config = elmo_section.get_config()
  config.model.update(variants.pick(variants.ELMO, arg or 'elmo-small'))
  config.model.num_samples = 4096
  config.model.dropout_rate = 0.0  # less than an epoch: nothing is seen twice
  config.data.source = 'books/*.txt'
  config.data.tokenizer = 'train:words:30000'
  config.train.phases = ((1_200, 20, 32, 'continue'),)
  config.train.eval_every = 300
  config.train.checkpoint_every = 300
  config.eval.global_batch = 64
  config.eval.max_windows = 2_048
  return config.lock()
