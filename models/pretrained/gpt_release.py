"""GPT's weights as OpenAI released them: NumPy files and a list of shapes.

openai/finetune-transformer-lm keeps all numbers in one row, cut into files of
about the same size, ten in the release; no array has a name.
"""

import bisect
import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from models.pretrained import config_files, gpt, weight_files
from models.pretrained.strict import Entry, Published

SHAPES_FILE = 'params_shapes.json'
NPY_FILE = re.compile(r'params_(0|[1-9]\d*)\.npy')
# The arrays of a layer, in the order and by the names of train.py there.
LAYER = (
  *('attn/c_attn/w', 'attn/c_attn/b', 'attn/c_proj/w', 'attn/c_proj/b'),
  *('ln_1/g', 'ln_1/b'),
  *('mlp/c_fc/w', 'mlp/c_fc/b', 'mlp/c_proj/w', 'mlp/c_proj/b'),
  *('ln_2/g', 'ln_2/b'),
)
# The width of a head (Radford et al. 2018, section 4.1), which none of the
# released files tells.
HEAD_DIM = 64


def open_folder(folder: epath.Path) -> Published:
  """Opens GPT as OpenAI released it.

  Args:
    folder: with params_0.npy and so on, and params_shapes.json, which lists
      the shapes of positions, tokens, and 12 arrays of each layer, no names;
      and perhaps hparams.json with `n_head`, the number of heads.

  Raises:
    FileNotFoundError: if a file is missing.
    ValueError: if one is damaged, or the shapes are not those of a GPT.
  """
  shapes = config_files.read(folder / SHAPES_FILE, list)
  num_layers = (len(shapes) - 2) // len(LAYER)
  names = ['model/wpe', 'model/wte'] + [
    f'model/h{i}/{name}' for i in range(num_layers) for name in LAYER
  ]
  if (
    num_layers < 1
    or len(names) != len(shapes)
    or not all(
      isinstance(shape, list)
      and shape
      and all(map(config_files.is_count, shape))
      for shape in shapes
    )
  ):
    raise ValueError(
      f'{folder / SHAPES_FILE} is no list of the shapes of positions, tokens'
      f' and {len(LAYER)} arrays of each layer'
    )
  arrays = entries(folder, dict(zip(names, shapes, strict=True)))
  width = shapes[0][-1]
  sizes = {
    'vocab_size': shapes[1][0],
    'n_layer': num_layers,
    'n_embd': width,
    'n_inner': arrays['model/h0/mlp/c_fc/b'].shape[0],
    'n_positions': shapes[0][0],
  }
  heads, notes, problems = _heads(folder, sizes)
  return gpt.add_model(
    Published(folder, 'OpenAI', 'gpt', notes=notes),
    sizes | heads,
    gpt.FIELDS,
    arrays,
    problems,
  )


def _heads(
  folder: epath.Path, sizes: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
  """Returns {'n_head': number of heads} of a GPT of OpenAI; notes; problems.

  Args:
    folder: of the weights.
    sizes: as the shapes of the arrays tell them, by the keys of `gpt.FIELDS`.

  Raises:
    ValueError: if hparams.json is damaged.
  """
  file, width = folder / gpt.HPARAMS_FILE, sizes['n_embd']
  cure = f'{{"n_head": N}} in {gpt.HPARAMS_FILE}'
  if not file.exists():
    if width % HEAD_DIM:
      problem = (
        f'no file tells the number of heads, and n_embd is {width}, no multiple'
        f' of {HEAD_DIM}, the width of a head as released: write {cure}'
      )
      return {}, {}, [problem]
    note = f'read as n_embd / {HEAD_DIM}; {cure} says otherwise'
    return {'n_head': width // HEAD_DIM}, {'num_heads': note}, []
  hparams = config_files.read(file)
  known = {
    'n_vocab': sizes['vocab_size'],
    'n_ctx': sizes['n_positions'],
    **sizes,
  }
  problems = [
    f'{key} is {hparams[key]!r} in {gpt.HPARAMS_FILE}, {value} by {SHAPES_FILE}'
    for key, value in known.items()
    if hparams.get(key, value) != value
  ]
  return {'n_head': hparams.get('n_head')}, {}, problems


def entries(
  folder: epath.Path, shapes: Mapping[str, Sequence[int]]
) -> dict[str, Entry]:
  """Returns name -> entry of arrays that lie in params_0.npy and so on.

  Args:
    folder: of such files, as many as there are, which hold one row of numbers
      between them.
    shapes: name -> shape, in the order of that row.

  Raises:
    FileNotFoundError: if files are missing; then all that are.
    ValueError: if one is damaged, or the numbers are not as many.
  """
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
  begins = [0, *itertools.accumulate(len(part) for part in parts)]
  sizes = [math.prod(shape) for shape in shapes.values()]
  if sum(sizes) != begins[-1]:
    raise ValueError(
      f'{folder} has {begins[-1]:,} numbers in {len(files)} files,'
      f' {files[0].name} to {files[-1].name}, expected {sum(sizes):,} by the'
      " shapes beside them; GPT's release has 10 files"
    )

  def read(begin: int, shape: Sequence[int]) -> np.ndarray:
    end = begin + math.prod(shape)
    first = bisect.bisect(begins, begin) - 1
    last = bisect.bisect_left(begins, end)
    found = [
      parts[i][max(begin - begins[i], 0) : end - begins[i]]
      for i in range(first, last)
    ]
    return np.concatenate(found).reshape(shape)

  return {
    name: Entry(
      tuple(shape),
      parts[0].dtype,
      functools.partial(read, sum(sizes[:i]), shape),
    )
    for i, (name, shape) in enumerate(shapes.items())
  }


def _open_npy(file: epath.Path) -> np.ndarray:
  """Returns the numbers of a file in one row, none of them read yet."""
  try:
    found = np.lib.format.open_memmap(weight_files.local(file), mode='r')
  # Its header is an expression of Python's, which fails in any way; the
  # innermost ones, of too many brackets, as lack of memory.
  except Exception as error:
    raise ValueError(
      f'{file} is damaged or no NumPy file, copy it again: {error}'
    ) from error
  if found.dtype.kind != 'f':
    raise ValueError(f'{file} holds {found.dtype}, expected float32')
  return found.reshape(-1)
