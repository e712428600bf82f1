"""The hours that the runs of a table of small pre-trainings will take.

Each run has a guess of its seconds, by its parameters and tokens. Finished runs
correct the guesses of their kind.
"""

from collections.abc import Sequence
from typing import NamedTuple

import ml_collections

from configs import variants
from train.run import training_phases

# FLOP/s of a core: 0.28 s a step of ablation:gpt, 0.22 s of ablation:lstm and
# 0.16 s of ablation:bert,no_nsp, 4,096 tokens each (results/README.md). On
# another machine these took three times as long.
SPEED = 1.1e11
START = 20  # seconds in which a run starts, compiles and scores
WORD_VECTORS = 60  # seconds: 80 M words at 2 M a second (word2vec_novels)
# Seconds of an example, read once, by results/tables/sesame_elmo.
WORD_MODELS = {
  'bcn': 2e-3,
  'bilstm_attention': 4e-3,
  'bilstm_crf': 2.5e-3,
  'bidaf': 45e-3,
}
# Tokens of an example, about.
TOKENS = {
  'sst2': 12,
  'mrpc': 54,
  'stsb': 30,
  'cola': 11,
  'panx_en': 12,
  'squad1': 190,
}
PAIR_TOKENS = 12  # of a sentence of BLiMP
PARADIGMS = 67  # of BLiMP


class Duration(NamedTuple):
  """The seconds of a run; runs of a kind take time alike.

  Attributes:
    seconds: guessed by parameters and tokens.
    taken: seconds that it took; None: it is not finished.
  """

  kind: str
  seconds: float
  taken: float | None = None


def add_up(missing: Sequence[Duration], finished: Sequence[Duration]) -> float:
  """Returns the seconds of missing runs, by those of finished ones."""
  return sum(
    each.seconds * _correction(each.kind, finished) for each in missing
  )


def _correction(kind: str, finished: Sequence[Duration]) -> float:
  alike = [each for each in finished if each.kind == kind] or finished
  if not alike:
    return 1.0
  return sum(each.taken for each in alike) / sum(each.seconds for each in alike)


def of_pretraining(config: ml_collections.ConfigDict) -> Duration:
  """Returns the duration of a pre-training."""
  kind = f'pre-training of {config.model.name}'
  if config.train.num_epochs is not None:
    return Duration(kind, WORD_VECTORS)
  tokens = sum(
    steps * length * rows
    for steps, length, rows, *_ in training_phases.check_phases(config)
  )
  weights = _layers(config.model) + _softmax(config)
  return Duration(kind, START + 6 * weights * tokens / SPEED)


def of_tuning(
  config: ml_collections.ConfigDict,
  pretraining: ml_collections.ConfigDict,
  examples: int,
) -> Duration:
  """Returns the duration of one seed of a fine-tuning of a pre-training."""
  task, model = config.task, config.model.name
  read = examples * config.train.num_epochs
  if model in variants.WORD_MODELS:
    return Duration(f'{task.name}, {model}', START + read * WORD_MODELS[model])
  layers = _layers(pretraining.model)
  dim = task.bilstm_dim
  trained = task.bilstm_layers * 2 * 4 * dim * (2 * dim + dim)
  if task.lm_weight:
    trained += _softmax(pretraining)
  flops = 2 * layers + 6 * trained if task.frozen else 6 * (layers + trained)
  kind = f'{task.name}, {"frozen" if task.frozen else "fine-tuned"}'
  tokens = read * TOKENS.get(task.name, task.max_length / 2)
  return Duration(kind, START + flops * tokens / SPEED)


def of_pairs(config: ml_collections.ConfigDict, limit: int) -> Duration:
  """Returns the duration of scoring so many of each paradigm's pairs."""
  tokens = PARADIGMS * limit * 2 * PAIR_TOKENS
  vocabulary = _vocabulary(config)
  weights = _layers(config.model) + vocabulary
  if config.train.objective != 'lm':  # each token is hidden in turn
    weights = PAIR_TOKENS * _layers(config.model) + vocabulary
  return Duration('pairs', START + 2 * weights * tokens / SPEED)


def of_perplexity(config: ml_collections.ConfigDict) -> Duration:
  """Returns the duration of scoring held-out text."""
  *_, last = training_phases.check_phases(config)
  tokens = config.eval.max_windows * last.length
  weights = _layers(config.model) + _softmax(config)
  return Duration('perplexity', START + 2 * weights * tokens / SPEED)


def _layers(model: ml_collections.ConfigDict) -> int:
  """Returns the parameters of the layers: embeddings are only looked up."""
  width = model.embed_dim
  if 'lstm_dim' in model:
    cells = model.lstm_dim
    return model.num_layers * cells * (4 * (width + cells) + width)
  matrices = 3 if model.gated else 2
  return model.num_layers * width * (4 * width + matrices * model.mlp_dim)


def _vocabulary(config: ml_collections.ConfigDict) -> int:
  """Returns the parameters of the softmax, of a train:KIND:SIZE[:cased]."""
  size = next(filter(str.isdecimal, config.data.tokenizer.split(':')))
  return int(size) * config.model.embed_dim


def _softmax(config: ml_collections.ConfigDict) -> float:
  """Returns these, times the share of the tokens that are predicted."""
  is_lm = config.train.objective == 'lm'
  return _vocabulary(config) * (1 if is_lm else config.objective.mask_rate)
