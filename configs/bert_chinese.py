r"""Chinese BERT-Base (google-research/bert, multilingual.md, 2018).

Hardware: v5litepod-16.

Chinese Wikipedia, in simplified and traditional characters; each character is a
word. The vocabulary has 21,128 pieces, lower-cased. Steps, batches and rates
are bert_base's. Meant for 16 chips of 16 GB or more. Expected, as released:
77.2 on XNLI's test set in Chinese, 77.4 on its dev set.

  python -m train.preflight --config bert_chinese --topology v5e-16
  python -m data.prepare --source tfds:wikipedia/20230601.zh \
    --tokenizer bert-base-chinese-vocab.txt --held_out 0.005 \
    --out gs://BUCKET/wikipedia_zh
  python -m train.main --config bert_chinese \
    --config.data.folder=gs://BUCKET/wikipedia_zh \
    --workdir gs://BUCKET/bert_chinese
"""

import ml_collections

from configs import bert_base


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `variants.vary_bert`."""
  config = bert_base.get_config(arg).unlock()
  config.data.source = 'tfds:wikipedia/20230601.zh'
  config.data.tokenizer = 'train:wordpiece:21128'
  return config.lock()
