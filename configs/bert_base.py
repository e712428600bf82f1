r"""BERT-Base as published (Devlin et al. 2018, section 3 and appendix A.2).

BooksCorpus and English Wikipedia, 3,300 M words; 1,000,000 steps of 256
sequences, 90 % of them at length 128. The paper took 4 days on 16 TPU chips.
Expected: held-out masked-LM perplexity about 4 (Table 6: 3.99).

BooksCorpus is not distributed any more; prepare what text there is first. Meant
for 16 chips of 16 GB or more; what a slice makes of it:

  python -m train.preflight --config bert_base --topology v5e-16

  python -m data.prepare --source tfds:wikipedia/20230601.en \
    --tokenizer bert-base-uncased-vocab.txt --out stores/wikipedia
  gcloud storage cp -r stores/wikipedia gs://BUCKET/wikipedia
  python -m train.main --config bert_base \
    --config.data.folder=gs://BUCKET/wikipedia \
    --config.data.cache=/tmp/wikipedia --workdir gs://BUCKET/bert_base

The paper's ablations of pre-training follow a colon, as in bert_base:no_nsp.
Expected is what the paper finds after fine-tuning.

  no_nsp          Table 5: masked tokens alone; the second text always continues
                  the first. MNLI 83.9, QNLI 84.9, MRPC 86.5, SST-2 92.6, SQuAD
                  F1 87.9 (with next sentences 84.4, 88.4, 86.7, 92.7, 88.5)
  ltr_no_nsp      Table 5: besides, every token is predicted from those before
                  it, in fine-tuning too. 82.1, 84.3, 77.5, 92.1, 77.8
  mask=M/S/R      Table 8 (2019): per cent of the predicted tokens that become
                  [MASK], stay the same, become random. MNLI, NER fine-tuned
                  and NER from features: 80/10/10 84.2 95.4 94.9, 100/0/0 84.3
                  94.9 94.0, 80/0/20 84.1 95.2 94.6, 80/20/0 84.4 95.2 94.7,
                  0/20/80 83.7 94.8 94.6, 0/0/100 83.6 94.9 94.6
  bert-l3-h768-a12 and so on
                  Table 6: sizes, see configs/variants.py. Held-out masked-LM
                  perplexity 5.84 (L3 H768 A12), 5.24 (L6 A3), 4.68 (L6 A12),
                  3.99 (L12), 3.54 (L12 H1024 A16), 3.23 (L24)

The perplexity of ltr_no_nsp is of the same tokens, [CLS] and [SEP] left out,
but of all of them; the paper does not give it.
"""

import ml_collections

from configs import base, variants


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `variants.vary_bert`."""
  config = base.get_config()
  variants.vary_bert(config, 'bert-base', arg)
  config.model.dtype = 'bfloat16'
  config.data.source = 'tfds:wikipedia/20230601.en'
  config.data.tokenizer = 'train:wordpiece:30522'
  config.data.held_out = 0.005
  config.train.phases = (
    (900_000, 128, 256, 'continue'),
    (100_000, 512, 256, 'continue'),
  )
  config.train.log_every = 100
  return config.lock()
