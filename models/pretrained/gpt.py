"""GPT's and GPT-2's weights, as released and at Hugging Face, read and written.

Every published array is a parameter, or one layer of it, reshaped. Linear
kernels are [inputs, outputs].
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from models import gpt
from models.pretrained import config_files, strict, tensorflow_file
from models.pretrained.config_files import SHARE, SMALL
from models.pretrained.strict import Entry, Piece
from models.pretrained.weights import NO_SOFTMAX, Weights

# Parameter -> Hugging Face's name, below h.0, h.1 and so on; stacked here.
LAYER_NAMES = {
  'attention/qkv/kernel': 'attn.c_attn.weight',
  'attention/qkv/bias': 'attn.c_attn.bias',
  'attention/out/kernel': 'attn.c_proj.weight',
  'attention/out/bias': 'attn.c_proj.bias',
  'attention_norm/scale': 'ln_1.weight',
  'attention_norm/bias': 'ln_1.bias',
  'mlp/in/kernel': 'mlp.c_fc.weight',
  'mlp/in/bias': 'mlp.c_fc.bias',
  'mlp/out/kernel': 'mlp.c_proj.weight',
  'mlp/out/bias': 'mlp.c_proj.bias',
  'mlp_norm/scale': 'ln_2.weight',
  'mlp_norm/bias': 'ln_2.bias',
}
TABLE = 'embeddings/tokens/embedding'
NAMES = {
  'gpt': {
    TABLE: 'tokens_embed.weight',
    'embeddings/positions': 'positions_embed.weight',
  },
  'gpt2': {
    TABLE: 'wte.weight',
    'embeddings/positions': 'wpe.weight',
    'final_norm/scale': 'ln_f.weight',
    'final_norm/bias': 'ln_f.bias',
  },
}
PREFIX = 'transformer.'  # before all names in some files, in others not
HEAD = 'lm_head.weight'  # the token table again, in some files
# The config that implies weights without a softmax, see `NO_SOFTMAX`.
HEADLESS = {
  name: {'architectures': [architecture], 'tie_word_embeddings': False}
  for name, architecture in (('gpt', 'OpenAIGPTModel'), ('gpt2', 'GPT2Model'))
}
# Causal masks and 0, 1, 2 ..., saved with the weights by old versions.
BUFFERS = ('.attn.bias', '.attn.masked_bias', 'position_ids')
# Unused heads: multiple choices, labels of texts and of tokens, answers.
OTHER_HEADS = ('multiple_choice_head.', 'score.', 'classifier.', 'qa_outputs.')

# Hugging Face's `model_type` -> family.
MODEL_TYPES = {'openai-gpt': 'gpt', 'gpt2': 'gpt2'}
ARCHITECTURES = {'gpt': 'OpenAIGPTLMHeadModel', 'gpt2': 'GPT2LMHeadModel'}
FIELDS = {  # key of a config -> (field, kind), see `config_files.read_fields`
  'vocab_size': ('vocab_size', 'a count'),
  'n_layer': ('num_layers', 'a count of layers'),
  'n_embd': ('embed_dim', 'a count'),
  'n_head': ('num_heads', 'a count'),
  'n_inner': ('mlp_dim', 'a count or nothing'),
  'n_positions': ('max_length', 'a count'),
  'layer_norm_epsilon': ('layer_norm_epsilon', SMALL),
  'resid_pdrop': ('dropout_rate', SHARE),
  'attn_pdrop': ('attention_dropout_rate', SHARE),
}
FORM = {  # the only values that its classes have
  field: getattr(gpt.Gpt, field)
  for field in ('biases', 'gated', 'positions', 'window', 'query_key_norm')
}
HPARAMS = {  # the same in GPT-2's release
  'n_vocab': FIELDS['vocab_size'],
  **{key: FIELDS[key] for key in ('n_layer', 'n_embd', 'n_head')},
  'n_ctx': FIELDS['n_positions'],
}
HPARAMS_FILE = 'hparams.json'
# Keys that configs may leave out (transformers, configuration_*.py).
DEFAULTS = {'layer_norm_epsilon': 1e-5, 'resid_pdrop': 0.1, 'attn_pdrop': 0.1}
ACTIVATIONS = {  # key of the activation, and its value where it is left out
  'gpt': ('afn', 'gelu'),
  'gpt2': ('activation_function', 'gelu_new'),
}
# Activation -> form of GELU. GPT's 'gelu' is the approximation too
# (transformers, modeling_openai.py, ACT_FNS).
GELU = {
  'gpt': {'gelu': 'tanh'},
  'gpt2': {'gelu_new': 'tanh', 'gelu_pytorch_tanh': 'tanh', 'gelu': 'erf'},
}
ALWAYS = {  # options of transformers' GPT-2 that have one value here
  'scale_attn_weights': True,
  'scale_attn_by_inverse_layer_idx': False,
  'add_cross_attention': False,
  'quantization_config': None,
}


def from_hugging_face(
  folder: epath.Path,
  name: str,
  config: Mapping[str, Any],
  entries: Mapping[str, Entry],
) -> Weights:
  """Opens a 'gpt' or 'gpt2' of Hugging Face, with or without its head."""

  def name_of(name: str) -> str | None:
    if name.endswith(BUFFERS) or name.startswith(OTHER_HEADS):
      return None
    return name.removeprefix(PREFIX)

  renamed, set_aside, problems = strict.rename(entries, name_of)
  notes = {}
  if config.get('tie_word_embeddings') is False:
    if HEAD in renamed:
      problems.append('tie_word_embeddings is False, only True is known here')
    else:
      notes[NO_SOFTMAX] = (
        f'tie_word_embeddings is False, and no {HEAD} is there: the weights'
        ' give vectors of texts, but no probabilities of tokens'
      )
  strict.tie(renamed, NAMES[name][TABLE], HEAD)
  weights = Weights(
    folder, 'Hugging Face', name, set_aside=set_aside, notes=notes
  )
  return add_model(weights, config, FIELDS, renamed, problems)


def from_tensorflow(
  folder: epath.Path, hparams: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Weights:
  """Opens a GPT-2 as OpenAI released it: hparams.json and a checkpoint."""
  renamed, set_aside, problems = strict.rename(
    entries,
    lambda name: None if tensorflow_file.OPTIMIZER.fullmatch(name) else name,
  )
  weights = Weights(folder, 'TensorFlow', 'gpt2', set_aside=set_aside)
  return add_model(weights, hparams, HPARAMS, renamed, problems)


def add_model(
  weights: Weights,
  config: Mapping[str, Any],
  table: Mapping[str, tuple[str, str]],
  entries: Mapping[str, Entry],
  problems: Sequence[str] = (),
) -> Weights:
  """Adds the model of a config, read by a table like `FIELDS`, to weights."""
  key, default = ACTIVATIONS[weights.name]
  fields, config_problems = config_files.read_transformer(
    DEFAULTS | {key: default} | dict(config),
    table,
    key,
    GELU[weights.name],
    ALWAYS,
  )
  model = None
  if fields is not None:
    fields['mlp_dim'] = fields.get('mlp_dim') or 4 * fields['embed_dim']
    model = gpt.Gpt(pre_norm=weights.name == 'gpt2', **fields)
  return weights.of_model(
    model,
    entries,
    lambda shapes: _pieces(model, shapes, weights.kind == 'Hugging Face'),
    [*config_problems, *problems],
  )


def to_hugging_face(
  params: Mapping, model: gpt.Gpt
) -> tuple[str, dict[str, np.ndarray]]:
  """Returns Hugging Face's class name, and name -> array in its files."""
  pieces = _pieces(model, strict.flatten(params), True)
  arrays = strict.scatter(params, pieces)
  return ARCHITECTURES[_name(model)], {
    PREFIX + name: array for name, array in arrays.items()
  }


def to_config(model: gpt.Gpt) -> dict[str, Any]:
  """Returns a model's Hugging Face config; ValueError if it cannot have one."""
  name = _name(model)
  gelus = {form: key for key, form in reversed(GELU[name].items())}
  problems = [
    f'{field} is {getattr(model, field)!r}, expected {expected!r}'
    for field, expected in FORM.items()
    if getattr(model, field) != expected
  ]
  if model.gelu not in gelus:
    problems.append(f'gelu is {model.gelu!r}, expected {" or ".join(gelus)}')
  if name == 'gpt' and model.mlp_dim != 4 * model.embed_dim:
    problems.append(
      f'mlp_dim is {model.mlp_dim}, expected 4 x embed_dim'
      f' ({4 * model.embed_dim})'
    )
  if problems:
    raise ValueError(
      "Hugging Face's GPT has no such model:\n  " + '\n  '.join(problems)
    )
  config = {key: getattr(model, field) for key, (field, _) in FIELDS.items()}
  return config | {
    'model_type': next(k for k, v in MODEL_TYPES.items() if v == name),
    'embd_pdrop': model.dropout_rate,
    ACTIVATIONS[name][0]: gelus[model.gelu],
  }


def _name(model: gpt.Gpt) -> str:
  return 'gpt2' if model.pre_norm else 'gpt'


def _pieces(
  model: gpt.Gpt, shapes: Mapping[str, Any], hugging_face: bool
) -> Iterator[Piece]:
  """Yields the pieces by the names of Hugging Face or of GPT-2's release."""
  top = NAMES[_name(model) if hugging_face else 'gpt2']
  for path, leaf in shapes.items():
    if path in top:
      rows = model.vocab_size if path == TABLE else leaf.shape[0]
      shape = (rows, *leaf.shape[1:])
      parts = [(top[path], slice(rows))]
    else:
      shape = leaf.shape[1:]
      if path.endswith('kernel'):  # [D, 3, N, H], [N, H, D], [D, F] or [F, D]
        inputs = 2 if path == 'layers/attention/out/kernel' else 1
        shape = math.prod(shape[:inputs]), math.prod(shape[inputs:])
      else:
        shape = (math.prod(shape),)
      name = LAYER_NAMES[path.removeprefix('layers/')]
      parts = [(f'h.{i}.{name}', i) for i in range(model.num_layers)]
    for name, place in parts:
      if hugging_face:
        yield Piece(name, path, shape, place=(place,))
        continue
      name = _release_name(name)
      axes = (1,) if name.endswith('/w') else ()
      yield Piece(name, path, (*axes, *shape), place=(place,))


def _release_name(name: str) -> str:
  """Returns the GPT-2 release's name of an array of Hugging Face's."""
  name = re.sub(r'^(wte|wpe)\.weight$', r'\1', name)
  name = re.sub(r'(ln_\w)\.weight$', r'\1/g', name)
  name = re.sub(r'\.weight$', '/w', name)
  name = re.sub(r'\.bias$', '/b', name)
  return 'model/' + re.sub(r'^h\.', 'h', name).replace('.', '/')
