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
  # Weights of the losses; that of cosines needs the width of the teacher.
  distill.soft_weight = 5.0  # of the teacher's probabilities of masked tokens
  distill.mlm_weight = 2.0  # of the masked tokens themselves
  distill.cosine_weight = 1.0  # of the directions of the last hidden states
  # Of how queries, keys and values of the last layer relate (MiniLM's).
  distill.relation_weight = 0.0
  distill.relation_heads = 48  # into which both widths are split for it
  # The teacher's layer, from 1, to which the student's last is compared; None:
  # its last.
  distill.relation_layer = config_dict.placeholder(int)
  config.train.objective = 'distil'
  # The workdir of a finished run, or a folder of published weights.
  config.init.teacher = config_dict.placeholder(str)
  # The layers of init.weights that the model begins with, as of a fine-tuning.
  config.init.layers = config_dict.placeholder(str)
  return config


def of_task(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Adds the keys of a teacher to the config of a fine-tuning."""
  config = config.unlock()
  distill = config.distill = ml_collections.ConfigDict()
  # The distance to the teacher: of 'probabilities' (Hinton et al. 2015), or of
  # 'logits' (its limit at a high temperature; Tang et al. 2019). Of scores:
  # always the squared distance.
  distill.loss = 'probabilities'
  distill.temperature = 2.0  # T, by which both models' logits are divided
  # The weight of the labels' loss; the teacher's has the rest of 1.
  distill.label_weight = 0.5
  # A file of further rows, whose labels come from the teacher alone: .txt (a
  # text a line, of a pair with a tab between), or as train.predict --input.
  distill.text = config_dict.placeholder(str)
  # The workdir of a finished run, or a folder of published weights.
  config.init.teacher = config_dict.placeholder(str)
  return config
