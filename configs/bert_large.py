r"""BERT-Large as published (Devlin et al. 2018, section 3 and appendix A.2).

Hardware: v5litepod-16 or larger.

The recipe of bert_base at 24 layers of 1,024. The paper took 4 days on 64 TPU
chips. Expected: held-out masked-LM perplexity 3.2 (Table 6: 3.23).

  python -m train.preflight --config bert_large --topology v5e-256
  python -m train.main --config bert_large \
    --config.data.folder=gs://BUCKET/wikipedia --workdir gs://BUCKET/bert_large
"""

import ml_collections

from configs import bert_base


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `variants.vary_bert`."""
  return bert_base.get_config(arg, 'bert-large')
