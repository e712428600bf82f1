"""The keys of a BERT's pre-training, with their defaults and meanings.

A section is a function; other models and fine-tunings take the sections that
they share, and have their own in `configs.sections`.
"""

import ml_collections
from ml_collections import config_dict

from configs import mesh_rules


def get_config() -> ml_collections.ConfigDict:
  """Returns the defaults of BERT; shipped configs override some."""
  config = pretraining(new_model(), adam(), masked_tokens())
  # What counts as a unit that is masked whole: 'wordpiece' (the pieces of a
  # word), 'file' (the text between tabs) or 'jieba' (its words). See
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
  """Returns the keys of a BERT, some of which its weights tell."""
  model = transformer()
  # The family of models: bert, gpt, gpt2, lstm, nnlm, elmo, word2vec or glove.
  model.name = 'bert'
  model.left_to_right = False  # Hides later tokens from each token.
  model.update(form())
  return model


def form() -> ml_collections.ConfigDict:
  """Returns the keys in which ModernBERT's layers differ from BERT's."""
  model = layer_form()
  model.local_rotary_base = 10_000.0  # rotary_base, where a window is seen
  # Tokens on each side that most layers see alone. 0: all layers see all.
  model.window = 0
  # Of so many layers, the first sees more than a window.
  model.global_every = 3
  # Published: 1e-12 of BERT, 1e-5 of ModernBERT and RoBERTa.
  model.layer_norm_epsilon = 1e-12
  # Rows of the table that tells A from B. 0: there is no table.
  model.num_token_types = 2
  return model


def layer_form() -> ml_collections.ConfigDict:
  """Returns those keys that a GPT has, too."""
  model = ml_collections.ConfigDict()
  # 'post': layer norms after residual sums; 'pre': before attention and MLP.
  model.norm = 'post'
  model.biases = True  # of matrices and norms; the softmax has one anyway
  # Multiplies the MLP's GELU by a second projection of mlp_dim.
  model.gated = False
  # 'learned': a table; 'rotary': queries and keys are turned by their
  # positions, and there is no table of token types either.
  model.positions = 'learned'
  # The longest wavelength of the rotations over 2 pi, where all is seen.
  model.rotary_base = 10_000.0
  # Queries and keys of each head pass a layer norm.
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
  # 'erf' (BERT's first release, 2018-10-31), 'tanh' (its later ones), or 'relu'
  # in its place (ERNIE).
  model.gelu = 'tanh'
  model.dtype = 'float32'  # of activations; parameters are always float32
  # Compiles one layer and runs it in a loop; False compiles every layer.
  model.scan_layers = True
  # In training, so many of the last layers are compiled one by one after the
  # loop, which is faster on a TPU or GPU and takes longer to compile.
  model.unrolled_layers = 12
  # Computes activations again in the backward pass, to save memory.
  model.remat = False
  # 'plain', 'fused' (a kernel that keeps the scores on the chip), or 'auto':
  # fused on a TPU, and in bfloat16 or float16 on a GPU, where the sizes allow
  # it.
  model.attention = 'auto'
  return model


def new_model() -> ml_collections.ConfigDict:
  """Returns the keys of a BERT that no weights tell."""
  model = bert_model()
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
  # The field or column of the text in JSONL, tables and data sets; without a
  # column of this name the only one of text.
  data.text_field = 'text'
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
  data.held_out = 0.05  # the share of the tokens that is kept for evaluation
  # 'tf' (tf.data, which prefetches) or 'plain'; both give the same batches.
  data.loader = 'tf'
  return data


def rows() -> ml_collections.ConfigDict:
  """Returns the key of the rows that a text is made into."""
  data = ml_collections.ConfigDict()
  # Fills each row with whole texts, or parts of long ones, which do not see
  # each other; their positions begin at 0. Not with next sentences.
  data.packed = False
  # What such a text is: 'documents', or 'sentences', each by itself.
  data.packed_texts = 'documents'
  return data


def masked_tokens() -> ml_collections.ConfigDict:
  """Returns the keys of the tokens that are masked."""
  objective = ml_collections.ConfigDict()
  objective.mask_rate = 0.15  # the share of tokens that are predicted
  # The share at the first step, from which it goes to mask_rate in a line.
  # Empty: mask_rate.
  objective.first_mask_rate = config_dict.placeholder(float)
  objective.mask_fraction = 0.8  # the share of these that [MASK] replaces
  # The share of these that a random token replaces.
  objective.random_fraction = 0.1
  # What is masked whole: 'piece', 'word', 'span' (1 to 3 words), or 'stored',
  # the units of data.units.
  objective.unit = 'piece'
  # How many tokens are predicted: 'exact' (mask_rate of each row, as BERT) or
  # 'drawn' (each unit with that probability, as ERNIE).
  objective.counting = 'exact'
  return objective


def rate() -> ml_collections.ConfigDict:
  """Returns the keys of an optimiser's name and rate."""
  optim = ml_collections.ConfigDict()
  # bert_adam (BERT's release: no bias correction), gpt_adam (GPT's release:
  # bias correction scales the decay too), adamw, stable_adamw (which shortens
  # the step of a matrix whose gradients grow suddenly), muon (whose updates of
  # the layers' matrices are orthogonal), lamb (for large batches),
  # adadelta (with a rate of 1), adafactor (little memory; rates relative to
  # each matrix), adagrad (ELMo) or sgd (word2vec, nnlm). The last four do not
  # read beta1 and beta2; the last three do not read epsilon.
  optim.name = 'bert_adam'
  optim.learning_rate = 1e-4  # the peak
  # The rate after the warm-up: 'linear' (BERT) or 'cosine' (GPT) to 0;
  # 'constant'; 'wsd' (constant until it falls in the last decay_share of the
  # steps); 'staircase' (times 0.999 after every 100 steps); or 'inverse'
  # (divided by 1 + 1e-8 times the tokens read).
  optim.schedule = 'linear'
  return optim


def schedule() -> ml_collections.ConfigDict:
  """Returns the keys of an optimiser whose rate follows phases."""
  optim = rate()
  optim.warmup_steps = 10_000  # steps in which the rate grows linearly from 0
  optim.decay_share = 0.2  # the share of the steps in which 'wsd' falls to 0
  # (learning_rate, warmup_steps) of each 'restart' phase. Empty: those above.
  optim.restarts = ()
  return optim


def adam() -> ml_collections.ConfigDict:
  """Returns the keys of an optimiser with its rate, BERT's by default."""
  optim = schedule()
  optim.update(moments())
  return optim


def moments() -> ml_collections.ConfigDict:
  """Returns the keys of means of gradients, decay and clip."""
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
  # (logical axis of parameters or activations, mesh axes).
  mesh.rules = mesh_rules.RULES
  return mesh


def steps() -> ml_collections.ConfigDict:
  """Returns the keys of the training of any run."""
  placeholder = config_dict.placeholder
  train = ml_collections.ConfigDict()
  # Parts of a global batch whose gradients are accumulated.
  train.micro_batches = 1
  train.seed = 0  # of parameters, order, pairs, masks and dropout
  # The platform that the run requires: cpu, gpu or tpu; auto: what JAX finds.
  train.platform = 'auto'
  # On a GPU, requires XLA_FLAGS that make kernels deterministic.
  train.deterministic = False
  # A run without a step or a scored batch for so long ends and prints all
  # stacks. Compiling may take 4 times as long, and at least an hour.
  train.hang_minutes = 60.0
  # Peak TFLOP/s of a device, for the MFU. Empty: known devices' own.
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
  # (steps, length, global batch, 'continue' or 'restart' of the schedule of the
  # rate), and perhaps the phase's own objective.unit, or stored:FOLDER, the
  # units of another store with the same vocabulary.
  train.phases = ((1_000, 128, 32, 'continue'),)
  # Replaces the steps of a single phase.
  train.steps = placeholder(int)
  train.num_epochs = placeholder(float)  # The same, in epochs.
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
  # What to begin with: a workdir, a folder of weights, or a name on Hugging
  # Face's hub, such as openai-community/gpt2. Empty: nothing.
  config.init.weights = config_dict.placeholder(str)
  # Draws the rows of pieces, positions and types that the weights lack.
  config.init.new_rows = False
  return config.init


def drawn_matrices() -> ml_collections.ConfigDict:
  """Returns the key of the matrices that a run draws."""
  init = ml_collections.ConfigDict()
  init.stddev = 0.02  # of matrices and of the token table
  return init


def drawn_transformer() -> ml_collections.ConfigDict:
  """Returns the keys of the parameters that a BERT or GPT draws."""
  init = drawn_matrices()
  # Of the tables of positions and token types.
  init.position_stddev = 0.02
  return init
