r"""BERT-Large as published (Devlin et al. 2018, section 3 and appendix A.2).

The recipe of bert_base at 24 layers of 1,024. The paper took 4 days on 64 TPU
chips. Expected: held-out masked-LM perplexity 3.2 (Table 6: 3.23).

  python -m train.main --config bert_large \
    --config.data.folder=gs://BUCKET/wikipedia \
    --config.data.cache=/tmp/wikipedia --workdir gs://BUCKET/bert_large
"""

import ml_collections

from configs import base, variants


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size."""
  config = base.get_config()
  config.model.update(variants.BERT[arg or 'bert-large'])
  config.model.dtype = 'bfloat16'
  config.model.remat = True  # 512 tokens do not fit a 16 GB chip without
  config.data.source = 'tfds:wikipedia/20230601.en'
  config.data.tokenizer = 'train:wordpiece:30522'
  config.data.held_out = 0.005
  config.train.phases = (
    (900_000, 128, 256, 'continue'),
    (100_000, 512, 256, 'continue'),
  )
  config.train.log_every = 100
  return config.lock()
