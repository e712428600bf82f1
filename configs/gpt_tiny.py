"""A tiny GPT on the documentation that ships inside every Python: no download.

Hardware: 2 CPU cores, 4 to 5 minutes.

It ends by printing continuations of held-out beginnings. Expected: held-out
perplexity 0.24 of the unigram perplexity (119 of 502; words found by ftfy and
spaCy, seed 0).

  python -m train.main --config gpt_tiny

gpt_tiny:lstm has an LSTM of 256 cells, projected to 128, in its place;
gpt_tiny:modern is a GPT by what is known since 2018, in the same minutes:
perplexity 87 (results/gpt_tiny_modern.json).
"""

import ml_collections

from configs import variants
from configs.sections import gpt as gpt_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` is 'lstm', or as for `variants.vary_gpt`."""
  if arg == 'lstm':
    config = gpt_section.get_lstm_config()
    config.model.update(embed_dim=128, lstm_dim=256, dropout_rate=0.0)
  else:
    config = gpt_section.get_config()
    variants.fit_cpu(config)
    variants.vary_gpt(config, 'gpt-tiny', arg)
    config.init.position_stddev = 0.05
  config.model.max_length = 128
  config.data.source = 'manual'
  config.data.tokenizer = 'train:bpe:4000'
  config.train.phases = ((600, 128, 32, 'continue'),)
  config.train.eval_every = 200
  config.train.checkpoint_every = 200
  config.optim.learning_rate = 2e-3
  config.optim.warmup_steps = 50
  config.init.stddev = 0.05  # smaller weights stay at unigrams for long
  if config.optim.name == 'muon':
    config.optim.learning_rate = 1e-2  # of 4e-3 and 1e-2 better at 200 steps
    config.train.phases = ((520, 128, 32, 'continue'),)  # the same minutes
  return config.lock()
