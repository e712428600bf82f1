"""The released ELMo program's options and weights, to ours and back.

Its weights are an HDF5 file with an array a name (bilm-tf, `dump_weights`), the
sizes a JSON file of options. Its files hold no softmax, but its variables of
training are called softmax/W and softmax/b, and so are ours where we write
them; it leaves them unread.
"""

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

from models import char_cnn, elmo, lstm
from models.pretrained import config_files, strict, weight_files
from models.pretrained.strict import Piece, Published

OPTIONS_FILE = 'options.json'
WEIGHTS_FILE = 'lm_weights.hdf5'

# Option -> our field, and what it must be.
LSTM_OPTIONS = {
  'lstm.n_layers': ('num_layers', 'a count of layers'),
  'lstm.dim': ('lstm_dim', 'a count'),
  'lstm.projection_dim': ('projection_dim', 'a count'),
  'lstm.use_skip_connections': ('use_skip_connections', 'true or false'),
  'lstm.cell_clip': ('cell_clip', 'a positive number or nothing'),
  'lstm.proj_clip': ('projection_clip', 'a positive number or nothing'),
}
CHARACTER_OPTIONS = {
  'char_cnn.embedding.dim': ('char_embed_dim', 'a count'),
  'char_cnn.filters': ('filters', 'pairs of a width and a count'),
  'char_cnn.n_highway': ('num_highway', 'a count of layers or nothing'),
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


def open_folder(folder: epath.Path) -> Published:
  """Opens a folder of released weights.

  Args:
    folder: holds one file *options.json and one *weights.hdf5, the latter with
      the character encoder or a table of word vectors ('embedding'), with or
      without a softmax.

  Raises:
    FileNotFoundError: if a file is missing.
    ValueError: if there are several, or one is damaged.
  """
  files = []
  for suffix in (OPTIONS_FILE, 'weights.hdf5'):
    found = sorted(folder.glob(f'*{suffix}'))
    if not found:
      raise FileNotFoundError(f'{folder} has no *{suffix}')
    if len(found) > 1:
      names = ', '.join(file.name for file in found)
      raise ValueError(f'{folder} has several *{suffix}, expected one: {names}')
    files.append(found[0])
  options_file, weights_file = files
  return from_released(
    folder,
    config_files.read(options_file),
    weight_files.from_hdf5(weights_file),
  )


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


def from_released(
  folder: epath.Path,
  options: Mapping[str, Any],
  entries: Mapping[str, strict.Entry],
) -> Published:
  """Opens the model that options describe.

  Args:
    folder: where they lie.
    options: as in the released options.json; those of training are not looked
      at.
    entries: name -> array, as in the released HDF5 files.

  Returns:
    Its problems list every option that is missing, not known here, or not what
    the weights have, every name that is missing or not known, and every array
    of another shape than the options tell.
  """
  model, problems = _model(options, entries)
  pieces, shapes = [], {}
  if model is not None:
    pieces, shapes = list(_pieces(model)), _shapes(model)
    problems += strict.misfits(entries, pieces)
  return Published(
    folder=folder,
    kind='ELMo',
    name='elmo',
    model=model,
    pieces=pieces,
    entries=entries,
    shapes=shapes,
    problems=tuple(problems),
  )


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
  return strict.shapes_of(
    model,
    jax.ShapeDtypeStruct(shape, jnp.int32),
    jax.ShapeDtypeStruct((1,), jnp.int32),
  )


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
    value = config_files.look_up(options, key)
    if not config_files.KINDS[kind](value):
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
    value = config_files.look_up(options, key)
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
