r"""GPT as published (Radford et al. 2018, section 4.1).

Hardware: v5litepod-8.

BooksCorpus, 100 epochs of 64 windows of 512 contiguous tokens, never across
documents; GPT's own Adam and cosine. Expected: token perplexity 18.4, with
GPT's vocabulary as data.tokenizer (a folder with encoder_bpe_40000.json and
vocab_40000.bpe). BooksCorpus is not distributed any more; 1,000 M words of
books make about 2.5 M windows, so 100 epochs are about 4 M steps. Meant for 8
chips of 16 GB or more.

  python -m train.preflight --config gpt --topology v5e-8
  python -m data.prepare --source 'books/*.txt' --tokenizer gpt_vocabulary \
    --out stores/books
  python -m train.main --config gpt --config.data.folder=stores/books

gpt:lstm has a single LSTM layer of 2,048 cells in place of the transformer
(section 5, Table 5). Expected: no published perplexity; after fine-tuning with
the auxiliary loss an average of 69.1 over CoLA, SST-2, MRPC, STS-B, QQP, MNLI,
QNLI and RTE, where GPT has 74.7.

gpt:modern is a GPT by what is known since 2018, in packed rows, with GPT's
steps and learning rate, which were not tuned for Muon. Expected: not known.
"""

import ml_collections

from configs import variants
from configs.sections import gpt as gpt_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` is 'lstm', or as for `variants.vary_gpt`."""
  if arg == 'lstm':
    config = gpt_section.get_lstm_config()
  else:
    config = gpt_section.get_config()
    variants.vary_gpt(config, 'gpt', arg)
  config.model.max_length = 512
  config.model.dtype = 'bfloat16'
  config.train.platform = 'tpu'
  config.data.source = 'books/*.txt'
  config.data.tokenizer = 'train:bpe:40481'
  config.data.held_out = 0.005
  config.train.phases = ((4_000_000, 512, 64, 'continue'),)
  config.train.log_every = 100
  config.optim.learning_rate = 2.5e-4
  config.optim.warmup_steps = 2_000
  return config.lock()
