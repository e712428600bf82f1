"""GPT's and GPT-2's weights, as released and Hugging Face's, to ours and back.

Every array there is one of ours, or one layer of it, in another shape. Linear
kernels are [inputs, outputs] on all sides.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from models import gpt
from models.pretrained import config_files, strict, weight_files
from models.pretrained.strict import Entry, Piece, Published

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
HEAD = 'lm_head.weight'  # the token table again, where it is there at all
# Key of the notes of weights that have no softmax, tied or not; and what tells
# so in the config of a folder.
NO_SOFTMAX = 'softmax'
HEADLESS = {
  name: {'architectures': [architecture], 'tie_word_embeddings': False}
  for name, architecture in {
    'gpt': 'OpenAIGPTModel',
    'gpt2': 'GPT2Model',
  }.items()
}
# Causal masks and 0, 1, 2 ..., saved with the weights by old versions.
BUFFERS = ('.attn.bias', '.attn.masked_bias', 'position_ids')
# Heads that are not ours: for multiple choices, labels of texts and of tokens,
# and answers.
OTHER_HEADS = ('multiple_choice_head.', 'score.', 'classifier.', 'qa_outputs.')

# Their `model_type` -> our name.
MODEL_TYPES = {'openai-gpt': 'gpt', 'gpt2': 'gpt2'}
ARCHITECTURES = {'gpt': 'OpenAIGPTLMHeadModel', 'gpt2': 'GPT2LMHeadModel'}
# Their sizes -> our fields, and what they must be.
FIELDS = {
  'vocab_size': ('vocab_size', 'a count'),
  'n_layer': ('num_layers', 'a count of layers'),
  'n_embd': ('embed_dim', 'a count'),
  'n_head': ('num_heads', 'a count'),
  'n_inner': ('mlp_dim', 'a count or nothing'),
  'n_positions': ('max_length', 'a count'),
  'layer_norm_epsilon': (
    'layer_norm_epsilon',
    'a number below 1, such as 1e-5',
  ),
  'resid_pdrop': ('dropout_rate', 'a share from 0 to below 1'),
  'attn_pdrop': ('attention_dropout_rate', 'a share from 0 to below 1'),
}
# The same of GPT-2's release.
HPARAMS = {
  'n_vocab': ('vocab_size', 'a count'),
  'n_layer': ('num_layers', 'a count of layers'),
  'n_embd': ('embed_dim', 'a count'),
  'n_head': ('num_heads', 'a count'),
  'n_ctx': ('max_length', 'a count'),
}
HPARAMS_FILE = 'hparams.json'
# What their configs may leave out (transformers, configuration_*.py).
DEFAULTS = {
  'layer_norm_epsilon': 1e-5,
  'resid_pdrop': 0.1,
  'attn_pdrop': 0.1,
}
# Their name of the activation, and its value where it is left out.
ACTIVATIONS = {
  'gpt': ('afn', 'gelu'),
  'gpt2': ('activation_function', 'gelu_new'),
}
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
  'quantization_config': None,
}


def from_hugging_face(
  folder: epath.Path,
  name: str,
  config: Mapping[str, Any],
  entries: Mapping[str, Entry],
) -> Published:
  """Opens an OpenAIGPT or GPT2 model, with or without its head.

  Args:
    folder: where it lies.
    name: 'gpt' or 'gpt2'.
    config: what config.json holds.
    entries: of the files of weights.
  """

  def name_of(theirs: str) -> str | None:
    if theirs.endswith(BUFFERS) or theirs.startswith(OTHER_HEADS):
      return None
    return theirs.removeprefix(PREFIX)

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
  published = Published(
    folder, 'Hugging Face', name, set_aside=set_aside, notes=notes
  )
  return add_model(published, config, FIELDS, renamed, problems)


def from_tensorflow(
  folder: epath.Path, hparams: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Published:
  """Opens a GPT-2 as OpenAI released it.

  Args:
    folder: where it lies.
    hparams: what hparams.json holds.
    entries: of the checkpoint.
  """
  renamed, set_aside, problems = strict.rename(
    entries,
    lambda name: None if weight_files.OPTIMIZER.fullmatch(name) else name,
  )
  published = Published(folder, 'TensorFlow', 'gpt2', set_aside=set_aside)
  return add_model(published, hparams, HPARAMS, renamed, problems)


def add_model(
  published: Published,
  config: Mapping[str, Any],
  table: Mapping[str, tuple[str, str]],
  entries: Mapping[str, Entry],
  problems: Sequence[str] = (),
) -> Published:
  """Returns weights with their model, and how its arrays correspond to theirs.

  Args:
    published: what is known already.
    config: their sizes.
    table: key of the config -> our field, and what it must be.
    entries: under their plain names.
    problems: that are known already.
  """
  model, config_problems = _model(published.name, config, table)
  problems = [*config_problems, *problems]
  shapes, pieces = {}, []
  if model is not None:
    shapes = _shapes(model)
    pieces = _pieces(model, shapes, published.kind == 'Hugging Face')
    problems += strict.misfits(entries, pieces)
  return dataclasses.replace(
    published,
    model=model,
    pieces=pieces,
    entries=entries,
    shapes=shapes,
    problems=tuple(problems),
  )


def _model(
  name: str, config: Mapping[str, Any], table: Mapping[str, tuple[str, str]]
) -> tuple[gpt.Gpt | None, list[str]]:
  """Returns the model of a config, None if it is not enough; and problems."""
  key, default = ACTIVATIONS[name]
  config = DEFAULTS | {key: default} | dict(config)
  fields, problems = config_files.read_fields(config, table)
  enough = not problems
  gelu, wrong = config_files.read_choice(config, key, GELU[name])
  problems += wrong + config_files.deviations(config, ALWAYS)
  if enough and fields['embed_dim'] % fields['num_heads']:
    problems.append(
      f'n_embd is {fields["embed_dim"]}, expected a multiple of n_head'
      f' ({fields["num_heads"]})'
    )
    enough = False
  if not enough:
    return None, problems
  fields['mlp_dim'] = fields.get('mlp_dim') or 4 * fields['embed_dim']
  model = gpt.Gpt(pre_norm=name == 'gpt2', gelu=gelu or 'tanh', **fields)
  return model, problems


def to_hugging_face(
  params: Mapping, model: gpt.Gpt
) -> tuple[str, dict[str, np.ndarray]]:
  """Returns the class there, and name -> array as its files have it.

  Args:
    params: of `model`, unboxed.
    model: the model, its layers stacked.
  """
  pieces = _pieces(model, strict.flatten(params), True)
  arrays = strict.scatter(params, pieces)
  return ARCHITECTURES[_name(model)], {
    PREFIX + name: array for name, array in arrays.items()
  }


def to_config(model: gpt.Gpt) -> dict[str, Any]:
  """Returns the config of Hugging Face's that describes a model.

  Raises:
    ValueError: if the code there cannot do what the model does.
  """
  name = _name(model)
  gelus = {ours: theirs for theirs, ours in reversed(GELU[name].items())}
  problems = []
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


def _shapes(model: gpt.Gpt) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns 'path/of/leaf' -> shape of all arrays of a model."""
  ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 1), bool)
  return strict.shapes_of(model, ids, mask, ids, train=False)


def _pieces(
  model: gpt.Gpt, shapes: Mapping[str, Any], hugging_face: bool
) -> list[Piece]:
  """Returns how the arrays here and there correspond, all of both.

  Args:
    model: the model.
    shapes: of all our arrays.
    hugging_face: its names, else those of GPT-2's release.
  """
  top = NAMES[_name(model) if hugging_face else 'gpt2']
  pieces = []

  def add(
    theirs: str, path: str, shape: tuple[int, ...], place: tuple = (Ellipsis,)
  ) -> None:
    if not hugging_face:
      theirs = _release_name(theirs)
      shape = (1, *shape) if theirs.endswith('/w') else shape
    pieces.append(Piece(theirs, path, shape, place=place))

  for path, leaf in shapes.items():
    if path == TABLE:
      V = model.vocab_size
      add(top[path], path, (V, leaf.shape[1]), (slice(V),))
      continue
    if path in top:
      add(top[path], path, leaf.shape)
      continue
    name = path.removeprefix('layers/')
    shape = leaf.shape[1:]
    if name == 'attention/out/kernel':  # [N, H, D]
      shape = (math.prod(shape[:-1]), shape[-1])
    elif name.endswith('kernel'):  # [D, 3, N, H] or [D, F] or [F, D]
      shape = (shape[0], math.prod(shape[1:]))
    else:
      shape = (math.prod(shape),)
    for i in range(model.num_layers):
      add(f'h.{i}.{LAYER_NAMES[name]}', path, shape, (i,))
  return pieces


def _release_name(name: str) -> str:
  """Returns the name in GPT-2's release of an array of Hugging Face's."""
  name = re.sub(r'^(wte|wpe)\.weight$', r'\1', name)
  name = re.sub(r'(ln_\w)\.weight$', r'\1/g', name)
  name = re.sub(r'\.weight$', '/w', name)
  name = re.sub(r'\.bias$', '/b', name)
  return 'model/' + re.sub(r'^h\.', 'h', name).replace('.', '/')
