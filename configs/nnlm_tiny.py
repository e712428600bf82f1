"""Bengio et al. 2003's network on the documentation inside every Python.

Hardware: 1 CPU core, 6 to 13 minutes.

MLP10 of their Table 2 on a vocabulary of 8,000 words: n = 5, h = 100, m = 60,
direct connections. Their rate of 1e-3 for each word is 1e-3 times the words of
a batch for the mean over them; the clip of the gradient at 1 is ours. 0.349 of
the unigram perplexity (222 of 635) after 1,000 steps, five epochs, in 13
minutes on a busy CPU core; the sampled softmax trains 3 times as fast.

  python -m train.main --config nnlm_tiny
"""

import ml_collections

from configs.sections import gpt as gpt_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` 'sampled' samples 1,024 words for the loss."""
  if arg not in ('', 'sampled'):
    raise ValueError(f'nnlm_tiny:{arg}: expected nothing or sampled')
  config = gpt_section.get_nnlm_config()
  config.model.max_length = 64
  config.model.num_samples = 1024 if arg else 0
  config.data.tokenizer = 'train:words:8000'
  config.train.phases = ((1_000, 64, 32, 'continue'),)
  config.train.eval_every = 250
  config.train.checkpoint_every = 250
  config.optim.learning_rate = 1e-3 * 64 * 32
  config.eval.max_windows = 512
  return config.lock()
