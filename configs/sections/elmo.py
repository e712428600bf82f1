"""ELMo's pre-training."""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of ELMo."""
  model = ml_collections.ConfigDict()
  model.name = 'elmo'  # the family
  model.num_layers = 2  # L of each direction
  model.lstm_dim = 4096  # F, cells
  model.projection_dim = 512  # P, the width of the hidden states of a direction
  # Encodes words by their characters; False: by a table of words.
  model.characters = True
  model.char_embed_dim = 16  # E
  # (width, number) of the filters on characters.
  model.filters = ((1, 32), (2, 32))
  model.num_highway = 2  # highway layers after the filters
  model.cell_clip = 3.0  # the largest absolute value in a cell
  model.projection_clip = 3.0  # the largest absolute value in a hidden state
  # Dropout of the layers' inputs and of the last layer's output.
  model.dropout_rate = 0.1
  model.num_samples = 8192  # S, sampled words of the loss; 0: all words
  model.dtype = 'float32'  # of activations; parameters are always float32

  optim = base.adam()
  # As released (bilm-tf, training.py and bin/train_elmo.py).
  optim.update(name='adagrad', schedule='constant', warmup_steps=0)
  optim.update(learning_rate=0.2, weight_decay=0.0, clip_norm=10.0)
  config = base.pretraining(model, optim)
  train = config.train
  train.objective = 'lm'
  # Continues with empty LSTM states, which another batch size requires.
  train.reset_streams = False
  return config
