"""ELMo's task models (Peters et al. 2018)."""

import ml_collections
from ml_collections import config_dict

from configs.sections import task as tasks


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of ELMo's task models (Peters et al. 2018)."""
  placeholder = config_dict.placeholder
  model = ml_collections.ConfigDict()
  # 'bcn', 'esim', 'bilstm_crf', 'bilstm_attention', 'deep_srl', 'e2e_coref',
  # 'bidaf_plus' or 'bidaf'.
  model.name = 'bcn'  # the task model
  # 'published'; 'allennlp', AllenNLP's form of deep_srl or e2e_coref;
  # 'allennlp_elmo', AllenNLP's form of deep_srl above ELMo; '2018', the later
  # form of e2e_coref by its authors.
  model.variant = 'published'
  model.lstm_dim = 300  # F, cells of each layer and direction of the LSTMs
  model.num_layers = 1  # layers of the first LSTM; a bcn and an esim have 1
  # Width of the linear layers. Taggers and question models do not use it.
  model.hidden_dim = 300
  # What drops out: in bcn only the vectors of words, in deep_srl the hidden
  # states, in the other models all layers.
  model.dropout_rate = 0.5
  model.char_embed_dim = 16  # E, below the filters
  # (width, number) of the filters on a word's characters; empty: none.
  model.filters = ()
  model.dtype = 'float32'  # of activations; parameters are always float32

  task = tasks.common_task()
  # Tasks that are trained together, instead of task.name.
  task.names = ()
  # A file of vectors of words, by GloVe or word2vec. Empty: random vectors.
  task.word_vectors = placeholder(str)
  task.word_dim = 100  # the width of random vectors; 0: no vectors of words
  # How texts become words: 'marks' (punctuation and English clitics are words
  # of their own) or 'spaces' (white space alone).
  task.split = 'marks'
  task.lower_words = False  # Looks words up in lower case.
  # Does not train the vectors of word_vectors.
  task.fixed_words = False
  # Vectors of words that the file lacks: 'normal' (random) or 'zero'.
  task.unknown_words = 'normal'
  # What is read from the language model, init.weights: the learned 'mix' of its
  # layers, the 'last' layer or the plain 'average', each with a learned scale.
  task.features = 'mix'
  # Where this joins the words: beside their vectors ('input'), beside the first
  # BiLSTM's outputs ('output'), or in 'both' places.
  task.mix_at = 'input'
  task.mix_dropout = 0.0  # dropout of the mix of layers
  task.mix_layer_norm = False  # Normalises each layer before the mix.

  config = tasks.fine_tuning(model, task)
  data = config.data
  # The folder of the language model's layers, which are computed only once.
  # Empty: ~/.cache/sesame/word_vectors.
  data.cache = placeholder(str)
  # Weights of the language model below, which is not trained. Empty: none.
  config.init.weights = placeholder(str)

  optim = config.optim
  optim.update(name='adamw', schedule='constant', warmup_fraction=0.0)
  optim.update(epsilon=1e-8, weight_decay=0.0)
  # Decay of running averages of the parameters; the averages are scored and
  # kept. 0: no averages.
  optim.average = 0.0
  config.train.update(count='rows', select='best')
  return config
