"""word2vec on a folder of books: vectors of words on one small machine.

Hardware: 2 CPU cores, 2 minutes.

On 100 English novels (lower-cased, 16 M words with marks, 5 passes), 3 seeds,
on 2 CPU cores: 34.3 % of the analogies among 30,000 words, WordSim-353 0.508,
2.1 M words/s; `word2vec_novels:cbow` 33.8 %, 0.439 and 4.1 M words/s; fastText
(`--config.model.buckets=2000000`) 74.6 %, 0.424 and 0.9 M words/s.

  python -m train.main --config word2vec_novels \
    --config.data.source='books/*.txt'
"""

import ml_collections

from configs.sections import words as words_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` may be 'cbow'."""
  config = words_section.get_word2vec_config()
  if arg not in ('', 'cbow'):
    raise ValueError(f"{arg!r}: expected 'cbow', or nothing for skip-gram")
  if arg == 'cbow':
    config.train.objective = 'cbow'
    config.optim.learning_rate = 0.05  # word2vec.c's
  config.objective.sample = 1e-4
  config.objective.updates = 128
  config.data.source = 'books/*.txt'
  config.data.tokenizer = 'train:words:100000'
  config.train.phases = ((1, 1024, 128, 'continue'),)
  config.train.num_epochs = 5.0
  config.train.log_every = 10
  config.train.eval_every = 1_000
  config.train.checkpoint_every = 1_000
  config.eval.global_batch = 16
  config.eval.max_windows = 128
  return config.lock()
