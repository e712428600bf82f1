r"""ELMo as published: the 1 Billion Word Benchmark, 10 epochs.

Hardware: v5litepod-16.

Peters et al. 2018, section 3.4, and bilm-tf's bin/train_elmo.py: 768,648,884
tokens, 793,471 words, 3 x 128 rows of 20 words, 93.6 million parameters and a
softmax of 406 million. Expected: a test perplexity of 39.7, the mean of both
directions. The text is the benchmark's, tokenized, one sentence a line.

  python -m train.preflight --config elmo_1b --topology v5e-16
  python -m data.prepare --source 'training-monolingual.tokenized.shuffled/*' \
    --tokenizer train:words:793471:spaces --held_out 0.01 --out STORE
  python -m train.main --config elmo_1b --config.data.folder=STORE
"""

import ml_collections

from configs import variants
from configs.sections import elmo as elmo_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size, e.g. 'elmo-medium'."""
  config = elmo_section.get_config()
  config.model.update(variants.pick(variants.ELMO, arg or 'elmo'))
  config.model.dtype = 'bfloat16'
  config.train.platform = 'tpu'
  config.data.tokenizer = 'train:words:793471:spaces'
  config.data.source = 'training-monolingual.tokenized.shuffled/*'
  config.data.held_out = 0.01
  # 10 epochs: 768,648,884 / (384 * 20) = 100,084 steps each.
  config.train.phases = ((1_000_840, 20, 384, 'continue'),)
  config.train.log_every = 500
  config.train.eval_every = 50_000
  config.train.checkpoint_every = 5_000
  # All chips share the softmax and its Adagrad sums, 3.3 GB, and the batch.
  config.mesh.data = 1
  config.mesh.fsdp = -1
  config.eval.global_batch = 256
  return config.lock()
