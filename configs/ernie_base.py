r"""ERNIE 1.0 (Sun et al. 2019; PaddlePaddle/ERNIE, release/r2.0, ERNIE/).

Hardware: 8 GPUs.

Its BERT-Base has ReLU, 513 positions and 18,000 pieces, Chinese characters and
their like. Words are masked whole, each drawn by itself; they are jieba's, as
the release's analyser of words and entities is not published. 1,000,000 steps
of 8,192 tokens; the release's script runs 8 GPUs with so many each, as
--config.train.global_batch=128 does. Its text (encyclopaedias, news, forums) is
not distributed: Chinese Wikipedia is in its place. Expected, as released: 78.4
on XNLI's test set in Chinese, 95.4 on ChnSentiCorp's (configs/tables/
ernie_main.py). Layer norms have BERT's epsilon of 1e-12; the release's is 1e-5.

  python -m data.prepare --source tfds:wikipedia/20230601.zh --units jieba \
    --tokenizer train:wordpiece:18000 --held_out 0.005 --out stores/zh
  python -m train.main --config ernie_base --config.data.folder=stores/zh

Dialogues beside it, in equal parts, as ERNIE's dialogue language model. The
paper replaces the query or the response by another one; here it is the last
turn, see data/examples/dialogues.py:

  python -m train.main --config ernie_base --config.train.objective=dialogue \
    --config.data.source='talk=dialogue:forum,text=tfds:wikipedia/20230601.zh' \
    --config.data.language_exponent=0
"""

import ml_collections

from configs import base, variants


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `vary_bert`, but `modern`."""
  if 'modern' in arg.split(','):
    raise ValueError(
      'ernie_base:modern: a modern BERT has an objective of its own, expected'
      ' bert_base:modern, or no modern here'
    )
  config = base.get_config()
  config.model.gelu = 'relu'
  config.model.max_length = 513
  config.model.dtype = 'bfloat16'
  config.data.source = 'tfds:wikipedia/20230601.zh'
  config.data.tokenizer = 'train:wordpiece:18000'
  config.data.units = 'jieba'
  config.data.held_out = 0.005
  config.objective.unit = 'stored'
  config.objective.counting = 'drawn'
  config.optim.name = 'adamw'  # Paddle's Adam corrects its bias
  config.optim.epsilon = 1e-8
  config.optim.warmup_steps = 5_000
  config.train.phases = ((1_000_000, 512, 16, 'continue'),)
  config.train.platform = 'gpu'
  config.train.log_every = 100
  variants.vary_bert(config, 'bert-base', arg)
  return config.lock()
