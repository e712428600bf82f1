"""GPT's and GPT-2's weights under Hugging Face's names, to ours and back.

Every array there is one of ours, or one layer of it, in another shape. Linear
kernels are [inputs, outputs] on both sides.
"""

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from etils import epath
from flax import linen as nn

from models import gpt
from models.pretrained import strict
from models.pretrained.strict import Piece

# Ours -> theirs. The layers' lie in one array each here; there under h.0, h.1.
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
GPT_NAMES = {
  TABLE: 'tokens_embed.weight',
  'embeddings/positions': 'positions_embed.weight',
}
GPT2_NAMES = {
  TABLE: 'wte.weight',
  'embeddings/positions': 'wpe.weight',
  'final_norm/scale': 'ln_f.weight',
  'final_norm/bias': 'ln_f.bias',
}
PREFIX = 'transformer.'  # before all names in some files, in others not
HEAD = 'lm_head.weight'  # the token table again, where it is there at all
# Causal masks and 0, 1, 2 ..., saved with the weights by old versions.
BUFFERS = ('.attn.bias', '.attn.masked_bias', 'position_ids')

CONFIG_FILE = 'config.json'
WEIGHTS_FILE = 'model.safetensors'
# Their `model_type` -> our name.
MODEL_TYPES = {'openai-gpt': 'gpt', 'gpt2': 'gpt2'}
# Theirs -> our forms of GELU. GPT's 'gelu' is the approximation too
# (transformers, modeling_openai.py, ACT_FNS).
GELU = {
  'gpt': {'gelu': 'tanh'},
  'gpt2': {'gelu_new': 'tanh', 'gelu_pytorch_tanh': 'tanh', 'gelu': 'erf'},
}
# What GPT-2's code there can be told to do and ours does not.
ALWAYS = {
  'scale_attn_weights': True,
  'scale_attn_by_inverse_layer_idx': False,
  'add_cross_attention': False,
  'tie_word_embeddings': True,
}
# What their configs leave out (transformers, configuration_*.py).
DEFAULTS = {
  'gpt': {'afn': 'gelu'},
  'gpt2': {'activation_function': 'gelu_new'},
}
for _defaults in DEFAULTS.values():
  _defaults |= ALWAYS | {'layer_norm_epsilon': 1e-5, 'n_inner': None}


def model_type(config: object) -> str | None:
  """Returns the `model_type` of a config of Hugging Face's; None for others.

  Args:
    config: what config.json holds; early ones do not name their type.
  """
  if not isinstance(config, dict):
    return None
  if 'model_type' in config:
    found = config['model_type']
    return found if isinstance(found, str) else None
  if 'n_embd' in config:
    return 'openai-gpt' if 'afn' in config else 'gpt2'
  return None


def read_folder(folder: epath.PathLike) -> tuple[gpt.Gpt, dict]:
  """Returns the model of a Hugging Face folder, and its parameters.

  Args:
    folder: holds config.json and model.safetensors of an OpenAIGPT or GPT2
      model, with or without its language-model head.

  Raises:
    FileNotFoundError: if a file is missing.
    ValueError: if one is damaged, or the model is not one of ours.
  """
  folder = epath.Path(folder)
  config_file, file = folder / CONFIG_FILE, folder / WEIGHTS_FILE
  try:
    model = _model(json.loads(config_file.read_bytes()))
  except (ValueError, TypeError) as error:
    raise ValueError(f'{config_file}: {error}') from error
  if not file.exists():
    raise FileNotFoundError(
      f'{folder} has a {CONFIG_FILE} but no {WEIGHTS_FILE}: save the model in'
      ' one file of that format'
    )
  try:
    with safetensors.safe_open(file, framework='flax') as arrays:
      given = {name: arrays.get_tensor(name) for name in arrays.keys()}
    return model, from_hugging_face(given, model)
  except (ValueError, safetensors.SafetensorError) as error:
    raise ValueError(f'{file}: {error}') from error


def _model(config: Mapping[str, Any]) -> gpt.Gpt:
  """Returns the model that a config of Hugging Face's describes."""

  def value(key: str) -> Any:
    if key not in config:
      raise ValueError(f'no {key!r}')
    return config[key]

  def count(key: str) -> int:
    number = value(key)
    if type(number) is not int or number < 1:
      raise ValueError(f'{key} is {number!r}, expected a count')
    return number

  name = MODEL_TYPES[model_type(config)]
  config = DEFAULTS[name] | config
  for key, expected in ALWAYS.items():
    if config[key] != expected:
      raise ValueError(f'{key} is {config[key]}, only {expected} is known here')
  key = 'afn' if name == 'gpt' else 'activation_function'
  if str(value(key)) not in GELU[name]:
    raise ValueError(
      f'{key} is {config[key]!r}, expected {" or ".join(GELU[name])}'
    )
  width, heads = count('n_embd'), count('n_head')
  if width % heads:
    raise ValueError(f'n_embd={width} is no multiple of n_head={heads}')
  epsilon = value('layer_norm_epsilon')
  if type(epsilon) is not float or not 0 < epsilon < 1:
    raise ValueError(
      f'layer_norm_epsilon is {epsilon!r}, expected such as 1e-5'
    )
  return gpt.Gpt(
    vocab_size=count('vocab_size'),
    num_layers=count('n_layer'),
    embed_dim=width,
    num_heads=heads,
    mlp_dim=4 * width if config['n_inner'] is None else count('n_inner'),
    max_length=count('n_positions'),
    pre_norm=name == 'gpt2',
    gelu=GELU[name][config[key]],
    layer_norm_epsilon=epsilon,
  )


def from_hugging_face(arrays: Mapping[str, np.ndarray], model: gpt.Gpt) -> dict:
  """Returns the parameters of a model whose weights have Hugging Face's names.

  Args:
    arrays: name -> array, of an OpenAIGPT or GPT2 model with or without its
      language-model head.
    model: of the same sizes; its layers stacked.

  Returns:
    float32 NumPy arrays in a tree like that of `model.init`, unboxed.

  Raises:
    ValueError: listing every name that is missing or not known, and every
      array of another shape than the model has.
  """
  entries = strict.in_memory(
    {
      name.removeprefix(PREFIX): array
      for name, array in arrays.items()
      if not name.endswith(BUFFERS)
    }
  )
  top, shapes = _names_and_shapes(model)
  pieces = _pieces(model, top, shapes)
  head = entries.pop(HEAD, None)
  problems = strict.misfits(entries, pieces)
  if problems:
    raise ValueError('these weights do not fit:\n  ' + '\n  '.join(problems))
  if head is not None and not np.array_equal(
    head.read(), entries[top[TABLE]].read()
  ):
    raise ValueError(
      f'{HEAD} differs from {top[TABLE]}: the softmax of this model is tied'
    )
  return strict.gather(entries, pieces, shapes)


def to_hugging_face(params: Mapping, model: gpt.Gpt) -> dict[str, np.ndarray]:
  """Returns name -> array as an OpenAIGPT or GPT2 model with its head has it.

  Args:
    params: of `model`, unboxed.
    model: the model, its layers stacked.
  """
  top, shapes = _names_and_shapes(model)
  arrays = strict.scatter(params, _pieces(model, top, shapes))
  arrays = {PREFIX + name: array for name, array in arrays.items()}
  return arrays | {HEAD: arrays[PREFIX + top[TABLE]]}


def _names_and_shapes(
  model: gpt.Gpt,
) -> tuple[dict[str, str], dict[str, jax.ShapeDtypeStruct]]:
  """Returns the table for what is outside of layers, and all our shapes."""
  ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 1), bool)
  boxed = jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    ids,
    mask,
    ids,
  )
  names = GPT2_NAMES if model.pre_norm else GPT_NAMES
  return names, strict.flatten(nn.meta.unbox(boxed['params']))


def _pieces(
  model: gpt.Gpt,
  top: Mapping[str, str],
  shapes: Mapping[str, jax.ShapeDtypeStruct],
) -> list[Piece]:
  """Returns how the arrays here and there correspond, all of both."""
  pieces = []
  for path, leaf in shapes.items():
    if path == TABLE:
      V = model.vocab_size
      shape = (V, leaf.shape[1])
      pieces.append(Piece(top[path], path, shape, place=(slice(V),)))
      continue
    if path in top:
      pieces.append(Piece(top[path], path, leaf.shape))
      continue
    name = path.removeprefix('layers/')
    shape = leaf.shape[1:]
    if name == 'attention/out/kernel':  # [N, H, D]
      shape = (math.prod(shape[:-1]), shape[-1])
    elif name.endswith('kernel'):  # [D, 3, N, H] or [D, F] or [F, D]
      shape = (shape[0], math.prod(shape[1:]))
    else:
      shape = (math.prod(shape),)
    pieces += [
      Piece(f'h.{i}.{LAYER_NAMES[name]}', path, shape, place=(i,))
      for i in range(model.num_layers)
    ]
  return pieces
