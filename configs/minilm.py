r"""MiniLM: 6 layers of 384 that learn how BERT-Base's tokens relate.

Hardware: 8 GPUs.

The student's last layer learns the relations between queries, keys and values
of the teacher's last, whose width and heads may be others (Wang et al. 2021,
MiniLMv2; 2020, MiniLM, has attention's probabilities in place of the first
two). Not trained here. Sizes as published; rate, batch and steps are recalled
and not checked.

  python -m train.main --config minilm \
    --config.init.teacher=google-bert/bert-base-uncased \
    --config.data.tokenizer=google-bert/bert-base-uncased \
    --config.data.source='wiki/*.txt'

`minilm:bert-mini` and other sizes as of `variants.BERT`, with relation heads
that divide both widths (--config.distill.relation_heads=32). Masked tokens are
not among the losses, so held-out text is not predicted: fine-tune the student
to judge it, or give it --config.distill.mlm_weight.
"""

import ml_collections

from configs import variants
from configs.sections import distill


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `vary_bert`, but `modern`."""
  if 'modern' in arg.split(','):
    raise ValueError(
      'minilm:modern: a modern BERT has an objective of its own, expected'
      ' bert_base:modern, or no modern here'
    )
  config = distill.get_bert_config()
  variants.vary_bert(config, 'bert-base', arg)
  if not arg:
    config.model.update(
      num_layers=6, embed_dim=384, num_heads=12, mlp_dim=1_536
    )
  config.distill.update(
    soft_weight=0.0, mlm_weight=0.0, cosine_weight=0.0, relation_weight=1.0
  )
  config.train.phases = ((400_000, 512, 256, 'continue'),)
  config.train.platform = 'gpu'
  config.train.micro_batches = 4  # 8 rows of each of 8 GPUs
  config.optim.learning_rate = 6e-4
  config.optim.warmup_steps = 4_000
  return config.lock()
