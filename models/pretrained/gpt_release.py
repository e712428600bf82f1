"""GPT's weights as OpenAI released them: NumPy files and a list of shapes.

openai/finetune-transformer-lm cuts one row of numbers without names into files.
"""

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from models.pretrained import config_files, gpt, weight_files
from models.pretrained.strict import Entry
from models.pretrained.weights import Weights

SHAPES_FILE = 'params_shapes.json'
NPY_FILE = re.compile(r'params_(0|[1-9]\d*)\.npy')
# The arrays of a layer, in the order and by the names of its train.py.
LAYER = (
  'attn/c_attn/w',
  'attn/c_attn/b',
  'attn/c_proj/w',
  'attn/c_proj/b',
  'ln_1/g',
  'ln_1/b',
  'mlp/c_fc/w',
  'mlp/c_fc/b',
  'mlp/c_proj/w',
  'mlp/c_proj/b',
  'ln_2/g',
  'ln_2/b',
)
# The width of a head (Radford et al. 2018, section 4.1), in none of the files.
HEAD_DIM = 64


def open_folder(folder: epath.Path) -> Weights:
  """Opens OpenAI's GPT: params_0.npy and so on, and params_shapes.json.

  Shapes are of positions, tokens and layers; hparams.json may tell `n_head`.
  """
  file = folder / SHAPES_FILE
  shapes = config_files.read(file, list)
  num_layers = (len(shapes) - 2) // len(LAYER)
  names = ['model/wpe', 'model/wte'] + [
    f'model/h{i}/{name}' for i in range(num_layers) for name in LAYER
  ]
  is_complete = num_layers > 0 and len(names) == len(shapes)
  if not is_complete or not all(map(_is_shape, shapes)):
    raise ValueError(
      f'{file} is no list of the shapes of positions, tokens and {len(LAYER)}'
      ' arrays of each layer'
    )
  arrays = entries(folder, dict(zip(names, shapes, strict=True)))
  sizes = {
    'vocab_size': shapes[1][0],
    'n_layer': num_layers,
    'n_embd': shapes[0][-1],
    'n_inner': arrays['model/h0/mlp/c_fc/b'].shape[0],
    'n_positions': shapes[0][0],
  }
  num_heads, notes, problems = _heads(folder, sizes)
  return gpt.add_model(
    Weights(folder, 'OpenAI', 'gpt', notes=notes),
    sizes | {'n_head': num_heads},
    gpt.FIELDS,
    arrays,
    problems,
  )


def _is_shape(shape: Any) -> bool:
  is_list = isinstance(shape, list) and len(shape) > 0
  return is_list and all(map(config_files.is_count, shape))


def _heads(
  folder: epath.Path, sizes: Mapping[str, Any]
) -> tuple[Any, dict[str, str], list[str]]:
  """Returns the number of heads, None if unknown; notes; and problems."""
  file, width = folder / gpt.HPARAMS_FILE, sizes['n_embd']
  if file.exists():
    hparams = config_files.read(file)
    known = {'n_vocab': sizes['vocab_size'], 'n_ctx': sizes['n_positions']}
    problems = [
      f'{key} is {hparams[key]!r} in {file.name}, {value} by {SHAPES_FILE}'
      for key, value in {**known, **sizes}.items()
      if hparams.get(key, value) != value
    ]
    return hparams.get('n_head'), {}, problems
  cure = f'{{"n_head": N}} in {file.name}'
  if width % HEAD_DIM == 0:
    note = f'read as n_embd / {HEAD_DIM}; {cure} says otherwise'
    return width // HEAD_DIM, {'num_heads': note}, []
  problem = (
    f'no file tells the number of heads, and n_embd is {width}, no multiple of'
    f' {HEAD_DIM}, the width of a head as released: write {cure}'
  )
  return None, {}, [problem]


def entries(
  folder: epath.Path, shapes: Mapping[str, Sequence[int]]
) -> dict[str, Entry]:
  """Returns name -> entry of the arrays in params_0.npy and so on, in order."""
  found = {
    int(match[1])
    for file in folder.iterdir()
    if (match := NPY_FILE.fullmatch(file.name))
  }
  files = [folder / f'params_{i}.npy' for i in range(max(found, default=0) + 1)]
  missing = [file.name for i, file in enumerate(files) if i not in found]
  if missing:
    raise FileNotFoundError(
      f'{folder} has {len(found)} files params_0.npy and so on, expected'
      f' {len(files)} or more: it lacks {", ".join(missing)}'
    )
  parts = [_open_npy(file) for file in files]
  sizes = [math.prod(shape) for shape in shapes.values()]
  total = sum(map(len, parts))
  if sum(sizes) != total:
    raise ValueError(
      f'{folder} has {total:,} numbers in {len(files)} files,'
      f' {files[0].name} to {files[-1].name}, expected {sum(sizes):,} by the'
      " shapes beside them; GPT's release has 10 files"
    )

  def read(begin: int, shape: Sequence[int]) -> np.ndarray:
    end, found = begin + math.prod(shape), []
    for part in parts:
      found.append(part[max(begin, 0) : max(end, 0)])
      begin, end = begin - len(part), end - len(part)
    return np.concatenate(found).reshape(shape)

  begins = itertools.accumulate(sizes, initial=0)
  return {
    name: Entry(
      tuple(shape), parts[0].dtype, functools.partial(read, begin, shape)
    )
    for (name, shape), begin in zip(shapes.items(), begins, strict=False)
  }


def _open_npy(file: epath.Path) -> np.ndarray:
  """Returns the numbers of a file in one row, none of them read yet."""
  copy = weight_files.local(file)
  try:
    found = np.lib.format.open_memmap(copy, mode='r')
  # The header is a Python expression, whose parser raises almost any error.
  except Exception as error:
    raise ValueError(
      f'{file} is damaged or no NumPy file, copy it again: {error}'
    ) from error
  if found.dtype.kind != 'f':
    raise ValueError(f'{file} holds {found.dtype}, expected float32')
  return found.reshape(-1)
