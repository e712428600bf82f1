r"""GPT-2 (Radford et al. 2019): windows of 1,024 tokens, 512 a step.

Hardware: v5litepod-32.

WebText was never released; any large text of the web will do. The paper names
batch and context; rate, schedule and steps are usual ones for 124 M parameters.
Expected: no published figure for training (the released 124 M model scores 29.4
on WikiText-2, zero-shot). Meant for 32 chips of 16 GB or more.

  python -m train.preflight --config gpt2 --topology v5e-32
  python -m data.prepare --source 'web/*.jsonl.zst' \
    --tokenizer gpt2_vocabulary --out gs://BUCKET/web
  python -m train.main --config gpt2 --config.data.folder=gs://BUCKET/web \
    --workdir gs://BUCKET/gpt2
"""

import ml_collections

from configs import variants
from configs.sections import gpt as gpt_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size, e.g. 'gpt2-medium'."""
  config = gpt_section.get_gpt2_config()
  config.model.update(variants.pick(variants.GPT2, arg or 'gpt2'))
  config.model.max_length = 1024
  config.model.dtype = 'bfloat16'
  config.train.platform = 'tpu'
  config.data.source = 'web/*.jsonl.zst'
  config.data.tokenizer = 'train:bytebpe:50257'
  config.data.held_out = 0.005
  config.train.phases = ((300_000, 1024, 512, 'continue'),)
  # The logits of 16 windows a chip would not fit.
  config.train.micro_batches = 4
  config.train.log_every = 100
  config.optim.name = 'adamw'
  config.optim.learning_rate = 6e-4
  config.optim.warmup_steps = 2_000
  config.optim.beta2 = 0.95
  config.optim.weight_decay = 0.1
  config.init.position_stddev = 0.01
  return config.lock()
