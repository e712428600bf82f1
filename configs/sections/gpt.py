"""GPT, and the LSTM and the feed-forward network that take its place."""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of GPT, with its release's optimiser."""
  config = get_gpt2_config()
  config.model.name = 'gpt'  # the family
  config.model.update(base.layer_form())
  return config


def get_gpt2_config() -> ml_collections.ConfigDict:
  """Returns the defaults of GPT-2, whose layers have a fixed form."""
  model = base.transformer()
  model.update(base.null_key())
  model.name = 'gpt2'  # the family
  config = _next_tokens(model)
  config.init.update(base.drawn_transformer())
  config.data.update(base.rows())
  return config


def _next_tokens(model: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  optim = base.adam()
  optim.update(name='gpt_adam', schedule='cosine', epsilon=1e-8)
  config = base.pretraining(model, optim)
  config.train.objective = 'lm'
  config.eval.global_batch = 64
  config.init.update(base.drawn_matrices())
  return config


def get_lstm_config() -> ml_collections.ConfigDict:
  """Returns the defaults of the LSTM in GPT's place."""
  model = ml_collections.ConfigDict()
  model.name = 'lstm'  # the family
  model.num_layers = 1  # L
  model.embed_dim = 768  # D, the width of embeddings and hidden states
  model.lstm_dim = 2048  # F, cells
  # The longest text that is read at once; there are no positions.
  model.max_length = 512
  # Dropout of the layers' inputs and of the last layer's output.
  model.dropout_rate = 0.1
  model.dtype = 'float32'  # of activations; parameters are always float32
  return _next_tokens(model)


def get_nnlm_config() -> ml_collections.ConfigDict:
  """Returns the defaults of Bengio et al. 2003's network, MLP10 of Table 2."""
  model = ml_collections.ConfigDict()
  model.name = 'nnlm'  # the family
  model.embed_dim = 60  # m
  model.hidden_dim = 100  # h
  model.order = 5  # n of the n-grams, the predicted word included
  # Also connects the vectors of words directly with the softmax.
  model.direct = True
  model.num_samples = 0  # sampled words of the loss; 0: all words
  model.dropout_rate = 0.0  # of the vectors of words and of the hidden units
  # The longest text that is read at once; there are no positions.
  model.max_length = 512
  model.dtype = 'float32'  # of activations; parameters are always float32
  config = _next_tokens(model)
  config.optim.update(name='sgd', schedule='inverse', warmup_steps=0)
  config.optim.weight_decay = 1e-4
  return config
