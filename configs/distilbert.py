"""DistilBERT: 6 layers that learn masked tokens from BERT's (Sanh et al. 2019).

Hardware: 8 GPUs.

Sizes, initial layers and the weights of the losses as published: half of the
layers of BERT-Base, no next sentences (its token types stay, which DistilBERT
drops). The paper trains on BERT's own text in batches of up to 4,000 rows, on 8
V100 for 90 hours, and keeps 97 % of BERT-Base's mean on GLUE (77.0 of 79.5).
Not trained here. Rate, decay and clip are recalled from its release's train.py
and not checked; the steps are ours.

  python -m train.main --config distilbert \
    --config.init.teacher=google-bert/bert-base-uncased \
    --config.init.weights=google-bert/bert-base-uncased \
    --config.init.layers=0,2,4,7,9,11 \
    --config.data.tokenizer=google-bert/bert-base-uncased \
    --config.data.source='wiki/*.txt'

`distilbert:bert-mini` and other sizes as of `variants.BERT`: without
init.weights the student is drawn, and its width may be another one with
distill.cosine_weight=0.
"""

import ml_collections

from configs import variants
from configs.sections import distill


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `vary_bert`, but `modern`."""
  if 'modern' in arg.split(','):
    raise ValueError(
      'distilbert:modern: a modern BERT has an objective of its own, expected'
      ' bert_base:modern, or no modern here'
    )
  config = distill.get_bert_config()
  variants.vary_bert(config, 'bert-base', '')
  config.model.num_layers = 6
  if arg:
    variants.vary_bert(config, 'bert-base', arg)
  config.train.phases = ((100_000, 512, 1024, 'continue'),)
  config.train.platform = 'gpu'
  config.train.micro_batches = 16  # 8 rows of each of 8 GPUs
  config.optim.learning_rate = 5e-4
  config.optim.warmup_steps = 5_000
  config.optim.weight_decay = 0.0
  config.optim.clip_norm = 5.0
  return config.lock()
