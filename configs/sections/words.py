"""Vectors of words: word2vec and GloVe."""

import ml_collections

from configs import base


def get_word2vec_config() -> ml_collections.ConfigDict:
  """Returns the defaults of word2vec, as released but for its batches."""
  model, objective = _tables(), _counts()
  model.name = 'word2vec'  # the family
  # The largest distance of neighbours; each word draws a distance up to it.
  model.window = 5
  model.negative = 5  # sampled words of a pair; 0: none
  model.hierarchical = False  # Predicts words along a Huffman tree.
  # Rows of the table of hashed parts of words (fastText); 0: none.
  model.buckets = 0
  # Letters of the shortest and of the longest part of a word.
  model.part_sizes = (3, 6)

  # Words above this frequency are left out at random. 0: no word is left out.
  objective.sample = 1e-3
  # 'batched', or 'sequential': each pair sees the changes by the pairs before.
  objective.order = 'batched'
  # A word with more pairs in an update changes as if it had so many.
  objective.most_pairs = 64.0

  optim = base.schedule()
  optim.update(name='sgd', learning_rate=0.025)  # 0.05 for cbow
  optim.warmup_steps = 0
  config = base.pretraining(model, optim, objective)
  config.train.objective = 'skipgram'  # or 'cbow'
  return config


def get_glove_config() -> ml_collections.ConfigDict:
  """Returns the defaults of GloVe, as released but for its batches."""
  model, objective = _tables(), _counts()
  model.name = 'glove'  # the family
  objective.window = 15  # the largest distance of neighbours
  # Pairs that are counted so often, or more often, have a weight of 1.
  objective.x_max = 100.0
  # Pairs that are counted less often have a weight of (count / x_max)^alpha.
  objective.alpha = 0.75
  optim = base.schedule()
  optim.update(name='adagrad', schedule='constant', learning_rate=0.05)
  optim.warmup_steps = 0
  config = base.pretraining(model, optim, objective)
  config.train.objective = 'glove'
  return config


def _tables() -> ml_collections.ConfigDict:
  model = ml_collections.ConfigDict()
  model.embed_dim = 100  # D, the width of the vectors
  model.dtype = 'float32'  # of activations; parameters are always float32
  return model


def _counts() -> ml_collections.ConfigDict:
  objective = ml_collections.ConfigDict()
  objective.min_count = 5  # words that come less often are left out
  objective.updates = 64  # parts of a batch, each of which is an update
  # Number of k-means classes of words that are written at the end. 0: none.
  objective.classes = 0
  return objective
