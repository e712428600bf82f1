"""Sizes and ablations of each architecture, with their source, and defaults."""

import importlib
from collections.abc import Callable

import ml_collections

# Devlin et al. 2018, section 3 (base, large) and Table 6 (l*-h*-a*); Turc et
# al. 2019, google-research/bert's README (tiny to medium).
# Of fine-tuning (Devlin et al. 2018, appendix A.3): key -> values to try.
PAPER_GRID = {
  'optim.learning_rate': (5e-5, 3e-5, 2e-5),
  'train.global_batch': (16, 32),
  'train.num_epochs': (3.0, 4.0),
}
BERT = {
  'bert-tiny': dict(num_layers=2, embed_dim=128, num_heads=2),
  'bert-mini': dict(num_layers=4, embed_dim=256, num_heads=4),
  'bert-small': dict(num_layers=4, embed_dim=512, num_heads=8),
  'bert-medium': dict(num_layers=8, embed_dim=512, num_heads=8),
  'bert-base': dict(num_layers=12, embed_dim=768, num_heads=12),
  'bert-large': dict(num_layers=24, embed_dim=1024, num_heads=16),
  'bert-l3-h768-a12': dict(num_layers=3, embed_dim=768, num_heads=12),
  'bert-l6-h768-a3': dict(num_layers=6, embed_dim=768, num_heads=3),
  'bert-l6-h768-a12': dict(num_layers=6, embed_dim=768, num_heads=12),
  'bert-l12-h1024-a16': dict(num_layers=12, embed_dim=1024, num_heads=16),
}

# Devlin et al. 2018, Table 5. Without next sentences there are neither pooler
# nor NSP head.
BERT_TASKS = {
  'no_nsp': {'train.objective': 'mlm'},
  'ltr_no_nsp': {
    'train.objective': 'lm',
    'model.left_to_right': True,
    'objective.first_mask_rate': None,  # of a modern one
  },
}
# What is masked whole: words (google-research/bert, README of 2019-05-31), or
# spans of 1 to 3 words, as in ALBERT (Lan et al. 2020, section 3.3).
BERT_UNITS = {
  'whole_word': {'objective.unit': 'word'},
  'span': {'objective.unit': 'span'},
}
MASKING = 'mask='
# What is known since (Warner et al. 2024, "Smarter, Better, Faster, Longer",
# sections 2 and 3). Of a GPT: the layers' form, rows of whole documents, no
# dropout, matrices that are updated by Muon. Of a BERT also windows, no next
# sentences and twice as many masks at first. Each has the schedule that is the
# better one for it (results/modern_parts.json).
MODERN_GPT = {
  'model.norm': 'pre',
  'model.biases': False,
  'model.gated': True,
  'model.gelu': 'erf',
  'model.positions': 'rotary',
  'model.dropout_rate': 0.0,
  'model.attention_dropout_rate': 0.0,
  'data.packed': 'documents',
  'optim.name': 'muon',
  'optim.schedule': 'wsd',
  'optim.beta2': 0.98,
  'optim.epsilon': 1e-8,
}
MODERN = MODERN_GPT | {
  'optim.schedule': 'linear',
  'model.num_token_types': 0,
  'model.window': 64,
  'train.objective': 'mlm',
  'objective.first_mask_rate': 0.3,
  'init.self_score': 0.0,
}

# Radford et al. 2018, section 4.1; tiny and mini as the BERTs of these names.
GPT = {
  'gpt-tiny': dict(num_layers=2, embed_dim=128, num_heads=2),
  'gpt-mini': dict(num_layers=4, embed_dim=256, num_heads=4),
  'gpt': dict(num_layers=12, embed_dim=768, num_heads=12),
}
GPT2 = {  # Radford et al. 2019, Table 2; heads from the released hparams.json.
  'gpt2': dict(num_layers=12, embed_dim=768, num_heads=12),
  'gpt2-medium': dict(num_layers=24, embed_dim=1024, num_heads=16),
  'gpt2-large': dict(num_layers=36, embed_dim=1280, num_heads=20),
  'gpt2-xl': dict(num_layers=48, embed_dim=1600, num_heads=25),
}
# Devlin et al. 2018, section 3; openai/finetune-transformer-lm train.py;
# openai/gpt-2 model.py.
for _sizes in (*BERT.values(), *GPT.values(), *GPT2.values()):
  _sizes['mlp_dim'] = 4 * _sizes['embed_dim']

# From the names of the published options files: 2x1024_128_2048cnn_1xhighway,
# 2x2048_256_2048cnn_1xhighway, 2x4096_512_2048cnn_2xhighway (the original,
# Peters et al. 2018, section 3.4). elmo-tiny is ours, for trials.
ELMO = {
  'elmo-tiny': dict(lstm_dim=256, projection_dim=64, num_highway=1),
  'elmo-small': dict(lstm_dim=1024, projection_dim=128, num_highway=1),
  'elmo-medium': dict(lstm_dim=2048, projection_dim=256, num_highway=1),
  'elmo': dict(lstm_dim=4096, projection_dim=512, num_highway=2),
}
for _sizes in ELMO.values():
  _sizes.update(num_layers=2, char_embed_dim=16)
  _sizes['filters'] = (  # (width, count), 2,048 in all
    (1, 32),
    (2, 32),
    (3, 64),
    (4, 128),
    (5, 256),
    (6, 512),
    (7, 1024),
  )
ELMO['elmo-tiny']['filters'] = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 128))


# ELMo's task models as AllenNLP 0.9.0 trains them (training_config/
# biattentive_classification_network_elmo, esim, ner_elmo .jsonnet), the last as
# Wang et al. 2018: keys of the transfer config. Without a language model a BCN
# has model.dropout_rate=0.25.
WORD_MODELS = {
  'bcn': {
    'task.fixed_words': True,
    'train.global_batch': 100,
    'train.num_epochs': 40.0,
    'train.patience': 5,
    'optim.learning_rate': 1e-3,
    'optim.clip_norm': 5.0,
  },
  'esim': {
    'task.lower_words': True,
    'train.global_batch': 32,
    'train.num_epochs': 75.0,
    'train.patience': 5,
    'train.plateau': 0,
    'optim.learning_rate': 4e-4,
    'optim.clip_norm': 10.0,
  },
  'bilstm_crf': {
    'model.lstm_dim': 200,
    'model.num_layers': 2,
    'model.filters': ((3, 128),),
    'task.crf': 'bioul',
    'task.lower_words': True,
    'train.global_batch': 64,
    'train.num_epochs': 75.0,
    'train.patience': 25,
    'optim.learning_rate': 1e-3,
    'optim.clip_norm': 5.0,
  },
  'bilstm_attention': {
    'model.lstm_dim': 1500,
    'model.num_layers': 2,
    'model.hidden_dim': 512,
    'model.dropout_rate': 0.2,
    'task.max_length': 40,
    'task.mix_dropout': 0.5,
    'train.global_batch': 128,
    'train.num_epochs': 20.0,
    'train.patience': 5,
    'train.plateau': 0,
    'optim.learning_rate': 1e-4,
    'optim.clip_norm': 5.0,
  },
  # He et al. 2017: luheng/deep_srl, config/srl_config.json. The variants of
  # AllenNLP clip the norm too, where it clamps each number of a gradient to 1.
  'deep_srl': {
    'model.num_layers': 8,
    'model.dropout_rate': 0.1,
    'task.crf': 'viterbi',
    'task.lower_words': True,
    'task.max_length': 256,
    'train.global_batch': 80,
    'train.num_epochs': 500.0,
    'train.patience': 20,
    'optim.name': 'adadelta',
    'optim.learning_rate': 1.0,
    'optim.epsilon': 1e-6,
    'optim.clip_norm': 1.0,
  },
  # Lee et al. 2017: kentonl/e2e-coref at 53c41166, experiments.conf; about
  # 400,000 steps of OntoNotes' 2,802 documents.
  'e2e_coref': {
    'model.lstm_dim': 200,
    'model.hidden_dim': 150,
    'model.dropout_rate': 0.2,
    'model.char_embed_dim': 8,
    'model.filters': ((3, 50), (4, 50), (5, 50)),
    'task.fixed_words': True,
    'task.unknown_words': 'zero',
    'task.max_length': 512,
    'train.global_batch': 1,
    'train.num_epochs': 150.0,
    'eval.global_batch': 1,
    'optim.learning_rate': 1e-3,
    'optim.schedule': 'staircase',
    'optim.clip_norm': 5.0,
  },
  # allenai/document-qa at 2f9fa687, docqa/elmo/ablate_elmo_model.py.
  'bidaf_plus': {
    'model.lstm_dim': 90,
    'model.dropout_rate': 0.2,
    'model.char_embed_dim': 20,
    'model.filters': ((5, 100),),
    'task.fixed_words': True,
    'task.unknown_words': 'zero',
    'task.max_length': 512,
    'task.max_answer': 17,
    'task.mix_at': 'both',
    'task.mix_dropout': 0.5,
    'train.global_batch': 45,
    'train.num_epochs': 24.0,
    'train.eval_every': 1200,
    'optim.name': 'adadelta',
    'optim.learning_rate': 1.0,
    'optim.clip_norm': 1e9,  # none
    'optim.average': 0.999,
  },
  # allennlp 0.9.0, training_config/bidaf_elmo.jsonnet.
  'bidaf': {
    'model.lstm_dim': 100,
    'model.num_layers': 2,
    'model.dropout_rate': 0.2,
    'model.filters': ((5, 100),),
    'task.fixed_words': True,
    'task.lower_words': True,
    'task.max_length': 512,
    'train.global_batch': 40,
    'train.num_epochs': 20.0,
    'train.patience': 10,
    'train.plateau': 2,
    'optim.learning_rate': 1e-3,
    'optim.beta2': 0.9,
    'optim.clip_norm': 2.5,  # 5 of a sum of two losses, ours is their mean
  },
}


def pick(sizes: dict[str, dict], name: str) -> dict:
  """Returns a row of a table above; ValueError for an unknown name."""
  if name not in sizes:
    raise ValueError(f'no size {name!r}: expected one of {", ".join(sizes)}')
  return sizes[name]


def vary_bert(
  config: ml_collections.ConfigDict, size: str, arg: str = ''
) -> None:
  """Sets the size and variants of a BERT's config, in place.

  `arg` lists, separated by commas, any of: another size of `BERT`; 'modern'
  (see `MODERN`), whose MLP has as many numbers as BERT's; 'no_nsp' or
  'ltr_no_nsp' (Devlin et al. 2018, Table 5); 'whole_word' or 'span', what is
  masked whole; 'mask=M/S/R', per cent of the predicted tokens that become
  [MASK], stay the same and become random (Devlin et al. 2019, appendix C.2).
  Raises ValueError for other words, and for two that set the same.
  """
  words = [word for word in arg.split(',') if word]
  changes = BERT_TASKS | BERT_UNITS
  masked = [word for word in words if word.startswith(MASKING)]
  for some in (BERT, BERT_TASKS, BERT_UNITS, masked):
    same = [word for word in words if word in some]
    if len(same) > 1:
      raise ValueError(f'{" and ".join(same)}: expected one of them alone')
  (size,) = [word for word in words if word in BERT] or [size]
  config.model.update(BERT[size])
  # It fits the MLP to the size, and other words change what it predicts.
  if 'modern' in words:
    config.update_from_flattened_dict(MODERN)
    _narrow_gated(config)
  for word in words:
    if word in changes:
      config.update_from_flattened_dict(changes[word])
    elif word.startswith(MASKING):
      masked, random = _masking(word)
      config.objective.mask_fraction = masked
      config.objective.random_fraction = random
    elif word not in (*BERT, 'modern'):
      raise ValueError(
        f'{word!r} is no variant of a BERT: expected one of'
        f' {", ".join((*BERT, *changes, "modern"))} or {MASKING}80/10/10'
      )


def vary_gpt(
  config: ml_collections.ConfigDict, size: str, arg: str = ''
) -> None:
  """Sets the size of a GPT's config, in place.

  `arg` lists, separated by commas, any of: another size of `GPT`; 'modern' (see
  `MODERN_GPT`), whose MLP has as many numbers as GPT's. Raises ValueError for
  other words, and for two sizes.
  """
  words = [word for word in arg.split(',') if word]
  sizes = [word for word in words if word != 'modern']
  if len(sizes) > 1:
    raise ValueError(f'{" and ".join(sizes)}: expected one of them alone')
  for word in (size, *words):
    config.model.update(pick(GPT | {'modern': {}}, word))
  if 'modern' in words:
    config.update_from_flattened_dict(MODERN_GPT)
    _narrow_gated(config)


def _narrow_gated(config: ml_collections.ConfigDict) -> None:
  """Sets the width of a gated MLP: three matrices in the place of two."""
  config.model.mlp_dim = config.model.mlp_dim * 2 // 3 // 64 * 64


def _masking(word: str) -> tuple[float, float]:
  """Returns the shares that become [MASK] and random tokens."""
  shares = word.removeprefix(MASKING).split('/')
  if (
    len(shares) != 3
    or not all(share.isdecimal() for share in shares)
    or sum(map(int, shares)) != 100
  ):
    raise ValueError(
      f'{word!r}: expected three whole numbers that sum to 100, per cent of'
      f' [MASK], same and random, as in {MASKING}80/10/10'
    )
  masked, _, random = map(int, shares)
  return masked / 100, random / 100


def fit_cpu(config: ml_collections.ConfigDict) -> None:
  """Sets a small transformer's keys for a short run on a CPU."""
  config.model.scan_layers = False  # unrolled layers are faster on a CPU
  config.model.dropout_rate = 0.0  # so short a run does not overfit
  config.model.attention_dropout_rate = 0.0
  config.eval.global_batch = 64


# Where the defaults are made, of each family and of fine-tunings.
_SECTIONS = {
  'bert': 'base:get_config',
  'task': 'sections.task:get_config',
  'words': 'sections.task_models:get_config',
  'distill_task': 'sections.distill:get_config',
  'distill_words': 'sections.distill:get_words_config',
  'distill_bert': 'sections.distill:get_bert_config',
  'elmo': 'sections.elmo:get_config',
  'gpt': 'sections.gpt:get_config',
  'gpt2': 'sections.gpt:get_gpt2_config',
  'lstm': 'sections.gpt:get_lstm_config',
  'nnlm': 'sections.gpt:get_nnlm_config',
  'word2vec': 'sections.words:get_word2vec_config',
  'glove': 'sections.words:get_glove_config',
}


def make_defaults(name: str) -> ml_collections.ConfigDict:
  """Returns the defaults of a family, a `task` or a task model (`words`)."""
  return _maker(name)()


def _maker(name: str) -> Callable[[], ml_collections.ConfigDict]:
  module, function = _SECTIONS[name].split(':')
  return getattr(importlib.import_module(f'configs.{module}'), function)


def all_keys() -> set[str]:
  """Returns the keys that any config has, with its section."""
  return {
    f'{section}.{key}'
    for name in _SECTIONS
    for section, keys in make_defaults(name).items()
    for key in keys
  }


def get_defaults(
  config: ml_collections.ConfigDict,
) -> ml_collections.ConfigDict | None:
  """Returns defaults with the same keys; None of a family made elsewhere."""
  maker = maker_of(config)
  return maker and maker()


def maker_of(
  config: ml_collections.ConfigDict,
) -> Callable[[], ml_collections.ConfigDict] | None:
  """Returns what makes the defaults of `get_defaults`."""
  name = config.model.name
  if 'task' in config:
    name = 'words' if name in WORD_MODELS else 'task'
  if 'distill' in config:
    name = f'distill_{name}'
  return _maker(name) if name in _SECTIONS else None
