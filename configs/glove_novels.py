"""GloVe on a folder of books: vectors of words on one small machine.

Hardware: 1 CPU core, 14 minutes.

On 100 English novels (lower-cased, 16 M words with marks, 24.5 M counts, 15
passes), seed 1: 25.9 % of the analogies among 30,000 words (46.0 % of the
semantic, 24.8 % of the syntactic ones) and WordSim-353 0.234;
`word2vec_novels` has 34.3 % and 0.504.
On one CPU core shared with other programs, 13 minutes at 0.5 M entries/s, and a
minute of counting before.

  python -m train.main --config glove_novels \
    --config.data.source='books/*.txt'
"""

import ml_collections

from configs.sections import words as words_section


def get_config() -> ml_collections.ConfigDict:
  """Returns the config."""
  config = words_section.get_glove_config()
  config.objective.window = 10
  config.objective.x_max = 10.0  # of demo.sh, whose text is as small
  config.objective.updates = 64
  config.data.source = 'books/*.txt'
  config.data.tokenizer = 'train:words:100000'
  config.train.phases = ((1, 1024, 512, 'continue'),)
  config.train.num_epochs = 15.0  # as demo.sh
  config.train.log_every = 10
  config.train.eval_every = 200
  config.train.checkpoint_every = 200
  config.eval.global_batch = 64
  config.eval.max_windows = 1_024
  return config.lock()
