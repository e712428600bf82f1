"""The keys of a BERT's pre-training, with their defaults and meanings.

Each section is a function. Other models and fine-tunings reuse the sections
that they share with BERT; their own sections are in `configs.sections`.
"""

import ml_collections
from ml_collections import config_dict

from configs import mesh_rules


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of BERT; shipped configs override some."""
  config = pretraining(new_model(), adam(), masked_tokens())
  # What counts as a unit that is masked whole: 'wordpiece' (the pieces of a
  # word), 'file' (the text between tabs) or 'jieba' (words by jieba). See
  # data/README.md.
  config.data.units = 'wordpiece'
  config.data.update(rows())
  config.init.update(drawn_transformer())
  # The initial attention score of a token with itself.
  config.init.self_score = 0.0
  return config


def pretraining(
  model: ml_collections.ConfigDict,
  optim: ml_collections.ConfigDict,
  objective: ml_collections.ConfigDict | None = None,
) -> ml_collections.ConfigDict:
  """Returns the config of a pre-training from the sections that differ."""
  config = ml_collections.ConfigDict()
  config.model, config.data = model, text()
  if objective is not None:
    config.objective = objective
  config.optim, config.mesh = optim, devices()
  config.train = steps()
  config.train.update(phases())
  config.eval = held_out()
  config.init = beginning()
  return config


def bert_model() -> ml_collections.ConfigDict:
  """Returns the keys of a BERT; a fine-tuning takes some from its weights."""
  model = transformer()
  # The family of models: bert, gpt, gpt2, lstm, nnlm, elmo, word2vec or glove.
  model.name = 'bert'
  model.left_to_right = False  # Hides later tokens from each token.
  model.update(form())
  return model


def form() -> ml_collections.ConfigDict:
  """Returns the keys in which ModernBERT's layers differ from BERT's."""
  model = layer_form()
  model.local_rotary_base = 10_000.0  # rotary_base of layers with a window
  # How many tokens on each side most layers see. 0: all layers see all tokens.
  model.window = 0
  # With a window, the first of every so many layers still sees all tokens.
  model.global_every = 3
  # Published: 1e-12 in BERT, 1e-5 in ModernBERT and RoBERTa.
  model.layer_norm_epsilon = 1e-12
  # Rows of the token-type table, which tells text A from B. 0: no table, as
  # with rotary positions.
  model.num_token_types = 2
  return model


def layer_form() -> ml_collections.ConfigDict:
  """Returns the keys of a layer's form that BERT and GPT share."""
  model = ml_collections.ConfigDict()
  # 'post': layer norms after residual sums; 'pre': before attention and MLP.
  model.norm = 'post'
  model.biases = True  # of matrices and norms; the softmax always has a bias
  # Multiplies the MLP's GELU by a second projection of mlp_dim.
  model.gated = False
  # 'learned': a table of positions. 'rotary': queries and keys are rotated by
  # their positions; there is no table of positions.
  model.positions = 'learned'
  # The longest wavelength of the rotations, divided by 2 pi, in layers that
  # see all tokens.
  model.rotary_base = 10_000.0
  # Applies a layer norm to the queries and keys of each head.
  model.query_key_norm = False
  return model


def transformer() -> ml_collections.ConfigDict:
  """Returns the keys that a BERT and a GPT share."""
  model = ml_collections.ConfigDict()
  model.num_layers = 2  # L
  model.embed_dim = 128  # D, the width of the hidden states
  model.num_heads = 2  # N, a divisor of embed_dim
  model.mlp_dim = 512  # F, the width inside the feed-forward blocks
  model.max_length = 512  # rows of the position table
  model.dropout_rate = 0.1  # of embeddings and of the outputs of sub-layers
  model.attention_dropout_rate = 0.1  # of attention probabilities
  # The form of GELU: 'erf' (BERT's first release, 2018-10-31) or 'tanh' (its
  # later releases); or 'relu' in place of GELU (ERNIE).
  model.gelu = 'tanh'
  model.dtype = 'float32'  # of activations; parameters are always float32
  # Compiles one layer and runs it in a loop; False compiles every layer.
  model.scan_layers = True
  # How many of the last layers a training step computes one by one after the
  # loop. This is faster on a TPU or GPU and takes longer to compile.
  model.unrolled_layers = 12
  # Computes activations again in the backward pass, to save memory.
  model.remat = False
  # 'plain', 'fused' (a kernel that keeps the scores on the chip), or 'auto':
  # fused on a TPU, and in bfloat16 or float16 on a GPU, where the sizes allow
  # it.
  model.attention = 'auto'
  return model


def new_model() -> ml_collections.ConfigDict:
  """Returns the keys of a BERT in pre-training, with the null key."""
  model = bert_model()
  # Whether masked tokens are predicted by the embeddings' table; else by a
  # table of their own.
  model.tied = True
  model.update(null_key())
  return model


def null_key() -> ml_collections.ConfigDict:
  """Returns the key of the attention's null key."""
  model = ml_collections.ConfigDict()
  # Gives each head a learned null key, with a value of 0.
  model.null_key = False
  return model


def text() -> ml_collections.ConfigDict:
  """Returns the keys of the text, its vocabulary and its token store."""
  placeholder = config_dict.placeholder
  data = ml_collections.ConfigDict()
  # The text: 'manual' (Python's documentation), a path, a glob, tfds:NAME or
  # hf:NAME; for several languages en=SOURCE,de=SOURCE.
  data.source = 'manual'
  # The field or column of the text in JSONL, tables and data sets. A table
  # without such a column must have only one column of text, which is read.
  data.text_field = 'text'
  # With several languages, a language with a share p of the text gets a share
  # proportional to p^exponent of the examples, and of the words that a new
  # vocabulary is trained on.
  data.language_exponent = 0.7
  # train:KIND:SIZE trains a vocabulary; otherwise a vocab.txt, or a folder with
  # a vocabulary, such as the folder of init.weights.
  data.tokenizer = 'train:wordpiece:6000'
  # The folder of the token store, which is built if it is missing. Empty: a
  # folder in ./runs/stores.
  data.folder = placeholder(str)
  # The folder for copies of remote stores. Empty: ~/.cache/sesame/stores.
  data.cache = placeholder(str)
  # Where documents end: 'file', 'blank_line' or a regular expression. Empty:
  # as the kind of file says (data/README.md).
  data.document_break = placeholder(str)
  data.held_out = 0.05  # the share of the tokens that is kept for evaluation
  # 'tf' (tf.data, which prefetches) or 'plain'; both give the same batches.
  data.loader = 'tf'
  return data


def rows() -> ml_collections.ConfigDict:
  """Returns the keys of packed rows."""
  data = ml_collections.ConfigDict()
  # Fills each row with whole texts, 'documents' or single 'sentences', or with
  # parts of long ones. The texts of a row do not see each other, and the
  # positions of each begin at 0. Refused with next sentences. Empty: rows are
  # not packed.
  data.packed = config_dict.placeholder(str)
  return data


def masked_tokens() -> ml_collections.ConfigDict:
  """Returns the keys of the tokens that are masked."""
  objective = ml_collections.ConfigDict()
  objective.mask_rate = 0.15  # the share of tokens that are predicted
  # The share of tokens that are predicted at the first step; it then changes
  # linearly to mask_rate. Empty: mask_rate throughout.
  objective.first_mask_rate = config_dict.placeholder(float)
  # The share of the predicted tokens that [MASK] replaces.
  objective.mask_fraction = 0.8
  # The share of the predicted tokens that a random token replaces.
  objective.random_fraction = 0.1
  # What is masked whole: 'piece', 'word', 'span' (1 to 3 words), or 'stored'
  # (the units of data.units, which the token store keeps).
  objective.unit = 'piece'
  # How many tokens are predicted: 'exact' (mask_rate of each row, as BERT) or
  # 'drawn' (each unit with that probability, as ERNIE).
  objective.counting = 'exact'
  return objective


def rate() -> ml_collections.ConfigDict:
  """Returns the keys of an optimiser's name and rate."""
  optim = ml_collections.ConfigDict()
  # bert_adam (BERT's release: no bias correction), gpt_adam (GPT's release: the
  # bias correction also scales the decay), adamw, stable_adamw (shortens the
  # step of a matrix whose gradients grow suddenly), muon (its updates of the
  # layers' matrices are orthogonal), lamb (for large batches), adadelta (with a
  # rate of 1), adafactor (little memory; rates relative to each matrix),
  # adagrad (ELMo) or sgd (word2vec, nnlm). adadelta, adafactor, adagrad and sgd
  # do not read beta1 and beta2; adafactor, adagrad and sgd no epsilon either.
  optim.name = 'bert_adam'
  optim.learning_rate = 1e-4  # the peak
  # How the rate changes after the warm-up: 'linear' (BERT) or 'cosine' (GPT)
  # to 0; 'constant'; 'wsd' (constant until it falls in the last decay_share of
  # the steps, a fifth of a fine-tuning); 'staircase' (times 0.999 after every
  # 100 steps); 'inverse' (divided by 1 + 1e-8 times the tokens read); or
  # 'gpt_linear' (linear, and the warm-up multiplies it, as GPT's fine-tuning).
  optim.schedule = 'linear'
  return optim


def schedule() -> ml_collections.ConfigDict:
  """Returns the keys of an optimiser whose rate follows phases."""
  optim = rate()
  optim.warmup_steps = 10_000  # steps in which the rate grows linearly from 0
  optim.decay_share = 0.2  # the share of the steps in which 'wsd' falls to 0
  # (learning_rate, warmup_steps) of each 'restart' phase. Empty:
  # optim.learning_rate and optim.warmup_steps.
  optim.restarts = ()
  return optim


def adam() -> ml_collections.ConfigDict:
  """Returns the keys of an optimiser with its rate, BERT's by default."""
  optim = schedule()
  optim.update(moments())
  return optim


def moments() -> ml_collections.ConfigDict:
  """Returns the keys of Adam's means, of weight decay and of clipping."""
  optim = ml_collections.ConfigDict()
  optim.beta1 = 0.9  # decay of the mean of gradients
  optim.beta2 = 0.999  # decay of the mean of squared gradients
  optim.epsilon = 1e-6  # added to the root of the second moment
  # Of all parameters but biases, layer norms and the weights of layer mixes.
  optim.weight_decay = 0.01
  optim.clip_norm = 1.0  # the largest norm of the whole gradient
  return optim


def devices() -> ml_collections.ConfigDict:
  """Returns the keys of the mesh of devices."""
  mesh = ml_collections.ConfigDict()
  # Copies of the model; -1: all devices that the other axes leave.
  mesh.data = -1
  mesh.fsdp = 1  # shards of parameters, optimiser state and batch
  mesh.tensor = 1  # shards of heads, MLP and vocabulary
  # Pairs: (logical axis of parameters or activations, mesh axes that shard it).
  mesh.rules = mesh_rules.RULES
  return mesh


def steps() -> ml_collections.ConfigDict:
  """Returns the keys of the training of any run."""
  placeholder = config_dict.placeholder
  train = ml_collections.ConfigDict()
  # The number of parts of a global batch whose gradients are accumulated.
  train.micro_batches = 1
  train.seed = 0  # of parameters, order, pairs, masks and dropout
  # The platform that the run requires: cpu, gpu or tpu; auto: what JAX finds.
  train.platform = 'auto'
  # On a GPU, requires XLA_FLAGS that make kernels deterministic.
  train.deterministic = False
  # A run that finishes no step and scores no batch for so long prints all
  # stacks and ends. Compilation is allowed 4 times as long, at least an hour.
  train.hang_minutes = 60.0
  # Peak TFLOP/s of a device, for the MFU. Empty: the device's own, if known.
  train.peak_tflops = placeholder(float)
  # Other programs that get the rows of metrics.csv and the config: wandb,
  # mlflow, trackio. Empty: none, and nothing leaves the machine.
  train.trackers = ()
  return train


def phases() -> ml_collections.ConfigDict:
  """Returns the keys of the steps of a pre-training."""
  placeholder = config_dict.placeholder
  train = ml_collections.ConfigDict()
  # The loss: 'bert' (masked tokens and next sentences), 'dialogue' (the same,
  # on dialogues too), 'mlm' (masked tokens) or 'lm' (the next token).
  train.objective = 'bert'
  # Each phase is (steps, length, global batch, 'continue' or 'restart'), where
  # the fourth entry is about the rate's schedule. A fifth entry may be the
  # phase's own objective.unit, or stored:FOLDER, which takes text and units
  # from another store with the same vocabulary.
  train.phases = ((1_000, 128, 32, 'continue'),)
  # Replaces the steps of a single phase.
  train.steps = placeholder(int)
  # Replaces the steps of a single phase by those of so many epochs.
  train.num_epochs = placeholder(float)
  # Replaces the batch of a single phase.
  train.global_batch = placeholder(int)
  train.log_every = 50  # steps between rows of metrics.csv
  train.eval_every = 10_000  # steps between evaluations
  train.checkpoint_every = 1_000  # steps between checkpoints
  train.keep_checkpoints = 3  # how many of the newest checkpoints are kept
  train.profile = ()  # (first step, number of steps) to trace. Empty: none.
  return train


def held_out() -> ml_collections.ConfigDict:
  """Returns the keys of the scores on held-out text."""
  config = ml_collections.ConfigDict({'eval': {}})
  config.eval.global_batch = 256  # rows that are scored at a time
  # Held-out windows that each evaluation scores.
  config.eval.max_windows = 20_000
  # How often each window is scored, with new pairs and masks each time.
  config.eval.draws = 1
  return config.eval


def beginning() -> ml_collections.ConfigDict:
  """Returns the keys of the parameters that a run begins with."""
  config = ml_collections.ConfigDict({'init': {}})
  # The weights to begin with: a workdir, a folder of weights, or a name on
  # Hugging Face's hub, such as openai-community/gpt2. Empty: random parameters.
  config.init.weights = config_dict.placeholder(str)
  # Initialises at random the rows of pieces, positions and token types that the
  # weights lack.
  config.init.new_rows = False
  return config.init


def drawn_matrices() -> ml_collections.ConfigDict:
  """Returns the key of the matrices that a run initialises."""
  init = ml_collections.ConfigDict()
  init.stddev = 0.02  # of the initial matrices and of the initial token table
  return init


def drawn_transformer() -> ml_collections.ConfigDict:
  """Returns the keys of the parameters that a BERT or GPT initialises."""
  init = drawn_matrices()
  # Standard deviation of the initial tables of positions and token types.
  init.position_stddev = 0.02
  return init
