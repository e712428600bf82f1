"""Distillation: fine-tunings and pre-trainings that learn from a teacher."""

import ml_collections
from ml_collections import config_dict

from configs import base
from configs.sections import task, task_models


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of a fine-tuning with a teacher."""
  return of_task(task.get_config())


def get_words_config() -> ml_collections.ConfigDict:
  """Returns the defaults of a task model of words with a teacher."""
  return of_task(task_models.get_config())


def get_bert_config() -> ml_collections.ConfigDict:
  """Returns the defaults of a BERT's pre-training with a teacher."""
  config = base.get_config()
  distill = config.distill = ml_collections.ConfigDict()
  distill.temperature = 2.0  # T, by which both models' logits are divided
  # Weight of the distance to the teacher's probabilities of masked tokens.
  distill.soft_weight = 5.0
  distill.mlm_weight = 2.0  # weight of the loss of the masked tokens themselves
  # Weight of the distance between the directions of the last hidden states,
  # which needs a student of the teacher's width.
  distill.cosine_weight = 1.0
  # Weight of the distance between relations of queries, keys and values in the
  # last layer (MiniLM's).
  distill.relation_weight = 0.0
  distill.relation_heads = 48  # how many parts both widths are split into
  # The teacher's layer, from 1, whose relations the student's last layer is
  # compared with. Empty: the teacher's last layer.
  distill.relation_layer = config_dict.placeholder(int)
  config.train.objective = 'distil'
  # The workdir of a finished run, or a folder of published weights.
  config.init.teacher = config_dict.placeholder(str)
  # The layers of init.weights that the model begins with, as in a fine-tuning.
  config.init.layers = config_dict.placeholder(str)
  return config


def of_task(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Adds the keys of a teacher to the config of a fine-tuning."""
  config = config.unlock()
  distill = config.distill = ml_collections.ConfigDict()
  # The distance to the teacher: between 'probabilities' (Hinton et al. 2015),
  # or between 'logits' (the limit at a high temperature; Tang et al. 2019). For
  # scores it is always the squared distance.
  distill.loss = 'probabilities'
  distill.temperature = 2.0  # T, by which both models' logits are divided
  # The weight of the labels' loss; the teacher's has the rest of 1.
  distill.label_weight = 0.5
  # A file of further rows, which only the teacher labels: .txt (a text a line,
  # or a pair with a tab between its texts), or as train.predict --input.
  distill.text = config_dict.placeholder(str)
  # The workdir of a finished run, or a folder of published weights.
  config.init.teacher = config_dict.placeholder(str)
  return config
