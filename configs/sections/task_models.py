"""ELMo's task models (Peters et al. 2018)."""

import ml_collections
from ml_collections import config_dict

from configs.sections import task as tasks


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of ELMo's task models (Peters et al. 2018)."""
  placeholder = config_dict.placeholder
  model = ml_collections.ConfigDict()
  # Bcn, esim, bilstm_crf, bilstm_attention, deep_srl, e2e_coref, bidaf_plus or
  # bidaf.
  model.name = 'bcn'
  # 'published'; 'allennlp', its form of a deep_srl or an e2e_coref;
  # 'allennlp_elmo', its form of a deep_srl above ELMo; '2018', the later form
  # of an e2e_coref.
  model.variant = 'published'
  model.lstm_dim = 300  # F, cells of each layer and direction of the LSTMs
  model.num_layers = 1  # layers of the first LSTM; a bcn and an esim have 1
  # Width of the linear layers. Taggers and question models do not use it.
  model.hidden_dim = 300
  # Of a bcn: dropout of the vectors of words alone; of a deep_srl: of the
  # state; of the others: of all layers.
  model.dropout_rate = 0.5
  model.char_embed_dim = 16  # E, below the filters
  # (width, number) of the filters on a word's characters; empty: none.
  model.filters = ()
  model.dtype = 'float32'  # of activations; parameters are always float32

  task = tasks.common_task()
  # Tasks that are trained together, instead of task.name.
  task.names = ()
  # A file of vectors of words, of GloVe or word2vec. Empty: they are drawn.
  task.word_vectors = placeholder(str)
  task.word_dim = 100  # the width of drawn vectors; 0: no vectors of words
  # How texts become words: 'marks' (punctuation and English clitics are words
  # of their own) or 'spaces' (white space alone).
  task.split = 'marks'
  task.lower_words = False  # Looks words up in lower case.
  # Does not train the vectors of word_vectors.
  task.fixed_words = False
  # Vectors of words that the file lacks: 'normal' (drawn) or 'zero'.
  task.unknown_words = 'normal'
  # What is read of the language model of init.weights: 'mix', 'last' or
  # 'average' of its layers, each with a learned scale.
  task.features = 'mix'
  # Where it joins the words: at the 'input', the 'output', or 'both'.
  task.mix_at = 'input'
  task.mix_dropout = 0.0  # dropout of the mix of layers
  task.mix_layer_norm = False  # Normalises each layer before the mix.

  config = tasks.fine_tuning(model, task)
  data = config.data
  # Where the layers of the language model are kept, which are computed once.
  # Empty: ~/.cache/sesame/word_vectors.
  data.cache = placeholder(str)
  # Weights of the language model below, which is not trained. Empty: none.
  config.init.weights = placeholder(str)

  optim = config.optim
  optim.update(name='adamw', schedule='constant', warmup_fraction=0.0)
  optim.update(epsilon=1e-8, weight_decay=0.0)
  # Decay of the averages of the parameters, which are then scored and kept. 0:
  # no averages.
  optim.average = 0.0
  config.train.update(count='rows', select='best')
  return config
