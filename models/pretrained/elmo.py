"""The released ELMo program's options and weights, to ours and back.

Its weights are an HDF5 file with an array a name (bilm-tf, `dump_weights`), the
sizes a JSON file of options. Its files hold no softmax, but its variables of
training are called softmax/W and softmax/b, and so are ours where we write
them; it leaves them unread.
"""

import contextlib
import io
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn

from models import char_cnn, elmo, lstm
from models.pretrained import strict
from models.pretrained.strict import Piece

OPTIONS_FILE = 'options.json'
WEIGHTS_FILE = 'lm_weights.hdf5'

# Option -> our field, and what it must be.
LSTM_OPTIONS = {
  'lstm.n_layers': ('num_layers', 'a count'),
  'lstm.dim': ('lstm_dim', 'a count'),
  'lstm.projection_dim': ('projection_dim', 'a count'),
  'lstm.use_skip_connections': ('use_skip_connections', 'true or false'),
  'lstm.cell_clip': ('cell_clip', 'a positive number or nothing'),
  'lstm.proj_clip': ('projection_clip', 'a positive number or nothing'),
}
CHARACTER_OPTIONS = {
  'char_cnn.embedding.dim': ('char_embed_dim', 'a count'),
  'char_cnn.filters': ('filters', 'pairs of a width and a count'),
  'char_cnn.n_highway': ('num_highway', 'a count or nothing'),
  'char_cnn.max_characters_per_token': ('max_characters', 'a count'),
}
# What the released program may be told, and all that ours does of it; the
# first is what we write. 262 characters are the 261 of training and none.
ALWAYS = {
  'char_cnn.activation': ('relu',),
  'char_cnn.n_characters': (
    char_cnn.NUM_CHARACTERS + 1,
    char_cnn.NUM_CHARACTERS,
  ),
}


def read_folder(folder: epath.PathLike) -> tuple[elmo.Elmo, dict]:
  """Returns the model of a folder, and its parameters; see `read_files`.

  Args:
    folder: holds one file *options.json and one *weights.hdf5.

  Raises:
    FileNotFoundError: if a file is missing.
    ValueError: if there are several; and as `read_files`.
  """
  folder = epath.Path(folder)
  files = []
  for suffix in (OPTIONS_FILE, 'weights.hdf5'):
    found = sorted(folder.glob(f'*{suffix}'))
    if not found:
      raise FileNotFoundError(f'{folder} has no *{suffix}')
    if len(found) > 1:
      names = ', '.join(file.name for file in found)
      raise ValueError(f'{folder} has several *{suffix}, expected one: {names}')
    files.append(found[0])
  return read_files(*files)


def read_files(
  options_file: epath.PathLike, weights_file: epath.PathLike
) -> tuple[elmo.Elmo, dict]:
  """Returns the model of released weights, and its parameters.

  Args:
    options_file: JSON.
    weights_file: HDF5, with the character encoder or a table of word vectors
      ('embedding'), with or without a softmax.

  Raises:
    FileNotFoundError: if a file is missing.
    ValueError: if one is damaged, or they do not fit each other or our model.
  """
  options_file, weights_file = map(epath.Path, (options_file, weights_file))
  for file in (options_file, weights_file):
    if not file.exists():
      raise FileNotFoundError(f'{file} is missing')
  try:
    options = json.loads(options_file.read_bytes())
  except ValueError as error:
    raise ValueError(f'{options_file}: {error}') from error
  arrays = read_arrays(weights_file)
  try:
    return from_released(options, arrays)
  except ValueError as error:
    raise ValueError(f'{options_file} and {weights_file}: {error}') from error


def write_folder(
  folder: epath.PathLike, model: elmo.Elmo, params: Mapping
) -> None:
  """Writes options.json and lm_weights.hdf5 as the released program has them.

  Args:
    folder: made if it is not there.
    model: the model.
    params: of the model, unboxed.
  """
  folder = epath.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  options, arrays = to_released(params, model)
  memory = io.BytesIO()  # remote folders cannot be written here and there
  with h5py.File(memory, 'w') as file:
    for name, array in arrays.items():
      file.create_dataset(name, data=array)
  (folder / WEIGHTS_FILE).write_bytes(memory.getvalue())
  (folder / OPTIONS_FILE).write_text(json.dumps(options, indent=2) + '\n')


def read_arrays(file: epath.PathLike) -> dict[str, np.ndarray]:
  """Returns name -> array of all data sets of an HDF5 file.

  Raises:
    ValueError: if the file is damaged, or no such file.
  """
  file = epath.Path(file)
  arrays = {}

  def read(name: str, node: Any) -> None:
    if isinstance(node, h5py.Dataset):
      arrays[name] = node[()]

  try:
    with contextlib.ExitStack() as stack:
      opened = stack.enter_context(file.open('rb'))
      stack.enter_context(h5py.File(opened, 'r')).visititems(read)
  # It raises each of these, depending on where a file ends.
  except (OSError, RuntimeError, KeyError, ValueError) as error:
    raise ValueError(
      f'{file} is damaged or no HDF5 file, copy it again: {error}'
    ) from error
  return arrays


def from_released(
  options: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[elmo.Elmo, dict]:
  """Returns the model that options describe, with the parameters of arrays.

  Args:
    options: as in the released options.json; those of training are not looked
      at.
    arrays: name -> array, as in the released HDF5 files.

  Returns:
    The model, and float32 NumPy arrays in a tree like that of its `init`,
    unboxed.

  Raises:
    ValueError: listing every option that is missing, not known here, or not
      what the weights have, every name that is missing or not known, and every
      array of another shape than the options tell.
  """
  entries = strict.in_memory(arrays)
  model, problems = _model(options, entries)
  if model is not None:
    problems += strict.misfits(entries, _pieces(model))
  if problems:
    raise ValueError('these weights do not fit:\n  ' + '\n  '.join(problems))
  return model, strict.gather(entries, _pieces(model), _shapes(model))


def to_released(
  params: Mapping, model: elmo.Elmo
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns options and name -> array as the released program reads them.

  Args:
    params: of `model`, unboxed.
    model: the model.
  """
  values: dict[str, Any] = {
    key: getattr(model, field)
    for key, (field, _) in _known_options(not model.num_words).items()
  }
  if not model.num_words:
    values |= {key: known[0] for key, known in ALWAYS.items()}
  if model.vocab_size or model.num_words:
    values['n_tokens_vocab'] = model.vocab_size or model.num_words
  options: dict[str, Any] = {}
  for key, value in values.items():
    strict.put(options, key.split('.'), value)

  return options, strict.scatter(params, list(_pieces(model)))


def _pieces(model: elmo.Elmo) -> Iterator[Piece]:
  """Yields how the arrays here and there correspond, all of both."""
  F, P = model.lstm_dim, model.projection_dim
  G = lstm.NUM_GATES * F
  if model.num_words:
    rows = model.num_words
    yield Piece(
      'embedding',
      'encoder/embedding',
      (rows, P),
      place=(slice(rows),),
    )
  else:
    yield from _character_pieces(model)
  for i in range(model.num_layers):
    for k in range(elmo.NUM_TOWERS):
      theirs = f'RNN_{k}/RNN/MultiRNNCell/Cell{i}/LSTMCell'
      ours = f'layers_{i}'
      # One matrix on [x; h] there.
      for rows, name in (
        (slice(P), 'input_kernel'),
        (slice(P, None), 'recurrent_kernel'),
      ):
        yield Piece(
          f'{theirs}/W_0', f'{ours}/{name}', (2 * P, G), rows, place=(k,)
        )
      yield Piece(f'{theirs}/B', f'{ours}/bias', (G,), place=(k,))
      yield Piece(
        f'{theirs}/W_P_0', f'{ours}/projection_kernel', (F, P), place=(k,)
      )
  if model.vocab_size:
    V = model.vocab_size
    kept = (slice(V),)  # without padding
    yield Piece('softmax/W', 'softmax/kernel', (V, P), place=kept)
    yield Piece('softmax/b', 'softmax/bias', (V,), place=kept)


def _character_pieces(model: elmo.Elmo) -> Iterator[Piece]:
  """Yields those of the character encoder."""
  E, P = model.char_embed_dim, model.projection_dim
  N = sum(count for _, count in model.filters)
  ours = 'encoder'
  yield Piece('char_embed', f'{ours}/characters', (char_cnn.NUM_CHARACTERS, E))
  for i, (width, count) in enumerate(model.filters):
    yield Piece(
      f'CNN/W_cnn_{i}', f'{ours}/filters_{i}/kernel', (1, width, E, count)
    )
    yield Piece(f'CNN/b_cnn_{i}', f'{ours}/filters_{i}/bias', (count,))
  for i in range(model.num_highway):
    for j, name in enumerate(('transform', 'carry')):
      theirs, highway = f'CNN_high_{i}', f'{ours}/highway_{i}'
      yield Piece(
        f'{theirs}/W_{name}',
        f'{highway}/kernel',
        (N, N),
        place=(slice(None), j),
      )
      yield Piece(f'{theirs}/b_{name}', f'{highway}/bias', (N,), place=(j,))
  yield Piece('CNN_proj/W_proj', f'{ours}/projection/kernel', (N, P))
  yield Piece('CNN_proj/b_proj', f'{ours}/projection/bias', (P,))


def _shapes(model: elmo.Elmo) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns 'path/of/leaf' -> shape of all our arrays."""
  shape = (1, 1) if model.num_words else (1, 1, model.max_characters)
  # Unboxed while nothing is there: where a mesh is set, flax would place it.
  params = jax.eval_shape(
    lambda *inputs: nn.meta.unbox(model.init(*inputs))['params'],
    jax.random.key(0),
    jax.ShapeDtypeStruct(shape, jnp.int32),
    jax.ShapeDtypeStruct((1,), jnp.int32),
  )
  return strict.flatten(params)


def _known_options(characters: bool) -> dict[str, tuple[str, str]]:
  """Returns the options of a model with or without a character encoder."""
  return LSTM_OPTIONS | (CHARACTER_OPTIONS if characters else {})


def _model(
  options: Mapping[str, Any], entries: Mapping[str, strict.Entry]
) -> tuple[elmo.Elmo | None, list[str]]:
  """Returns the model that options describe, and all that is wrong with them.

  No model where they are not enough for one.
  """
  problems = []
  characters = 'char_cnn' in options
  found = _sizes_of(entries)
  fields = {}
  for key, (field, kind) in _known_options(characters).items():
    value = _look_up(options, key)
    if not _is_sound(value, kind):
      found_value = 'missing' if value is None else repr(value)
      problems.append(f'option {key} is {found_value}, expected {kind}')
      continue
    if field == 'num_highway':
      value = value or 0
    if field == 'filters':
      value = tuple(tuple(pair) for pair in value)
    fields[field] = value
    if found.get(field, value) != value:
      problems.append(
        f'option {key} is {json.dumps(value)}, the weights have'
        f' {json.dumps(found[field])}'
      )
  for key, known in ALWAYS.items() if characters else ():
    value = _look_up(options, key)
    if value not in known:
      problems.append(
        f'option {key} is {value!r}, only {" or ".join(map(str, known))} is'
        ' known here'
      )
  if not characters and 'num_words' not in found:
    problems.append(
      'no char_cnn in the options and no embedding in the weights'
    )
  fields['num_words'] = 0 if characters else found.get('num_words', 0)
  try:
    model = elmo.Elmo(vocab_size=found.get('vocab_size', 0), **fields)
    model.check_sizes()
  except TypeError:  # fields are missing, which is among the problems
    return None, problems
  except ValueError as error:
    return None, [*problems, str(error)]
  return model, problems


def _look_up(options: Mapping[str, Any], key: str) -> Any:
  """Returns the value under a key with dots; None where there is none."""
  node: Any = options
  for name in key.split('.'):
    if not isinstance(node, Mapping) or name not in node:
      return None
    node = node[name]
  return node


def _is_sound(value: Any, kind: str) -> bool:
  """Returns whether the value of an option is of its kind."""

  def is_count(number: Any) -> bool:
    return type(number) is int and number > 0

  if kind == 'a count':
    return is_count(value)
  if kind == 'a count or nothing':
    return value in (0, None) or is_count(value)
  if kind == 'true or false':
    return type(value) is bool
  if kind == 'a positive number or nothing':
    return value is None or (type(value) in (int, float) and value > 0)
  return isinstance(value, list | tuple) and all(
    isinstance(pair, list | tuple)
    and len(pair) == 2
    and all(map(is_count, pair))
    for pair in value
  )


def _sizes_of(entries: Mapping[str, strict.Entry]) -> dict[str, Any]:
  """Returns our fields as far as the names and shapes of weights tell them."""
  shapes = {name: entry.shape for name, entry in entries.items()}
  found: dict[str, Any] = {}
  cell = 'RNN_0/RNN/MultiRNNCell/Cell{}/LSTMCell'
  found['num_layers'] = _count(shapes, cell + '/W_P_0')
  found['num_highway'] = _count(shapes, 'CNN_high_{}/W_transform')
  num_filters = _count(shapes, 'CNN/W_cnn_{}')
  filters = [shapes[f'CNN/W_cnn_{i}'] for i in range(num_filters)]
  if filters and all(len(shape) == 4 for shape in filters):
    found['filters'] = tuple((shape[1], shape[3]) for shape in filters)
  for name, axes in {
    cell.format(0) + '/W_P_0': ('lstm_dim', 'projection_dim'),
    'char_embed': (None, 'char_embed_dim'),
    'embedding': ('num_words', None),
    'softmax/W': ('vocab_size', None),
  }.items():
    if len(shapes.get(name, ())) == 2:
      found |= dict(zip(axes, shapes[name], strict=True))
  found.pop(None, None)
  return found


def _count(names: Mapping[str, Any], pattern: str) -> int:
  """Returns how many names there are with 0, 1, and so on in the pattern."""
  return next(i for i in itertools.count() if pattern.format(i) not in names)
