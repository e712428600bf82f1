"""The options and weights of the released ELMo program, read and written.

The weights are an HDF5 file (bilm-tf, `dump_weights`) without a softmax. Ours
may have one, as softmax/W and softmax/b, which the program does not read.
"""

import io
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np
from etils import epath

from models import char_cnn, elmo, lstm
from models.pretrained import config_files, hdf5_file, strict, weight_files
from models.pretrained.strict import Entry, Piece
from models.pretrained.weights import Weights

OPTIONS_FILE = 'options.json'
WEIGHTS_FILE = 'lm_weights.hdf5'

LSTM_OPTIONS = {  # option -> (field, kind), see `config_files.read_fields`
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
# Option -> known values, written as the first; 262 characters are 261 and none.
ALWAYS = {
  'char_cnn.activation': ('relu',),
  'char_cnn.n_characters': (
    char_cnn.NUM_CHARACTERS + 1,
    char_cnn.NUM_CHARACTERS,
  ),
}


def open_folder(folder: epath.Path) -> Weights:
  """Opens a folder with one file *options.json and one *weights.hdf5.

  The NLPL repository calls the weights model.hdf5.
  """
  files = []
  for suffix in (OPTIONS_FILE, 'weights.hdf5'):
    found = weight_files.find(folder, f'*{suffix}')
    if not found and suffix != OPTIONS_FILE:
      found = weight_files.find(folder, 'model.hdf5')
    if not found:
      raise FileNotFoundError(f'{folder} has no *{suffix}')
    if len(found) > 1:
      names = ', '.join(file.name for file in found)
      raise ValueError(f'{folder} has several *{suffix}, expected one: {names}')
    files += found
  options, weights = files
  return from_released(
    folder, config_files.read(options), hdf5_file.entries(weights)
  )


def write_folder(
  folder: epath.PathLike, model: elmo.Elmo, params: Mapping
) -> None:
  """Writes options.json and lm_weights.hdf5 of unboxed parameters."""
  options, arrays = to_released(params, model)
  folder = epath.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  memory = io.BytesIO()  # remote folders cannot be written here and there
  with h5py.File(memory, 'w') as file:
    for name, array in arrays.items():
      file.create_dataset(name, data=array)
  (folder / WEIGHTS_FILE).write_bytes(memory.getvalue())
  (folder / OPTIONS_FILE).write_text(json.dumps(options, indent=2) + '\n')


def from_released(
  folder: epath.Path, options: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Weights:
  """Opens the model of released options; options of training are not read."""
  model, problems = _model(options, entries)
  weights = Weights(folder, 'ELMo', 'elmo', reads_words=True)
  return weights.of_model(model, entries, lambda _: _pieces(model), problems)


def to_released(
  params: Mapping, model: elmo.Elmo
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns the released program's options, and name -> array.

  Raises ValueError if the format has no place for some parameters.
  """
  pieces = list(_pieces(model))
  known = {piece.path.partition('/')[0] for piece in pieces}
  if added := sorted(params.keys() - known):
    raise ValueError(
      f'found {", ".join(added)} on an ELMo: the format of the release has no'
      ' place for it; export the weights that the run began with'
    )
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
  return options, strict.scatter(params, pieces)


def _pieces(model: elmo.Elmo) -> Iterator[Piece]:
  """Yields the pieces of all parameters."""
  F, P = model.lstm_dim, model.projection_dim
  G = lstm.NUM_GATES * F
  if rows := model.num_words:
    yield Piece(
      'embedding', 'encoder/embedding', (rows, P), place=(slice(rows),)
    )
  else:
    yield from _character_pieces(model)
  for i in range(model.num_layers):
    layer = f'layers_{i}'
    for k in range(elmo.NUM_TOWERS):
      cell, place = f'RNN_{k}/RNN/MultiRNNCell/Cell{i}/LSTMCell', (k,)
      for rows, name in (  # one matrix on [x; h] in the file
        (slice(P), 'input_kernel'),
        (slice(P, None), 'recurrent_kernel'),
      ):
        yield Piece(f'{cell}/W_0', f'{layer}/{name}', (2 * P, G), rows, place)
      yield Piece(f'{cell}/B', f'{layer}/bias', (G,), place=place)
      yield Piece(
        f'{cell}/W_P_0', f'{layer}/projection_kernel', (F, P), place=place
      )
  if V := model.vocab_size:
    kept = (slice(V),)  # without padding
    yield Piece('softmax/W', 'softmax/kernel', (V, P), place=kept)
    yield Piece('softmax/b', 'softmax/bias', (V,), place=kept)


def _character_pieces(model: elmo.Elmo) -> Iterator[Piece]:
  """Yields the pieces of the character encoder."""
  E, P = model.char_embed_dim, model.projection_dim
  N = sum(count for _, count in model.filters)
  yield Piece('char_embed', 'encoder/characters', (char_cnn.NUM_CHARACTERS, E))
  for i, (width, count) in enumerate(model.filters):
    group = f'encoder/filters_{i}'
    yield Piece(f'CNN/W_cnn_{i}', f'{group}/kernel', (1, width, E, count))
    yield Piece(f'CNN/b_cnn_{i}', f'{group}/bias', (count,))
  for i in range(model.num_highway):
    highway, layer = f'CNN_high_{i}', f'encoder/highway_{i}'
    for j, name in enumerate(('transform', 'carry')):
      yield Piece(
        f'{highway}/W_{name}', f'{layer}/kernel', (N, N), place=(slice(None), j)
      )
      yield Piece(f'{highway}/b_{name}', f'{layer}/bias', (N,), place=(j,))
  yield Piece('CNN_proj/W_proj', 'encoder/projection/kernel', (N, P))
  yield Piece('CNN_proj/b_proj', 'encoder/projection/bias', (P,))


def _known_options(characters: bool) -> dict[str, tuple[str, str]]:
  return LSTM_OPTIONS | (CHARACTER_OPTIONS if characters else {})


def _model(
  options: Mapping[str, Any], entries: Mapping[str, Entry]
) -> tuple[elmo.Elmo | None, list[str]]:
  """Returns the model of options, None if options are missing; and problems."""
  characters = 'char_cnn' in options
  table, found = _known_options(characters), _sizes_of(entries)
  fields, problems = config_files.read_fields(options, table)
  if 'num_highway' in fields:
    fields['num_highway'] = fields['num_highway'] or 0
  if 'filters' in fields:
    fields['filters'] = tuple(map(tuple, fields['filters']))
  problems += [
    f'{key} is {json.dumps(fields[field])}, the weights have'
    f' {json.dumps(found[field])}'
    for key, (field, _) in table.items()
    if field in fields and found.get(field, fields[field]) != fields[field]
  ]
  for key, known in ALWAYS.items() if characters else ():
    value = config_files.look_up(options, key)
    if value not in known:
      problems.append(
        f'{key} is {value!r}, only {" or ".join(map(str, known))} is known here'
      )
  problems = [f'option {problem}' for problem in problems]
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


def _sizes_of(entries: Mapping[str, Entry]) -> dict[str, Any]:
  """Returns the fields that follow from names and shapes of the weights."""
  shapes = {name: entry.shape for name, entry in entries.items()}

  def count(pattern: str) -> int:
    return next(i for i in itertools.count() if pattern.format(i) not in shapes)

  cell = 'RNN_0/RNN/MultiRNNCell/Cell{}/LSTMCell/W_P_0'
  found: dict[str, Any] = {
    'num_layers': count(cell),
    'num_highway': count('CNN_high_{}/W_transform'),
  }
  filters = [shapes[f'CNN/W_cnn_{i}'] for i in range(count('CNN/W_cnn_{}'))]
  if filters and all(len(shape) == 4 for shape in filters):
    found['filters'] = tuple((shape[1], shape[3]) for shape in filters)
  for name, axes in {
    cell.format(0): ('lstm_dim', 'projection_dim'),
    'char_embed': (None, 'char_embed_dim'),
    'embedding': ('num_words', None),
    'softmax/W': ('vocab_size', None),
  }.items():
    if len(shapes.get(name, ())) == 2:
      found |= dict(zip(axes, shapes[name], strict=True))
  found.pop(None, None)
  return found
