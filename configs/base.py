"""Every key of a config, with its default and what it means."""

import ml_collections
from ml_collections import config_dict


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of BERT and GPT; shipped configs override some."""
  placeholder = config_dict.placeholder
  config = ml_collections.ConfigDict()

  config.model = ml_collections.ConfigDict()
  model = config.model
  model.name = 'bert'  # picks the module: bert, gpt or gpt2
  model.left_to_right = False  # a bert that sees no later token, as gpt always
  model.num_layers = 2  # L
  model.embed_dim = 128  # D, width of the hidden states
  model.num_heads = 2  # N, divides embed_dim
  model.mlp_dim = 512  # F, width inside the feed-forward blocks
  model.max_length = 512  # rows of the position table
  model.dropout_rate = 0.1  # embeddings and sub-layer outputs
  model.attention_dropout_rate = 0.1  # attention probabilities
  model.gelu = 'tanh'  # 'erf' (BERT's release of 2018-10-31) or 'tanh' (later)
  model.dtype = 'float32'  # of activations; parameters stay float32
  model.scan_layers = True  # one compiled layer in a loop, or all unrolled
  model.remat = False  # recompute activations in the backward pass

  config.data = ml_collections.ConfigDict()
  data = config.data
  data.source = 'manual'  # manual, a path, a glob, or tfds:NAME
  # Or a vocab.txt, or a folder: that of init.weights, where they lack theirs.
  data.tokenizer = 'train:wordpiece:6000'
  # The token store, taken as it is where it stands; else it is built there
  # from source and tokenizer, by default under runs/stores.
  data.folder = placeholder(str)
  data.cache = placeholder(str)  # local copy of a remote store, once a host
  data.document_break = placeholder(str)  # file, blank_line or a regex
  data.held_out = 0.05  # share of the tokens kept for evaluation
  data.loader = 'tf'  # tf (tf.data, ahead of time) or plain (same batches)

  config.objective = ml_collections.ConfigDict()
  objective = config.objective
  objective.mask_rate = 0.15  # share of tokens predicted
  objective.mask_fraction = 0.8  # of those: replaced by [MASK]
  objective.random_fraction = 0.1  # of those: replaced by a random token
  objective.whole_word = False  # mask words, not pieces

  config.optim = ml_collections.ConfigDict()
  optim = config.optim
  # bert_adam (as BERT was released, without bias correction), gpt_adam (as GPT
  # was released: the correction scales the decay too), adamw (the usual one),
  # lamb (adamw scaled to each matrix, for large batches), adafactor (little
  # memory; rates relative to each matrix; no beta1, beta2, epsilon) or adagrad
  # (as ELMo was released; no beta1, beta2, epsilon).
  optim.name = 'bert_adam'
  optim.learning_rate = 1e-4  # peak
  optim.warmup_steps = 10_000  # linear, from rate 0
  # Decay to 0: linear (BERT) or cosine (GPT); or constant (ELMo).
  optim.schedule = 'linear'
  # (learning_rate, warmup_steps) of each phase after the first that restarts
  # the schedule, in order; empty: the two above again.
  optim.restarts = ()
  optim.beta1 = 0.9  # decay of the gradient's mean
  optim.beta2 = 0.999  # decay of the squared gradient's mean
  optim.epsilon = 1e-6  # added outside of the root
  optim.weight_decay = 0.01  # not on biases, layer norms and layer mixes
  optim.clip_norm = 1.0  # of the global gradient

  config.mesh = ml_collections.ConfigDict()
  mesh = config.mesh
  mesh.data = -1  # copies of the model; -1: all devices that are left
  mesh.fsdp = 1  # shards of parameters and optimiser, batch split as well
  mesh.tensor = 1  # shards of heads, mlp and vocabulary
  # Logical axis of parameters (first block) and activations (second block)
  # -> mesh axes. Every name in the model has a rule here.
  mesh.rules = (
    ('layers', None),
    ('vocab', 'tensor'),
    ('words', ('fsdp', 'tensor')),  # ELMo's softmax
    ('towers', None),
    ('gates', None),
    ('length', None),
    ('types', None),
    ('classes', None),
    ('embed', 'fsdp'),
    ('embed_out', None),
    ('mlp', 'tensor'),
    ('qkv', None),
    ('heads', 'tensor'),
    ('head', None),
    ('batch', ('data', 'fsdp')),
    ('activation_length', None),
    ('activation_predictions', None),
    ('activation_embed', None),
    ('activation_mlp', 'tensor'),
    ('activation_heads', 'tensor'),
    ('activation_head', None),
    ('activation_qkv', None),
    ('activation_vocab', 'tensor'),
    ('activation_words', ('fsdp', 'tensor')),
    ('activation_rows', 'data'),  # where the words lie on the batch's fsdp
  )

  config.train = ml_collections.ConfigDict()
  train = config.train
  # Picks the loss: bert (masked tokens and next sentences), mlm (masked tokens
  # alone), or lm (the next token) for what reads in one direction.
  train.objective = 'bert'
  # (steps, length, global batch, schedule): 'continue' keeps the learning-rate
  # schedule, 'restart' warms up anew.
  train.phases = ((1_000, 128, 32, 'continue'),)
  train.steps = placeholder(int)  # overrides the steps of a single phase
  train.num_epochs = placeholder(float)  # the same, counted in epochs
  train.global_batch = placeholder(int)  # overrides that of a single phase
  train.micro_batches = 1  # gradient accumulation: parts of a global batch
  train.seed = 0  # of parameters, order, pairs, masks and dropout
  train.log_every = 50  # steps between rows of metrics.csv
  train.eval_every = 10_000  # steps between evaluations
  train.checkpoint_every = 1_000  # steps between checkpoints
  train.keep_checkpoints = 3  # the newest so many
  train.platform = 'tpu'  # refuse to train on another: cpu, gpu or tpu
  # On a GPU: refuse to start unless XLA_FLAGS asks for deterministic kernels.
  train.deterministic = False
  # Without a step or a batch of an evaluation: print all stacks and stop. What
  # is compiled gets 4 times as long, and an hour at least.
  train.hang_minutes = 60.0
  train.profile = ()  # (first step, number of steps) to trace; empty: none
  train.peak_tflops = placeholder(float)  # of a device, for MFU

  config.eval = ml_collections.ConfigDict()
  config.eval.global_batch = 256  # rows scored at a time
  config.eval.max_windows = 20_000  # held-out windows scored at each evaluation
  config.eval.draws = 1  # times each is scored, with other pairs and masks

  config.init = ml_collections.ConfigDict()
  config.init.stddev = 0.02  # of matrices and the token table
  config.init.position_stddev = 0.02  # of position and type tables
  # If not 0, heads start by looking near: a token's score with itself.
  config.init.self_score = 0.0
  # Start from the parameters of a workdir, of a folder of published weights, or
  # of weights named on Hugging Face's hub (google-bert/bert-base-uncased).
  config.init.weights = placeholder(str)
  # Let the text have more pieces, and the model more positions, than those
  # weights: the rows of these are drawn anew.
  config.init.new_rows = False

  return config


def get_lstm_config() -> ml_collections.ConfigDict:
  """Returns the defaults of the LSTM in GPT's place: GPT's, but for it."""
  config = get_config()
  del config.objective
  config.model = ml_collections.ConfigDict()
  model = config.model
  model.name = 'lstm'
  model.num_layers = 1  # L
  model.embed_dim = 768  # D, width of embeddings and hidden states
  model.lstm_dim = 2048  # F, cells
  model.max_length = 512  # longest text read at once; there are no positions
  model.dropout_rate = 0.1  # inputs of the layers and the last one's output
  model.dtype = 'float32'  # of activations; parameters stay float32

  config.train.objective = 'lm'
  return config


def get_elmo_config() -> ml_collections.ConfigDict:
  """Returns the defaults of ELMo: those above, but for what is BERT's."""
  config = get_config()
  del config.objective
  config.model = ml_collections.ConfigDict()
  model = config.model
  model.name = 'elmo'
  model.num_layers = 2  # L, of each direction
  model.lstm_dim = 4096  # F, cells
  model.projection_dim = 512  # P, width of the hidden states of a direction
  model.characters = True  # words as their characters, else by a table
  model.char_embed_dim = 16  # E
  model.filters = ((1, 32), (2, 32))  # (width, count), on characters
  model.num_highway = 2  # layers after the filters
  model.cell_clip = 3.0  # largest absolute value in a cell
  model.projection_clip = 3.0  # and of a hidden state
  model.dropout_rate = 0.1  # inputs of the layers and the last one's output
  model.num_samples = 8192  # S, words that the loss is drawn from; 0: all
  model.dtype = 'float32'  # of activations; parameters stay float32

  config.train.objective = 'lm'
  # As released (bilm-tf, training.py and bin/train_elmo.py).
  config.optim.name = 'adagrad'
  config.optim.learning_rate = 0.2
  config.optim.schedule = 'constant'
  config.optim.warmup_steps = 0
  config.optim.weight_decay = 0.0
  config.optim.clip_norm = 10.0
  # When a run continues, forget what its rows have read; a must where the
  # global batch has changed.
  config.train.reset_streams = False
  return config


def get_task_config() -> ml_collections.ConfigDict:
  """Returns the defaults of fine-tuning: those of BERT's release."""
  config = get_config()
  del config.objective
  placeholder = config_dict.placeholder
  model = config.model
  # The sizes are those of init.weights, whatever stands here, where it is set.
  model.scan_layers = False

  config.task = ml_collections.ConfigDict()
  task = config.task
  task.name = 'sst2'  # see data/tasks/registry.py; own: as the keys of own say
  task.max_length = 128  # tokens of an input; longer ones are cut or windowed
  task.document_context = False  # tag sentences among their neighbours
  task.doc_stride = 128  # tokens from one window of a long text to the next
  task.max_question = 64  # tokens of a question, which is cut there
  task.max_answer = 30  # tokens of an answer
  task.n_best = 20  # answers that are looked at
  task.lm_weight = 0.0  # of the language model's loss, beside the task's (GPT)
  task.soft_classes = 0  # of scores (GPT); 0: squared error
  task.class_weights = ()  # of the loss, one a label; empty: all alike
  # What feeds the head: last, first (the embeddings), second_to_last,
  # sum_last_4, concat_last_4, sum_all, or mix, a learned average of all layers.
  task.features = 'last'
  # lambda of a loss lambda * sum(w^2) on the weights of the mix, as ELMo's: 1
  # keeps them alike, 0.001 lets them choose (Peters et al. 2018, section 5.1).
  task.mix_l2 = placeholder(float)
  task.frozen = False  # train only what is on top of the encoder
  task.bilstm_layers = 0  # of a bidirectional LSTM between encoder and head
  task.bilstm_dim = 768  # its width, of each direction

  # A set of one's own (task.name='own'), see data/tasks/own.py.
  config.own = ml_collections.ConfigDict()
  own = config.own
  # classification, regression, choice, tagging or span
  own.kind = placeholder(str)
  # Files in data.source, .gz or not: .jsonl; .csv with a header; else tabs.
  own.train = 'train.jsonl'
  own.dev = 'dev.jsonl'  # to choose by
  own.test = placeholder(str)  # to score at the end; may be without labels
  own.text = ('text',)  # fields or columns of the text, or of the two texts
  own.label = 'label'  # that of the label
  own.symmetric = False  # neither of two texts comes first
  own.labels = ()  # all of them, in order; empty: those of the training file
  own.score_range = placeholder(tuple)  # (lowest, highest); by default theirs
  own.metrics = ()  # the first decides which model is best; empty: the usual

  config.data = ml_collections.ConfigDict()
  data = config.data
  # A folder of the official files, or of folders of several sets; or tfds,
  # tfds:FOLDER: by tensorflow-datasets, kept in that folder.
  data.source = placeholder(str)
  data.tokenizer = placeholder(str)  # by default that of init.weights
  data.train_limit = placeholder(int)  # evenly spaced examples to train on
  data.eval_limit = placeholder(int)  # and to score, of each split
  data.bucket = True  # batches of examples of like length, with less padding
  # tf (tf.data) or plain: the same batches, which cost the host little here.
  data.loader = 'plain'

  optim = config.optim
  del optim.warmup_steps, optim.restarts
  optim.learning_rate = 3e-5
  optim.warmup_fraction = 0.1  # of all steps

  train = config.train
  del train.phases, train.num_epochs, train.eval_every, train.checkpoint_every
  del train.keep_checkpoints, train.profile
  train.objective = 'task'
  train.num_epochs = 3.0
  # Steps of N examples, num_epochs E and batch B: bert (as released, run_squad
  # too: floor(N / B x E), of spans N is the questions), gpt (as released:
  # floor(N / B) an epoch) or rows (ceil(N / B x E), N the rows that the model
  # reads, windows of a question each for itself). At least 1.
  train.count = 'bert'
  train.global_batch = 32
  train.eval_every = placeholder(int)  # steps between scores of dev; an epoch
  train.checkpoint_every = placeholder(int)  # steps; as eval_every
  train.select = 'last'  # the model that is kept: the last, or the best on dev
  train.patience = placeholder(int)  # stop after so many scores without a best
  train.log_every = 20

  config.eval = ml_collections.ConfigDict()
  config.eval.global_batch = 64  # rows scored at a time

  config.init = ml_collections.ConfigDict()
  # A workdir, a folder of published weights, or their name on Hugging Face's
  # hub; empty: without pre-training, which needs data.tokenizer.
  config.init.weights = placeholder(str)
  # Only the first so many layers come from the weights; the others are drawn.
  config.init.num_layers = placeholder(int)
  return config
