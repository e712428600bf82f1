"""Models of the Brown corpus, for python -m train.tables --table lm/brown.

Hardware: 2 CPU cores.

Bengio et al. 2003, Table 1: 800,000 words to train on, 17,905 types. The table
makes the store of the text and sets data.folder. Rates, decay and the number of
epochs were chosen on the 200,000 words that follow the training text; the table
says among how many settings.

  python -m train.main --config brown:nnlm \
    --config.data.folder=runs/tables/lm_brown/store

The argument is nnlm (n = 5, h = 50, m = 60, direct connections; the paper's
best one alone), lstm, gpt or elmo.
"""

import ml_collections

from configs import variants
from configs.sections import elmo as elmo_section
from configs.sections import gpt as gpt_section

EPOCH = 800_000  # words
LENGTH = 64


def get_config(arg: str = 'nnlm') -> ml_collections.ConfigDict:
  """Returns the config of a model: nnlm, lstm, gpt or elmo."""
  makers = {'nnlm': _nnlm, 'lstm': _lstm, 'gpt': _gpt, 'elmo': _elmo}
  if arg not in makers:
    raise ValueError(f'brown:{arg}: expected {", ".join(makers)}')
  config = makers[arg]()
  config.data.held_out = 0.2
  config.eval.max_windows = 128
  return config.lock()


def _train(
  config: ml_collections.ConfigDict, epochs: int, rows: int, length: int
) -> None:
  """Sets the steps, an evaluation and a checkpoint each epoch."""
  steps = EPOCH // (rows * length)
  config.train.phases = ((epochs * steps, length, rows, 'continue'),)
  config.train.eval_every = steps
  config.train.checkpoint_every = steps


def _adam(config: ml_collections.ConfigDict, rate: float, decay: float) -> None:
  config.optim.update(name='adamw', schedule='linear', epsilon=1e-8)
  config.optim.update(learning_rate=rate, weight_decay=decay, warmup_steps=100)


def _nnlm() -> ml_collections.ConfigDict:
  config = gpt_section.get_nnlm_config()
  config.model.update(hidden_dim=50, max_length=512, num_samples=1_024)
  config.model.dropout_rate = 0.3
  _train(config, 4, 16, LENGTH)
  _adam(config, 3e-3, 0.1)
  return config


def _lstm() -> ml_collections.ConfigDict:
  config = gpt_section.get_lstm_config()
  config.model.update(embed_dim=128, lstm_dim=256, dropout_rate=0.2)
  config.model.max_length = 2 * LENGTH
  _train(config, 6, 16, LENGTH)
  _adam(config, 2e-3, 0.01)
  config.init.stddev = 0.05
  return config


def _gpt() -> ml_collections.ConfigDict:
  config = gpt_section.get_config()
  variants.fit_cpu(config)
  config.model.update(variants.pick(variants.GPT, 'gpt-tiny'))
  config.model.max_length = 2 * LENGTH
  config.model.update(dropout_rate=0.2, attention_dropout_rate=0.0)
  _train(config, 6, 8, 2 * LENGTH)
  _adam(config, 1e-3, 0.1)
  config.init.update(stddev=0.05, position_stddev=0.05)
  return config


def _elmo() -> ml_collections.ConfigDict:
  config = elmo_section.get_config()
  config.model.update(variants.pick(variants.ELMO, 'elmo-tiny'))
  config.model.update(num_samples=1_024, dropout_rate=0.1)
  _train(config, 6, 32, 20)
  config.eval.global_batch = 64
  return config
