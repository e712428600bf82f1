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
  # Family: bert, gpt, gpt2, lstm, nnlm, elmo, word2vec or glove.
  model.name = 'bert'
  model.left_to_right = False  # BERT without later tokens; GPT always has none
  model.num_layers = 2  # L
  model.embed_dim = 128  # D, width of the hidden states
  model.num_heads = 2  # N, divides embed_dim
  model.mlp_dim = 512  # F, width inside the feed-forward blocks
  model.max_length = 512  # rows of the position table
  model.dropout_rate = 0.1  # embeddings and sub-layer outputs
  model.attention_dropout_rate = 0.1  # attention probabilities
  # 'erf' (BERT's release of 2018-10-31), 'tanh' (later), or 'relu' (ERNIE)
  model.gelu = 'tanh'
  model.dtype = 'float32'  # of activations; parameters stay float32
  model.scan_layers = True  # one compiled layer in a loop, or all unrolled
  model.unrolled_layers = 6  # in training, the last so many follow the loop
  model.remat = False  # recompute activations in the backward pass
  # plain, fused (one TPU kernel) or auto: fused on a TPU where sizes allow it.
  model.attention = 'auto'
  model.null_key = False  # each head has a learned key of nothing, value 0

  config.data = ml_collections.ConfigDict()
  data = config.data
  # manual, a path, a glob, or tfds:NAME; of several languages en=...,de=...
  data.source = 'manual'
  # A language with a share p of the text has p^exponent, renormalised, of the
  # examples, and of the words that a new vocabulary is trained on.
  data.language_exponent = 0.7
  # train:KIND:SIZE, a vocab.txt, or a folder (such as that of init.weights).
  data.tokenizer = 'train:wordpiece:6000'
  # Token store, built there if missing; empty: in ./runs/stores.
  data.folder = placeholder(str)
  # Local copies of remote stores; empty: ~/.cache/sesame/stores.
  data.cache = placeholder(str)
  data.document_break = placeholder(str)  # file, blank_line or a regex
  data.units = 'wordpiece'  # to be masked whole; file or jieba: data/README.md
  data.held_out = 0.05  # share of the tokens kept for evaluation
  data.loader = 'tf'  # tf (tf.data, prefetching) or plain (same batches)

  config.objective = ml_collections.ConfigDict()
  objective = config.objective
  objective.mask_rate = 0.15  # share of tokens predicted
  objective.mask_fraction = 0.8  # share of these replaced by [MASK]
  objective.random_fraction = 0.1  # share replaced by a random token
  objective.unit = 'piece'  # or word, span of 1 to 3 words, stored (data.units)
  objective.counting = 'exact'  # mask_rate of a row; drawn: of units, as ERNIE

  config.optim = ml_collections.ConfigDict()
  optim = config.optim
  # bert_adam (BERT's release: no bias correction), gpt_adam (GPT's release:
  # bias correction scales the decay too), adamw, lamb (for large batches), or,
  # without beta1 and beta2, adadelta (at rate 1) and, also without epsilon,
  # adafactor (little memory; rates relative to each matrix), adagrad (ELMo) and
  # sgd (word2vec, nnlm).
  optim.name = 'bert_adam'
  optim.learning_rate = 1e-4  # peak
  optim.warmup_steps = 10_000  # linear, from rate 0
  # To 0: linear (BERT) or cosine (GPT); or constant, staircase (0.999 times the
  # rate after every 100 steps), or inverse (1 / (1 + 1e-8 tokens read)).
  optim.schedule = 'linear'
  # (learning_rate, warmup_steps) of each 'restart' phase; empty: as above.
  optim.restarts = ()
  optim.beta1 = 0.9  # decay of the gradient's mean
  optim.beta2 = 0.999  # decay of the squared gradient's mean
  optim.epsilon = 1e-6  # added to the root of the second moment
  optim.weight_decay = 0.01  # not on biases, layer norms and layer mixes
  optim.clip_norm = 1.0  # of the global gradient

  config.mesh = ml_collections.ConfigDict()
  mesh = config.mesh
  mesh.data = -1  # copies of the model; -1: all remaining devices
  mesh.fsdp = 1  # shards of parameters, optimiser state and batch
  mesh.tensor = 1  # shards of heads, mlp and vocabulary
  # Logical axis of parameters, then of activations -> mesh axes.
  mesh.rules = mesh_rules.RULES

  config.train = ml_collections.ConfigDict()
  train = config.train
  # Loss: bert (mlm and next sentences), dialogue (the same, of dialogues too),
  # mlm (masked tokens), lm (next token).
  train.objective = 'bert'
  # (steps, length, global batch, 'continue' or 'restart' of the rate schedule),
  # perhaps with an objective.unit of its own, or stored:FOLDER of a store.
  train.phases = ((1_000, 128, 32, 'continue'),)
  train.steps = placeholder(int)  # overrides the steps of a single phase
  train.num_epochs = placeholder(float)  # the same in epochs
  train.global_batch = placeholder(int)  # overrides the batch of a single phase
  train.micro_batches = 1  # gradient accumulation: parts of a global batch
  train.seed = 0  # of parameters, order, pairs, masks and dropout
  train.log_every = 50  # steps between rows of metrics.csv
  train.eval_every = 10_000  # steps between evaluations
  train.checkpoint_every = 1_000  # steps between checkpoints
  train.keep_checkpoints = 3  # number of newest checkpoints to keep
  train.platform = 'tpu'  # required platform: cpu, gpu or tpu
  train.deterministic = False  # on a GPU, require deterministic XLA_FLAGS
  # Stop, printing all stacks, after so long without a step or a scored batch;
  # compilation may take 4 times as long, and an hour at least.
  train.hang_minutes = 60.0
  train.profile = ()  # (first step, number of steps) to trace; empty: none
  train.peak_tflops = placeholder(float)  # of a device, for MFU

  config.eval = ml_collections.ConfigDict()
  config.eval.global_batch = 256  # rows scored at a time
  config.eval.max_windows = 20_000  # held-out windows scored at each evaluation
  config.eval.draws = 1  # scores of each window, with new pairs and masks

  config.init = ml_collections.ConfigDict()
  config.init.stddev = 0.02  # of matrices and the token table
  config.init.position_stddev = 0.02  # of position and type tables
  config.init.self_score = 0.0  # initial attention score of a token with itself
  # Start from: workdir, weights folder, or hub name (openai-community/gpt2).
  config.init.weights = placeholder(str)
  config.init.new_rows = False  # draw rows of pieces, positions, types anew

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
  model.embed_dim = 768  # D, width of embeddings and hidden states
  model.lstm_dim = 2048  # F, cells
  model.max_length = 512  # longest text read at once; there are no positions
  model.dropout_rate = 0.1  # inputs of the layers and the last one's output
  model.dtype = 'float32'  # of activations; parameters stay float32
  return config


def get_nnlm_config() -> ml_collections.ConfigDict:
  """Returns the defaults of Bengio et al. 2003's network, MLP10 of Table 2."""
  config = get_lstm_config()
  model = config.model
  del model.num_layers, model.lstm_dim, model.dropout_rate
  model.name = 'nnlm'
  model.embed_dim = 60  # m
  model.hidden_dim = 100  # h
  model.order = 5  # n, the predicted word included
  model.direct = True  # from the vectors of words to the softmax, too
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
  model.num_layers = 2  # L, of each direction
  model.lstm_dim = 4096  # F, cells
  model.projection_dim = 512  # P, width of the hidden states of a direction
  model.characters = True  # encode words by characters, else by a table
  model.char_embed_dim = 16  # E
  model.filters = ((1, 32), (2, 32))  # (width, count), on characters
  model.num_highway = 2  # layers after the filters
  model.cell_clip = 3.0  # largest absolute value in a cell
  model.projection_clip = 3.0  # largest absolute value in a hidden state
  model.dropout_rate = 0.1  # inputs of the layers and the last one's output
  model.num_samples = 8192  # S, sampled words of the loss; 0: all words
  model.dtype = 'float32'  # of activations; parameters stay float32

  config.train.objective = 'lm'
  # As released (bilm-tf, training.py and bin/train_elmo.py).
  config.optim.update(name='adagrad', schedule='constant', warmup_steps=0)
  config.optim.update(learning_rate=0.2, weight_decay=0.0, clip_norm=10.0)
  config.train.reset_streams = False  # go on with empty states: another batch
  return config


def get_word2vec_config() -> ml_collections.ConfigDict:
  """Returns the defaults of word2vec, as released but for its batches."""
  config = get_config()
  model = config.model = ml_collections.ConfigDict()
  model.name = 'word2vec'
  model.embed_dim = 100  # D, width of the vectors
  model.window = 5  # largest distance of neighbours, drawn for each word
  model.negative = 5  # sampled words of a pair; 0: none
  model.hierarchical = False  # predict by a Huffman tree
  model.buckets = 0  # rows for hashed parts of words (fastText); 0: none
  model.part_sizes = (3, 6)  # letters of the shortest and longest part
  model.dtype = 'float32'

  objective = config.objective = ml_collections.ConfigDict()
  objective.sample = 1e-3  # frequency above which words are left out; 0: none
  objective.min_count = 5  # rarer words are left out
  objective.order = 'batched'  # or sequential: each pair sees those before it
  objective.updates = 64  # parts of a batch, each an update of its own
  objective.most_pairs = 64.0  # a word's pairs of an update that count in full
  objective.classes = 0  # k-means classes of words, written at the end

  config.train.objective = 'skipgram'  # or cbow
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
  objective.window = 15  # largest distance of neighbours
  objective.x_max = 100.0  # the count from which on an entry weighs 1
  objective.alpha = 0.75  # smaller counts weigh (count / x_max)^alpha
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
  task.name = 'sst2'  # see data/tasks/registry.py; own: the section own below
  # Other languages to score, such as ('de', 'zh'), after training in the task's
  # own alone; see data/README.md.
  task.test_languages = ()
  task.max_length = 128  # tokens of an input; longer inputs are cut or windowed
  task.document_context = False  # tag sentences together with their neighbours
  task.doc_stride = 128  # tokens between the starts of a long text's windows
  task.max_question = 64  # tokens of a question; longer ones are cut
  task.max_answer = 30  # tokens of an answer
  task.n_best = 20  # number of candidate answers
  task.lm_weight = 0.0  # of the language model's loss beside the task's
  task.soft_classes = 0  # classes of a score (GPT); 0: regression
  task.class_weights = ()  # loss weight of each label; empty: all equal
  # Input of the head: last, first (the embeddings), second_to_last, sum_last_4,
  # concat_last_4, sum_all, or mix, a learned average of all layers.
  task.features = 'last'
  # lambda of the loss lambda * sum(w^2) on the mix's weights: 1 keeps them
  # equal, 0.001 lets them choose (Peters et al. 2018, section 5.1).
  task.mix_l2 = placeholder(float)
  task.frozen = False  # train only the modules on top of the encoder
  task.bilstm_layers = 0  # bidirectional LSTM layers between encoder and head
  task.bilstm_dim = 768  # cells of each direction
  # Scheme of tags under a linear-chain CRF: iob2 or bioul. viterbi: no CRF, but
  # the best path that IOB2 allows, by the sum of its log-probabilities, or with
  # viterbi_probabilities of its probabilities; empty: each tag alone.
  task.crf = ''

  config.own = ml_collections.ConfigDict()  # task own, see data/tasks/own.py
  own = config.own
  # classification, regression, choice, tagging, roles, coreference or span
  own.kind = placeholder(str)
  # Files in data.source, perhaps .gz: .jsonl; .csv with a header; else tabs.
  own.train = 'train.jsonl'
  own.dev = 'dev.jsonl'  # to choose models by
  own.test = placeholder(str)  # to score at the end, perhaps without labels
  own.text = ('text',)  # fields or columns of one or two texts
  own.label = 'label'  # field or column of the label
  own.symmetric = False  # whether the order of two texts means nothing
  # All labels in order; empty: those of the training file, and of tags of spans
  # both B-TYPE and I-TYPE for each TYPE found.
  own.labels = ()
  own.score_range = placeholder(tuple)  # (lowest, highest); empty: of the file
  own.metrics = ()  # the first chooses the best model; empty: the usual ones

  config.data = ml_collections.ConfigDict()
  data = config.data
  # Folder of official files or of such folders; tfds (stored in tfds:FOLDER).
  data.source = placeholder(str)
  data.tokenizer = placeholder(str)  # empty: the tokenizer of init.weights
  data.train_limit = placeholder(int)  # evenly spaced examples to train on
  data.eval_limit = placeholder(int)  # evenly spaced examples to score
  data.bucket = True  # batches of similar lengths, with less padding
  data.loader = 'plain'  # tf (tf.data) or plain, the same batches

  optim = config.optim
  del optim.warmup_steps, optim.restarts
  optim.learning_rate = 3e-5
  optim.warmup_fraction = 0.1  # of all steps

  train = config.train
  del train.phases, train.num_epochs, train.eval_every, train.checkpoint_every
  del train.keep_checkpoints, train.profile, train.objective
  train.num_epochs = 3.0
  # Steps of E epochs of N examples, batch B: bert (its release: floor(N / B x
  # E), N questions for spans), gpt (its release: floor(N / B) an epoch) or rows
  # (ceil(N / B x E), N rows of the model, such as windows).
  train.count = 'bert'
  train.global_batch = 32
  train.eval_every = placeholder(int)  # steps between scores; empty: an epoch
  train.checkpoint_every = placeholder(int)  # steps; empty: eval_every
  train.select = 'last'  # the model to keep: last, or best on dev
  train.patience = placeholder(int)  # scores without a new best before stopping
  # Halve the rate after more scores in a row without a new best one, whichever
  # model is kept; empty: never.
  train.plateau = placeholder(int)
  train.log_every = 20

  config.eval = ml_collections.ConfigDict()
  config.eval.global_batch = 64  # rows scored at a time

  config.init = ml_collections.ConfigDict()
  # As for pre-training; empty: from scratch, which needs data.tokenizer.
  config.init.weights = placeholder(str)
  config.init.num_layers = placeholder(int)  # first layers to take; empty: all
  return config


def get_words_config() -> ml_collections.ConfigDict:
  """Returns the defaults of ELMo's task models (Peters et al. 2018)."""
  config = get_task_config()
  placeholder = config_dict.placeholder
  model = config.model = ml_collections.ConfigDict()
  # bcn, esim, bilstm_crf, bilstm_attention, deep_srl, e2e_coref, bidaf_plus or
  # bidaf
  model.name = 'bcn'
  # published; allennlp, its form of a deep_srl or an e2e_coref; allennlp_elmo,
  # of a deep_srl above ELMo; 2018, the later form of an e2e_coref
  model.variant = 'published'
  model.lstm_dim = 300  # F, cells of each LSTM's layer and direction
  model.num_layers = 1  # of the first LSTM; 1 in a bcn and an esim
  model.hidden_dim = 300  # of linear layers; of taggers and questions unused
  # A bcn: of the vectors of words alone; a deep_srl: of the state; the others:
  # of all layers.
  model.dropout_rate = 0.5
  model.char_embed_dim = 16  # E, below the filters
  model.filters = ()  # (width, count), on a word's characters; empty: none
  model.dtype = 'float32'  # of activations; parameters stay float32

  task = config.task
  del task.document_context, task.lm_weight, task.frozen
  del task.bilstm_layers, task.bilstm_dim
  task.names = ()  # tasks trained together in place of one, see `task.name`
  # Vectors of words: a file of GloVe or word2vec; empty: drawn.
  task.word_vectors = placeholder(str)
  task.word_dim = 100  # of drawn vectors; 0: no vectors of words
  # Texts into words: marks (apart, as English clitics are) or spaces alone.
  task.split = 'marks'
  task.lower_words = False  # look words up in lower case
  task.fixed_words = False  # do not train the vectors of word_vectors
  task.unknown_words = 'normal'  # vectors that the file lacks: normal or zero
  # Read of the layers of init.weights: mix, last or average, each with a scale.
  task.features = 'mix'
  task.mix_at = 'input'  # beside the words at the input, the output, or both
  task.mix_dropout = 0.0  # of what is read of the layers
  task.mix_layer_norm = False  # of each layer

  data = config.data
  # Layers of the words, computed once; empty: ~/.cache/sesame/word_vectors.
  data.cache = placeholder(str)
  # Weights of the language model below, not trained; empty: none.
  config.init.weights = placeholder(str)
  del config.init.num_layers

  optim = config.optim
  optim.name = 'adamw'
  optim.schedule = 'constant'
  optim.warmup_fraction = 0.0
  optim.epsilon = 1e-8
  optim.weight_decay = 0.0
  # Decay of averages of the parameters, which are then scored and kept; 0: none
  optim.average = 0.0
  config.train.count = 'rows'
  config.train.select = 'best'
  return config
