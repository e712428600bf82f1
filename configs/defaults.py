"""The defaults of each family of models and of fine-tuning."""

import ml_collections

from configs import base, variants

# Configs with other keys than BERT and GPT.
FAMILIES = {
  'task': base.get_task_config,
  'words': base.get_words_config,
  'elmo': base.get_elmo_config,
  'lstm': base.get_lstm_config,
  'nnlm': base.get_nnlm_config,
  'word2vec': base.get_word2vec_config,
  'glove': base.get_glove_config,
}


def get_defaults(
  config: ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  """Returns the defaults with the same keys as a config."""
  name = config.model.name
  if 'task' in config:
    name = 'words' if name in variants.WORD_MODELS else 'task'
  return FAMILIES.get(name, base.get_config)()
