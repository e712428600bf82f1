r"""BERT-Large in 76 minutes: large batches by LAMB (You et al. 2020, ICLR).

Hardware: v5litepod-256.

Text and model of bert_large in 8,599 steps: 7,037 of 65,536 sequences of 128
tokens, then 1,562 of 32,768 of 512 with a warm-up of its own: as many sequences
as 1,000,000 steps of 512. The paper took 76 minutes on 1,024 TPUv3 chips.
Expected: SQuAD 1.1 dev F1 90.58 after fine-tuning.

The rates are NVIDIA's for these batches, as the paper has none
(DeepLearningExamples, PyTorch/LanguageModeling/BERT, README and
scripts/run_pretraining.sh): peak 6e-3 after 2,000 steps (0.2843 of 7,038), then
4e-3 after 200 (0.128 of 1,563); F1 91.2 there. NVIDIA's rate falls with the
root of the share of steps left, ours linearly, as in BERT and the paper. Decay
0.01, epsilon 1e-6 and clipping at 1 are as in NVIDIA's and
google-research/albert's LAMB; the paper's algorithm 2 does not clip.

Meant for a v5e-256, 16 GB a chip: 65,536 sequences are 256 a chip, in 8 parts
of 32; at length 512 parts of 16. Elsewhere set train.micro_batches.

  python -m train.preflight --config bert_large_lamb --topology v5e-256
  python -m train.main --config bert_large_lamb \
    --config.data.folder=gs://BUCKET/wikipedia --workdir gs://BUCKET/bert_large_lamb
"""

import ml_collections

from configs import bert_large


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may name another size, but no modern form."""
  if 'modern' in arg.split(','):
    raise ValueError(
      'bert_large_lamb:modern: the modern recipe has an optimiser of its own,'
      ' expected bert_base:bert-large,modern, or no modern here'
    )
  config = bert_large.get_config(arg)
  config.optim.name = 'lamb'
  config.optim.learning_rate = 6e-3
  config.optim.warmup_steps = 2_000
  config.optim.restarts = ((4e-3, 200),)
  config.train.phases = (
    (7_037, 128, 65_536, 'continue'),
    (1_562, 512, 32_768, 'restart'),
  )
  config.train.micro_batches = 8
  config.train.log_every = 10
  config.train.eval_every = 500
  config.train.checkpoint_every = 200
  config.eval.global_batch = 1_024
  return config
