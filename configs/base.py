"""Every key of a config, with its default and its meaning."""

import ml_collections
from ml_collections import config_dict

from configs import mesh_rules


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of BERT; shipped configs override some."""
  placeholder = config_dict.placeholder
  config = ml_collections.ConfigDict()

  config.model = ml_collections.ConfigDict()
  model = config.model
  # The family of models: bert, gpt, gpt2, lstm, nnlm, elmo, word2vec or glove.
  model.name = 'bert'
  # Hides later tokens from a BERT. A GPT never sees them.
  model.left_to_right = False
  model.num_layers = 2  # L
  model.embed_dim = 128  # D, the width of the hidden states
  model.num_heads = 2  # N, a divisor of embed_dim
  model.mlp_dim = 512  # F, the width inside the feed-forward blocks
  model.max_length = 512  # rows of the position table
  model.dropout_rate = 0.1  # of embeddings and of the outputs of sub-layers
  model.attention_dropout_rate = 0.1  # of attention probabilities
  # 'erf' (BERT's first release, 2018-10-31), 'tanh' (its later ones), or 'relu'
  # in its place (ERNIE).
  model.gelu = 'tanh'
  model.dtype = 'float32'  # of activations; parameters are always float32
  # Compiles one layer and runs it in a loop; False compiles every layer.
  model.scan_layers = True
  # In training, so many of the last layers are compiled one by one after the
  # loop, which is faster on a TPU and takes longer to compile.
  model.unrolled_layers = 6
  # Computes activations again in the backward pass, to save memory.
  model.remat = False
  # 'plain', 'fused' (one TPU kernel), or 'auto': fused on a TPU where the sizes
  # allow it.
  model.attention = 'auto'
  # Gives each head a learned null key, with a value of 0.
  model.null_key = False

  config.data = ml_collections.ConfigDict()
  data = config.data
  # The text: 'manual' (Python's documentation), a path, a glob or tfds:NAME;
  # for several languages en=SOURCE,de=SOURCE.
  data.source = 'manual'
  # With several languages, one with a share p of the text gets a share
  # proportional to p^exponent of the examples, and of the words that a new
  # vocabulary is trained on.
  data.language_exponent = 0.7
  # train:KIND:SIZE trains a vocabulary; otherwise a vocab.txt, or a folder with
  # a vocabulary, such as that of init.weights.
  data.tokenizer = 'train:wordpiece:6000'
  # The token store; it is built if it is missing. Empty: in ./runs/stores.
  data.folder = placeholder(str)
  # Where remote stores are copied to. Empty: ~/.cache/sesame/stores.
  data.cache = placeholder(str)
  # Where documents end: 'file', 'blank_line' or a regular expression.
  data.document_break = placeholder(str)
  # What counts as a unit that is masked whole: 'wordpiece' (the pieces of a
  # word), 'file' (the text between tabs) or 'jieba' (its words). See
  # data/README.md.
  data.units = 'wordpiece'
  data.held_out = 0.05  # the share of the tokens that is kept for evaluation
  # 'tf' (tf.data, which prefetches) or 'plain'; both give the same batches.
  data.loader = 'tf'

  config.objective = ml_collections.ConfigDict()
  objective = config.objective
  objective.mask_rate = 0.15  # the share of tokens that are predicted
  objective.mask_fraction = 0.8  # the share of these that [MASK] replaces
  # The share of these that a random token replaces.
  objective.random_fraction = 0.1
  # What is masked whole: 'piece', 'word', 'span' (1 to 3 words), or 'stored',
  # the units of data.units.
  objective.unit = 'piece'
  # How many tokens are predicted: 'exact' (mask_rate of each row, as BERT) or
  # 'drawn' (each unit with that probability, as ERNIE).
  objective.counting = 'exact'

  config.optim = ml_collections.ConfigDict()
  optim = config.optim
  # bert_adam (BERT's release: no bias correction), gpt_adam (GPT's release:
  # bias correction scales the decay too), adamw, lamb (for large batches),
  # adadelta (with a rate of 1), adafactor (little memory; rates relative to
  # each matrix), adagrad (ELMo) or sgd (word2vec, nnlm). The last four do not
  # read beta1 and beta2; the last three do not read epsilon.
  optim.name = 'bert_adam'
  optim.learning_rate = 1e-4  # the peak
  optim.warmup_steps = 10_000  # steps in which the rate grows linearly from 0
  # The rate after the warm-up: 'linear' (BERT) or 'cosine' (GPT) to 0;
  # 'constant'; 'staircase' (times 0.999 after every 100 steps); or 'inverse'
  # (divided by 1 + 1e-8 times the tokens read).
  optim.schedule = 'linear'
  # (learning_rate, warmup_steps) of each 'restart' phase. Empty: those above.
  optim.restarts = ()
  optim.beta1 = 0.9  # decay of the mean of gradients
  optim.beta2 = 0.999  # decay of the mean of squared gradients
  optim.epsilon = 1e-6  # added to the root of the second moment
  # Of all parameters but biases, layer norms and the weights of layer mixes.
  optim.weight_decay = 0.01
  optim.clip_norm = 1.0  # the largest norm of the whole gradient

  config.mesh = ml_collections.ConfigDict()
  mesh = config.mesh
  # Copies of the model; -1: all devices that the other axes leave.
  mesh.data = -1
  mesh.fsdp = 1  # shards of parameters, optimiser state and batch
  mesh.tensor = 1  # shards of heads, MLP and vocabulary
  # (logical axis of parameters or activations, mesh axes).
  mesh.rules = mesh_rules.RULES

  config.train = ml_collections.ConfigDict()
  train = config.train
  # The loss: 'bert' (masked tokens and next sentences), 'dialogue' (the same,
  # on dialogues too), 'mlm' (masked tokens) or 'lm' (the next token).
  train.objective = 'bert'
  # (steps, length, global batch, 'continue' or 'restart' of the schedule of the
  # rate), and perhaps the phase's own objective.unit, or stored:FOLDER, the
  # units of another store with the same vocabulary.
  train.phases = ((1_000, 128, 32, 'continue'),)
  # Replaces the steps of a single phase.
  train.steps = placeholder(int)
  train.num_epochs = placeholder(float)  # The same, in epochs.
  # Replaces the batch of a single phase.
  train.global_batch = placeholder(int)
  # Parts of a global batch whose gradients are accumulated.
  train.micro_batches = 1
  train.seed = 0  # of parameters, order, pairs, masks and dropout
  train.log_every = 50  # steps between rows of metrics.csv
  train.eval_every = 10_000  # steps between evaluations
  train.checkpoint_every = 1_000  # steps between checkpoints
  train.keep_checkpoints = 3  # how many of the newest checkpoints are kept
  train.platform = 'tpu'  # the platform that the run requires: cpu, gpu or tpu
  # On a GPU, requires XLA_FLAGS that make kernels deterministic.
  train.deterministic = False
  # A run without a step or a scored batch for so long ends and prints all
  # stacks. Compiling may take 4 times as long, and at least an hour.
  train.hang_minutes = 60.0
  train.profile = ()  # (first step, number of steps) to trace. Empty: none.
  # Peak TFLOP/s of a device, for the MFU. Empty: known devices' own.
  train.peak_tflops = placeholder(float)

  config.eval = ml_collections.ConfigDict()
  config.eval.global_batch = 256  # rows that are scored at a time
  # Held-out windows that each evaluation scores.
  config.eval.max_windows = 20_000
  # How often each window is scored, with new pairs and masks each time.
  config.eval.draws = 1

  config.init = ml_collections.ConfigDict()
  config.init.stddev = 0.02  # of matrices and of the token table
  # Of the tables of positions and token types.
  config.init.position_stddev = 0.02
  # The initial attention score of a token with itself.
  config.init.self_score = 0.0
  # What to begin with: a workdir, a folder of weights, or a name on Hugging
  # Face's hub, such as openai-community/gpt2. Empty: nothing.
  config.init.weights = placeholder(str)
  # Draws the rows of pieces, positions and types that the weights lack.
  config.init.new_rows = False

  return config


def get_gpt_config() -> ml_collections.ConfigDict:
  """Returns the defaults of GPT, with its release's optimiser."""
  config = get_config()
  config.model.name = 'gpt'
  config.train.objective = 'lm'
  config.optim.name = 'gpt_adam'
  config.optim.schedule = 'cosine'
  config.optim.epsilon = 1e-8
  config.eval.global_batch = 64
  return config


def get_lstm_config() -> ml_collections.ConfigDict:
  """Returns the defaults of the LSTM in GPT's place."""
  config = get_gpt_config()
  del config.objective
  config.model = ml_collections.ConfigDict()
  model = config.model
  model.name = 'lstm'
  model.num_layers = 1  # L
  model.embed_dim = 768  # D, the width of embeddings and hidden states
  model.lstm_dim = 2048  # F, cells
  # The longest text that is read at once; there are no positions.
  model.max_length = 512
  # Of the inputs of layers and of the last layer's output.
  model.dropout_rate = 0.1
  model.dtype = 'float32'  # of activations; parameters are always float32
  return config


def get_nnlm_config() -> ml_collections.ConfigDict:
  """Returns the defaults of Bengio et al. 2003's network, MLP10 of Table 2."""
  config = get_lstm_config()
  model = config.model
  del model.num_layers, model.lstm_dim, model.dropout_rate
  model.name = 'nnlm'
  model.embed_dim = 60  # m
  model.hidden_dim = 100  # h
  model.order = 5  # n, which counts the predicted word
  # Connects the vectors of words with the softmax directly, too.
  model.direct = True
  model.num_samples = 0  # sampled words of the loss; 0: all words
  config.optim.update(name='sgd', schedule='inverse', warmup_steps=0)
  config.optim.weight_decay = 1e-4
  return config


def get_elmo_config() -> ml_collections.ConfigDict:
  """Returns the defaults of ELMo."""
  config = get_config()
  del config.objective
  model = config.model = ml_collections.ConfigDict()
  model.name = 'elmo'
  model.num_layers = 2  # L of each direction
  model.lstm_dim = 4096  # F, cells
  model.projection_dim = 512  # P, the width of the hidden states of a direction
  # Encodes words by their characters; False: by a table of words.
  model.characters = True
  model.char_embed_dim = 16  # E
  # (width, number) of the filters on characters.
  model.filters = ((1, 32), (2, 32))
  model.num_highway = 2  # highway layers after the filters
  model.cell_clip = 3.0  # the largest absolute value in a cell
  model.projection_clip = 3.0  # the largest absolute value in a hidden state
  # Of the inputs of layers and of the last layer's output.
  model.dropout_rate = 0.1
  model.num_samples = 8192  # S, sampled words of the loss; 0: all words
  model.dtype = 'float32'  # of activations; parameters are always float32

  config.train.objective = 'lm'
  # As released (bilm-tf, training.py and bin/train_elmo.py).
  config.optim.update(name='adagrad', schedule='constant', warmup_steps=0)
  config.optim.update(learning_rate=0.2, weight_decay=0.0, clip_norm=10.0)
  # Goes on with empty memories, which another batch size needs.
  config.train.reset_streams = False
  return config


def get_word2vec_config() -> ml_collections.ConfigDict:
  """Returns the defaults of word2vec, as released but for its batches."""
  config = get_config()
  model = config.model = ml_collections.ConfigDict()
  model.name = 'word2vec'
  model.embed_dim = 100  # D, the width of the vectors
  # The largest distance of neighbours; each word draws its own.
  model.window = 5
  model.negative = 5  # sampled words of a pair; 0: none
  model.hierarchical = False  # Predicts words along a Huffman tree.
  # Rows of the table of hashed parts of words (fastText); 0: none.
  model.buckets = 0
  # Letters of the shortest and of the longest part of a word.
  model.part_sizes = (3, 6)
  model.dtype = 'float32'

  objective = config.objective = ml_collections.ConfigDict()
  # Words above this frequency are sometimes left out. 0: none is.
  objective.sample = 1e-3
  objective.min_count = 5  # words that come less often are left out
  # 'batched', or 'sequential': each pair sees the changes of those before it.
  objective.order = 'batched'
  objective.updates = 64  # parts of a batch, each of which is an update
  # A word with more pairs in an update changes as if it had so many.
  objective.most_pairs = 64.0
  # Number of k-means classes of words that are written at the end. 0: none.
  objective.classes = 0

  config.train.objective = 'skipgram'  # or 'cbow'
  optim = config.optim
  del optim.beta1, optim.beta2, optim.epsilon, optim.weight_decay
  del optim.clip_norm
  optim.name = 'sgd'
  optim.learning_rate = 0.025  # 0.05 for cbow
  optim.warmup_steps = 0
  return config


def get_glove_config() -> ml_collections.ConfigDict:
  """Returns the defaults of GloVe, as released but for its batches."""
  config = get_word2vec_config()
  model, objective, optim = config.model, config.objective, config.optim
  del model.window, model.negative, model.hierarchical, model.buckets
  del model.part_sizes, objective.sample, objective.order, objective.most_pairs
  model.name = config.train.objective = 'glove'
  objective.window = 15  # the largest distance of neighbours
  # Pairs that are counted so often or more have a weight of 1.
  objective.x_max = 100.0
  # Pairs that are counted less often have a weight of (count / x_max)^alpha.
  objective.alpha = 0.75
  optim.name, optim.schedule, optim.learning_rate = 'adagrad', 'constant', 0.05
  return config


def get_task_config() -> ml_collections.ConfigDict:
  """Returns the defaults of fine-tuning, from BERT's release."""
  config = get_config()
  del config.objective
  placeholder = config_dict.placeholder
  model = config.model  # init.weights, if set, decide the sizes
  model.scan_layers = False
  del model.null_key  # the weights tell

  config.task = ml_collections.ConfigDict()
  task = config.task
  # A task of data/tasks/registry.py, or own: see config.own below.
  task.name = 'sst2'
  # Other languages to score, such as ('de', 'zh'), after training on the task's
  # own. See data/README.md.
  task.test_languages = ()
  # Tokens of an input; longer inputs are cut or read in windows.
  task.max_length = 128
  # Tags sentences with their neighbours in view.
  task.document_context = False
  # Tokens between the starts of the windows of a long text.
  task.doc_stride = 128
  task.max_question = 64  # tokens of a question; longer ones are cut
  task.max_answer = 30  # tokens of an answer
  task.n_best = 20  # how many candidate answers are kept
  task.lm_weight = 0.0  # weight of the language model's loss beside the task's
  # Classes of a score, as GPT's release trains them. 0: regression.
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
  # Trains only the modules above the encoder.
  task.frozen = False
  task.bilstm_layers = 0  # bidirectional LSTM layers between encoder and head
  task.bilstm_dim = 768  # cells of each direction
  # 'iob2' or 'bioul': a linear-chain CRF on tags of that scheme. 'viterbi': no
  # CRF, but the best path that IOB2 allows, by the sum of its log-
  # probabilities; 'viterbi_probabilities': by the sum of its probabilities.
  # Empty: each tag alone.
  task.crf = ''

  # A user's own task, see data/tasks/own.py.
  config.own = ml_collections.ConfigDict()
  own = config.own
  # Classification, regression, choice, tagging, roles, coreference or span.
  own.kind = placeholder(str)
  # Files in data.source, perhaps .gz: .jsonl, .csv with a line of titles, or
  # any other name for tab-separated columns.
  own.train = 'train.jsonl'
  own.dev = 'dev.jsonl'  # to choose models by
  # Scored at the end; it may lack labels.
  own.test = placeholder(str)
  own.text = ('text',)  # fields or columns of one text or two
  own.label = 'label'  # field or column of the label
  # Says that the order of the two texts means nothing.
  own.symmetric = False
  # All labels in order. Empty: those of the training file, and for tags of
  # spans both B-TYPE and I-TYPE for each TYPE found there.
  own.labels = ()
  # (lowest, highest) score. Empty: those of the training and dev files.
  own.score_range = placeholder(tuple)
  # The first one chooses the best model. Empty: the usual ones of the kind.
  own.metrics = ()

  config.data = ml_collections.ConfigDict()
  data = config.data
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

  optim = config.optim
  del optim.warmup_steps, optim.restarts
  optim.learning_rate = 3e-5
  optim.warmup_fraction = 0.1  # the share of all steps

  train = config.train
  del train.phases, train.num_epochs, train.eval_every, train.checkpoint_every
  del train.keep_checkpoints, train.profile, train.objective
  train.num_epochs = 3.0
  # How many steps E epochs of N examples have, with a batch of B: 'bert' (its
  # release: floor(N / B x E); for spans, N questions), 'gpt' (its release:
  # floor(N / B) an epoch) or 'rows' (ceil(N / B x E), with N rows of the model,
  # such as windows).
  train.count = 'bert'
  train.global_batch = 32
  train.eval_every = placeholder(int)  # Steps between scores. Empty: an epoch.
  # Steps between checkpoints. Empty: eval_every.
  train.checkpoint_every = placeholder(int)
  train.select = 'last'  # which model is kept: 'last', or the 'best' on dev
  # Stops after so many scores without a new best one. Empty: never.
  train.patience = placeholder(int)
  # Halves the rate after more than so many scores in a row without a new best
  # one, whichever model is kept. Empty: never.
  train.plateau = placeholder(int)
  train.log_every = 20

  config.eval = ml_collections.ConfigDict()
  config.eval.global_batch = 64  # rows that are scored at a time

  config.init = ml_collections.ConfigDict()
  # As for pre-training. Empty: from scratch, which needs data.tokenizer.
  config.init.weights = placeholder(str)
  # How many of the first layers are taken. Empty: all.
  config.init.num_layers = placeholder(int)
  return config


def get_words_config() -> ml_collections.ConfigDict:
  """Returns the defaults of ELMo's task models (Peters et al. 2018)."""
  config = get_task_config()
  placeholder = config_dict.placeholder
  model = config.model = ml_collections.ConfigDict()
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

  task = config.task
  del task.document_context, task.lm_weight, task.frozen
  del task.bilstm_layers, task.bilstm_dim
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

  data = config.data
  # Where the layers of the language model are kept, which are computed once.
  # Empty: ~/.cache/sesame/word_vectors.
  data.cache = placeholder(str)
  # Weights of the language model below, which is not trained. Empty: none.
  config.init.weights = placeholder(str)
  del config.init.num_layers

  optim = config.optim
  optim.name = 'adamw'
  optim.schedule = 'constant'
  optim.warmup_fraction = 0.0
  optim.epsilon = 1e-8
  optim.weight_decay = 0.0
  # Decay of the averages of the parameters, which are then scored and kept. 0:
  # no averages.
  optim.average = 0.0
  config.train.count = 'rows'
  config.train.select = 'best'
  return config
