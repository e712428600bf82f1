"""A tiny GPT on the documentation that ships inside every Python.

A real left-to-right pre-training run without any download, 4.5 minutes on 2 CPU
cores; it ends by printing how the model goes on from held-out beginnings.
Expected: held-out perplexity 0.24 of what token frequencies alone score (119 of
502; words found by ftfy and spaCy, seed 0).

  python -m train.main --config gpt_tiny
"""

import ml_collections

from configs import base, variants


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size, e.g. 'gpt-mini'."""
  config = base.get_gpt_config()
  base.fit_cpu(config)
  config.model.update(variants.GPT[arg or 'gpt-tiny'])
  config.model.max_length = 128
  config.data.source = 'manual'
  config.data.tokenizer = 'train:bpe:4000'
  config.train.phases = ((600, 128, 32, 'continue'),)
  config.train.eval_every = 200
  config.train.checkpoint_every = 200
  config.optim.learning_rate = 2e-3
  config.optim.warmup_steps = 50
  # Smaller weights stay at unigrams for long.
  config.init.stddev = 0.05
  config.init.position_stddev = 0.05
  return config.lock()
