r"""BERT-Base as published (Devlin et al. 2018, section 3 and appendix A.2).

Hardware: v5litepod-16.

BooksCorpus and English Wikipedia, 3,300 M words; 1,000,000 steps of 256
sequences, 90 % of them at length 128. The paper took 4 days on 16 TPU chips;
this is meant for 16 chips of 16 GB or more. Expected: held-out masked-LM
perplexity about 4 (Table 6: 3.99). BooksCorpus is not distributed any more;
prepare the text that you have.

  python -m train.preflight --config bert_base --topology v5e-16
  python -m data.prepare --source tfds:wikipedia/20230601.en \
    --tokenizer bert-base-uncased-vocab.txt --out gs://BUCKET/wikipedia
  python -m train.main --config bert_base \
    --config.data.folder=gs://BUCKET/wikipedia --workdir gs://BUCKET/bert_base

The paper's ablations of pre-training follow a colon, as in bert_base:no_nsp.
Expected figures are in configs/tables.

  no_nsp       Table 5: masked tokens alone; the second text always continues
               the first (bert_pretraining_tasks.py)
  ltr_no_nsp   Table 5: besides, a token sees only the tokens before it, in
               fine-tuning too. The perplexity, which the paper does not give,
               is of all tokens but [CLS] and [SEP]
  mask=M/S/R   Table 8 (2019): per cent of the predicted tokens that become
               [MASK], stay the same, become random (bert_masking.py)
  whole_word   masks whole words (bert_whole_word.py)
  span         masks spans of 1 to 3 words
  bert-l3-h768-a12 and so on   Table 6: sizes (bert_model_size.py)
  modern       layers, objective and optimiser as is known since, in packed
               rows: 70,000 steps of 4,096 sequences of 128 tokens (Portes et
               al. 2023, "MosaicBERT"), whose last tenth is of 1,024 tokens
"""

import ml_collections

from configs import base, variants


def get_config(
  arg: str = '', size: str = 'bert-base'
) -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `variants.vary_bert`."""
  config = base.get_config()
  config.model.dtype = 'bfloat16'
  config.train.platform = 'tpu'
  config.data.source = 'tfds:wikipedia/20230601.en'
  config.data.tokenizer = 'train:wordpiece:30522'
  config.data.held_out = 0.005
  config.train.phases = (
    (900_000, 128, 256, 'continue'),
    (100_000, 512, 256, 'continue'),
  )
  config.train.log_every = 100
  variants.vary_bert(config, size, arg)
  if 'modern' in arg.split(','):
    config.train.phases = (
      (63_000, 128, 4_096, 'continue'),
      (7_000, 1_024, 512, 'continue'),
    )
    config.model.max_length = 1_024
    config.train.micro_batches = 8
    config.optim.learning_rate = 5e-4
    config.optim.warmup_steps = 4_200
  return config.lock()
