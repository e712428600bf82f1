"""Fine-tunings: the task, its sets, the steps."""

import ml_collections
from ml_collections import config_dict

from configs import base


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of fine-tuning, from BERT's release."""
  model = base.bert_model()
  model.scan_layers = False  # init.weights, if set, decide the sizes
  task = common_task()
  # Tags each sentence while reading its neighbours, too.
  task.document_context = False
  task.lm_weight = 0.0  # weight of the language model's loss beside the task's
  # Trains only the modules above the encoder.
  task.frozen = False
  task.bilstm_layers = 0  # bidirectional LSTM layers between encoder and head
  task.bilstm_dim = 768  # cells of each direction

  config = fine_tuning(model, task)
  # How many of the first layers of the weights are taken; the other layers are
  # initialised at random. Empty: all are taken.
  config.init.num_layers = config_dict.placeholder(int)
  # The model has only these layers of the weights: 'every:2' (0, 2, 4, ...),
  # 'first:3', numbers such as '0,5,11', or 'all'. Empty: all.
  config.init.layers = config_dict.placeholder(str)
  return config


def fine_tuning(
  model: ml_collections.ConfigDict, task: ml_collections.ConfigDict
) -> ml_collections.ConfigDict:
  """Returns the config of a fine-tuning from the sections that differ."""
  config = ml_collections.ConfigDict()
  config.model, config.task, config.own = model, task, own_set()
  config.data, config.mesh = sets(), base.devices()
  optim = config.optim = base.rate()
  optim.update(base.moments())
  optim.learning_rate = 3e-5
  optim.warmup_fraction = 0.1  # share of all steps in which the rate grows
  config.train = base.steps()
  config.train.update(epochs())
  config.eval = ml_collections.ConfigDict()
  config.eval.global_batch = 64  # rows that are scored at a time
  config.init = ml_collections.ConfigDict()
  # As in pre-training. Empty: the model begins from scratch, and data.tokenizer
  # is needed.
  config.init.weights = config_dict.placeholder(str)
  return config


def common_task() -> ml_collections.ConfigDict:
  """Returns the keys of a task that every model has."""
  placeholder = config_dict.placeholder
  task = ml_collections.ConfigDict()
  # A task of data/tasks/registry.py, or 'own', see config.own below.
  task.name = 'sst2'
  # Other languages to score, such as ('de', 'zh'), beside the language that the
  # task trains on. See data/README.md.
  task.test_languages = ()
  # Tokens of an input; longer inputs are cut or read in windows.
  task.max_length = 128
  # Which part of a too long text is read, if it has a class or a score: 'head',
  # 'tail', 'both' (a quarter of the row from the head, the rest from the tail),
  # or all of it in 'windows', whose predictions are averaged.
  task.long_text = 'head'
  # Tokens between the starts of the windows of a long text.
  task.doc_stride = 128
  task.max_question = 64  # tokens of a question; longer ones are cut
  task.max_answer = 30  # tokens of an answer
  task.n_best = 20  # how many candidate answers are kept
  # Number of classes that a score is split into, as in GPT's release. 0:
  # regression.
  task.soft_classes = 0
  # The weight of each label in the loss; empty: all equal.
  task.class_weights = ()
  # What the head reads: 'last', 'first' (the embeddings), 'second_to_last',
  # 'sum_last_4', 'concat_last_4', 'sum_all' or 'mix', a learned average of all
  # layers.
  task.features = 'last'
  # Lambda of the loss lambda * sum(w^2) on the weights of the mix: 1 keeps them
  # equal, 0.001 lets them differ (Peters et al. 2018, section 5.1).
  task.mix_l2 = placeholder(float)
  # 'iob2' or 'bioul': a linear-chain CRF on tags of that scheme. 'viterbi': no
  # CRF, but the best path that IOB2 allows, by the sum of its log-
  # probabilities; 'viterbi_probabilities': by the sum of its probabilities.
  # Empty: each tag is predicted by itself.
  task.crf = ''
  return task


def own_set() -> ml_collections.ConfigDict:
  """Returns the keys of a user's own task, see data/tasks/own.py."""
  placeholder = config_dict.placeholder
  own = ml_collections.ConfigDict()
  # 'classification', 'regression', 'choice', 'tagging', 'roles', 'coreference'
  # or 'span'.
  own.kind = placeholder(str)
  # Files in data.source: .jsonl, .csv with a line of titles (both perhaps .gz),
  # .parquet, .arrow, or any other name for tab-separated columns; or splits of
  # data.source=hf:NAME.
  own.train = 'train.jsonl'
  own.dev = 'dev.jsonl'  # scored to choose the best model
  # Scored at the end; it may lack labels.
  own.test = placeholder(str)
  own.text = ('text',)  # fields or columns of one text or two
  own.label = 'label'  # field or column of the label
  # Says that the order of the two texts means nothing.
  own.symmetric = False
  # All labels in order. Empty: the labels of the training file, and for tags of
  # spans both B-TYPE and I-TYPE for each TYPE found there.
  own.labels = ()
  # (lowest, highest) score. Empty: as found in the training and dev files.
  own.score_range = placeholder(tuple)
  # Names of metrics; the first chooses the best model. Empty: the usual metrics
  # of the kind.
  own.metrics = ()
  return own


def sets() -> ml_collections.ConfigDict:
  """Returns the keys of the labelled sets."""
  placeholder = config_dict.placeholder
  data = ml_collections.ConfigDict()
  # A folder of the official files, or of such folders; or tfds, or tfds:FOLDER.
  data.source = placeholder(str)
  data.tokenizer = placeholder(str)  # Empty: the tokenizer of init.weights.
  # How many examples to train on, evenly spaced.
  data.train_limit = placeholder(int)
  # How many examples to score, evenly spaced.
  data.eval_limit = placeholder(int)
  # Makes batches of inputs of similar lengths, with less padding.
  data.bucket = True
  data.loader = 'plain'  # 'tf' (tf.data) or 'plain'; both give the same batches
  return data


def epochs() -> ml_collections.ConfigDict:
  """Returns the keys of the steps of a fine-tuning."""
  placeholder = config_dict.placeholder
  train = ml_collections.ConfigDict()
  train.num_epochs = 3.0  # times that the examples are read
  # How many steps E epochs of N examples have, with a batch of B: 'bert' (its
  # release: floor(N / B x E); for spans, N questions), 'gpt' (its release:
  # floor(N / B) an epoch) or 'rows' (ceil(N / B x E), with N rows of the model,
  # such as windows).
  train.count = 'bert'
  train.global_batch = 32  # examples of a step
  train.eval_every = placeholder(int)  # Steps between scores. Empty: an epoch.
  # Steps between checkpoints. Empty: eval_every.
  train.checkpoint_every = placeholder(int)
  train.select = 'last'  # which model is kept: 'last', or the 'best' on dev
  # Stops after so many scores without a new best score. Empty: never.
  train.patience = placeholder(int)
  # Halves the rate after more than so many scores in a row without a new best
  # score, whichever model is kept. Empty: never.
  train.plateau = placeholder(int)
  train.log_every = 20  # steps between two lines of the log

  # Replaces the steps that train.num_epochs would give.
  train.steps = placeholder(int)
  return train
