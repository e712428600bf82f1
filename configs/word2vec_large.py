"""word2vec of a million words on a slice of TPUs.

Hardware: v5litepod-16.

The sizes of the vectors published with word2vec (100 billion words of news):
300 numbers, CBOW with 5 sampled words. Prepare the token store first; text may
be joined to phrases before, by python -m data.phrases. Plan it on any machine:

  python -m train.preflight --config word2vec_large --topology v5e-16

Train it, on every host of the slice:

  python -m train.main --config word2vec_large --config.data.folder=STORE
"""

import ml_collections

from configs.sections import words as words_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may be 'skipgram'."""
  config = words_section.get_word2vec_config()
  if arg not in ('', 'skipgram'):
    raise ValueError(f"{arg!r}: expected 'skipgram', or nothing for CBOW")
  config.train.objective = arg or 'cbow'
  config.model.embed_dim = 300
  config.optim.learning_rate = 0.025 if arg else 0.05
  config.objective.sample = 1e-4
  config.objective.updates = 64
  config.data.tokenizer = 'train:words:1000000'
  config.train.phases = ((2_000, 1024, 2048, 'continue'),)
  config.train.eval_every = 500
  config.train.checkpoint_every = 500
  config.train.platform = 'tpu'
  config.mesh.data = 1
  config.mesh.fsdp = -1
  return config.lock()
