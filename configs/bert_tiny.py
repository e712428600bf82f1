"""BERT-Tiny on the documentation that ships inside every Python: no download.

Hardware: 2 CPU cores, 3 to 12 minutes.

The default config. The corpus is 460 documents, half a million tokens. Sizes:
google-research/bert's BERT-Tiny. Expected at the end: held-out masked-LM
perplexity 0.40 of the unigram perplexity, NSP accuracy 0.72 (mean of 2 seeds,
results/bert_tiny.json).

  python -m train.main --config bert_tiny
  python -m train.main --config bert_tiny:modern

The second, BERT by what is known since 2018, takes the same minutes in 1,300
steps (results/bert_tiny_modern.json).
"""

import ml_collections

from configs import base, variants


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `variants.vary_bert`."""
  config = base.get_config()
  variants.fit_cpu(config)
  config.model.max_length = 128
  config.data.source = 'manual'
  config.data.tokenizer = 'train:wordpiece:6000'
  config.train.phases = ((1_800, 128, 32, 'continue'),)
  config.train.eval_every = 450
  config.train.checkpoint_every = 450
  config.optim.name = 'adamw'
  config.optim.learning_rate = 2e-3
  config.optim.warmup_steps = 100
  config.init.stddev = 0.06
  config.init.position_stddev = 0.02
  config.eval.draws = 4  # only 250 windows are held out
  variants.vary_bert(config, 'bert-tiny', arg)
  if config.optim.name == 'muon':
    # Of 3e-3 and 1e-2 the better one at 450 steps. After 8,000 a like model is
    # fine-tuned better from 3e-3 (configs/ablation.py).
    config.optim.learning_rate = 1e-2
    config.train.phases = ((1_300, 128, 32, 'continue'),)  # the same minutes
  return config.lock()
