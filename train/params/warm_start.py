"""Where a run's parameters begin: `init.weights`."""

import dataclasses
import functools
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath
from flax import linen as nn

from configs import base
from data.vocabulary import tokenization
from models import elmo, lstm_lm
from models.pretrained import gpt, strict
from train.architectures import families
from train.host.console import say
from train.params import opened
from train.params.opened import Opened
from train.run import settings

# Fields of modules that say how they compute and not what, or are of the
# vocabulary and the heads, which have rules of their own.
FREE_FIELDS = frozenset(
  'vocab_size heads dropout_rate attention_dropout_rate dtype scan_layers remat'
  ' stacked num_samples parent name'.split()
)
POSITIONS = 'embeddings/positions'
# Parameters of BERT, GPT and the LSTM with a row for each piece.
VOCABULARY = ('embeddings/tokens/embedding', 'mlm/bias', 'tokens/embedding')
TOKENIZER_OPTION = '--config.data.tokenizer=PATH'
NEW_ROWS = '--config.init.new_rows=true'
NAMED_PIECES = 8  # in a message; of more, the number


def check(config: ml_collections.ConfigDict) -> Opened:
  """Opens the weights to begin with; refuses those that do not fit the config.

  Before the token store is built: of the vocabulary, what is known by then.

  Returns:
    The weights, no array read.

  Raises:
    FileNotFoundError: if there are none.
    ValueError: if they are damaged or do not fit; then all that differs, each
      with the key and the value that would fit.
  """
  theirs = _open(config)
  if theirs.name != config.model.name:
    raise ValueError(
      f'init.weights={config.init.weights} holds a {theirs.name}, but'
      f' model.name={config.model.name!r}: give other weights, or the config of'
      f' a {theirs.name}'
    )
  theirs.check(TOKENIZER_OPTION)
  problems = _differences(theirs, config)
  tokenizer = _known_tokenizer(config)
  if tokenizer is not None:
    problems += _vocabulary_differences(theirs, config, tokenizer)
  _raise(config, problems)
  return theirs


def _open(config: ml_collections.ConfigDict) -> Opened:
  """Opens weights; those without a vocabulary have that of `data.tokenizer`.

  A store's vocabulary is not taken for theirs unless it is named there: nothing
  would tell that it is another of the same size.
  """
  weights, tokenizer = config.init.weights, config.data.tokenizer
  theirs = opened.open_weights(weights)
  if (
    theirs.tokenizer is not None
    or theirs.name == 'elmo'
    or tokenization.parse_training(tokenizer) is not None
  ):
    return theirs
  return opened.open_weights(weights, tokenizer)


def check_vocabulary(
  theirs: Opened, config: ml_collections.ConfigDict, tokenizer: Any
) -> None:
  """Refuses weights whose token ids mean other pieces than the store's.

  Args:
    theirs: the weights.
    config: the run's.
    tokenizer: the store's.

  Raises:
    ValueError: if the vocabulary is another, or larger without `init.new_rows`.
  """
  _raise(config, _vocabulary_differences(theirs, config, tokenizer))


def load(
  theirs: Opened,
  model: nn.Module,
  tokenizer: Any,
  fresh: Any,
  *,
  num_layers: int | None = None,
) -> Any:
  """Returns the parameters to begin with, laid out as `fresh` is.

  What the weights do not have stays as it was drawn, and is named: heads, and
  rows of pieces and positions that they do not know. All else of `fresh` is
  given up as soon as it is replaced, one array after the other, so that no
  second copy of the parameters is ever there.

  Args:
    theirs: the weights, checked.
    model: the module that is trained.
    tokenizer: the store's.
    fresh: its parameters as newly drawn, arrays on devices.
    num_layers: only so many layers, the lowest, come from the weights; all by
      default.

  Raises:
    ValueError: if an array is damaged.
  """
  leaves = strict.flatten(fresh)
  found = {path: leaves[path].sharding for path in _known(theirs, leaves)}
  maps = _maps(theirs, model, tokenizer, found, num_layers)

  def keep(path: str, leaf: jax.Array) -> jax.Array:
    if path not in maps:
      return leaf
    merged = _replace_rows(leaves[path], leaf, maps[path])
    return jax.device_put(merged, found[path])

  for path in found.keys() - maps.keys():
    leaves[path].delete()  # its place is needed
  say(f'Starting from the parameters of {theirs.folder} ({theirs.kind}).')
  begun = strict.flatten(theirs.load(found, keep))
  for line in _report(theirs, model, tokenizer, leaves.keys() - begun.keys()):
    say(f'  {line}')
  if num_layers is not None:
    say(f'  new: layers {num_layers} to {model.num_layers - 1}')
  params: dict = {}
  for path, leaf in leaves.items():
    strict.put(params, path.split('/'), begun.get(path, leaf))
  return params


def replaced(
  theirs: Opened,
  model: nn.Module,
  tokenizer: Any,
  paths: Iterable[str],
  *,
  num_layers: int | None = None,
) -> set[str]:
  """Returns the parameters of which nothing stays as it was drawn.

  Args:
    theirs: see `load`.
    model: see `load`.
    tokenizer: see `load`.
    paths: 'path/of/parameter' of all that are trained.
    num_layers: see `load`.
  """
  found = _known(theirs, paths)
  maps = _maps(theirs, model, tokenizer, found, num_layers)
  return set(found) - maps.keys()


def module_settings(name: str, model: nn.Module) -> dict[str, Any]:
  """Returns {key of `config.model`: value} of a module's sizes and settings."""
  elmo_model = isinstance(model, elmo.Elmo)
  defaults = {
    elmo.Elmo: base.get_elmo_config,
    lstm_lm.LstmLm: base.get_lstm_config,
  }.get(type(model), base.get_config)()
  values = {
    key: getattr(model, key)
    for key in defaults.model
    if hasattr(model, key) and key not in FREE_FIELDS
  }
  return {'characters': not model.num_words} | values if elmo_model else values


def override(key: str, value: Any) -> str:
  """Returns the argument of a command line that sets a key of a config."""
  return shlex.quote(f'--config.{key}={value}')


def _differences(
  theirs: Opened, config: ml_collections.ConfigDict
) -> list[str]:
  """Returns a line for each size and setting that differs."""
  size = theirs.model.vocab_size
  build_model = families.architecture_of(config).build_model
  there, here = (
    _fields(model)
    for model in (theirs.model, build_model(config.model, size or 1))
  )
  problems = []
  for key, value in there.items():
    if here[key] == value or (key == 'gelu' and 'gelu' in theirs.notes):
      continue
    line = f'{key} is {value} there, {here[key]} in the config'
    if key not in config.model or value is None:
      problems.append(f'{line}, which no key sets: take other weights')
      continue
    cure = override(f'model.{key}', value)
    if key == 'max_length' and here[key] > value:
      if config.init.new_rows:
        continue
      cure += f', or {NEW_ROWS} to draw the other positions anew'
    problems.append(f'{line}: {cure}')
  return problems


def _fields(model: nn.Module) -> dict[str, Any]:
  """Returns what has to be the same of a module."""
  fields = {
    field.name: getattr(model, field.name)
    for field in dataclasses.fields(model)
    if field.name not in FREE_FIELDS
  }
  if 'num_words' in fields:
    fields['characters'] = not fields.pop('num_words')
  return fields


def _vocabulary_differences(
  theirs: Opened, config: ml_collections.ConfigDict, tokenizer: Any
) -> list[str]:
  """Returns a line if ids of the store mean other pieces in the weights."""
  if theirs.tokenizer is None:  # an ELMo's
    if theirs.model.num_words:
      return [
        f'they have a table of {theirs.model.num_words:,} words, and nothing'
        ' tells which words they are'
      ]
    return []
  try:
    new = np.flatnonzero(_token_rows(theirs.tokenizer, tokenizer) < 0)
  except ValueError as error:
    return [
      f'they have another vocabulary ({theirs.tokenizer.vocab_size} pieces,'
      f' {theirs.tokenizer.fingerprint[:8]}) than the store'
      f' ({tokenizer.vocab_size} pieces, {tokenizer.fingerprint[:8]}): {error}.'
      f' Prepare the text with --tokenizer {theirs.vocabulary}'
    ]
  if config.init.new_rows or not len(new):
    return []
  return [
    f"the store's vocabulary has {len(new):,} more pieces than theirs:"
    f' {_list(tokenizer, new)}: {NEW_ROWS} to draw their rows anew, or prepare'
    f' the text with --tokenizer {theirs.vocabulary}'
  ]


def _known_tokenizer(config: ml_collections.ConfigDict) -> Any:
  """Returns the tokenizer of a run whose store may not be built yet, or None.

  None where it is still to be trained.
  """
  data = config.data
  folder = epath.Path(data.folder or settings.default_store(config))
  if (folder / 'store.json').exists():
    return tokenization.load(folder)
  if tokenization.parse_training(data.tokenizer) is None:
    return tokenization.load(data.tokenizer)
  return None


def _known(theirs: Opened, paths: Iterable[str]) -> list[str]:
  """Returns the parameters that the weights have something of."""
  return [
    path
    for path in paths
    if path in theirs.shapes and not _starts_anew(theirs, path)
  ]


def _starts_anew(theirs: Opened, path: str) -> bool:
  """Returns whether a parameter is of words that nobody tells."""
  return theirs.tokenizer is None and path.startswith('softmax/')


def _token_rows(theirs: Any, tokenizer: Any) -> np.ndarray:
  """Returns int [V]: which token of their tokenizer each one is; -1: new.

  Raises:
    ValueError: if the one does not extend the other; says why.
  """
  if theirs.fingerprint == tokenizer.fingerprint:
    return np.arange(tokenizer.vocab_size)
  return tokenization.inherited_ids(tokenizer, theirs)


def _maps(
  theirs: Opened,
  model: nn.Module,
  tokenizer: Any,
  paths: Iterable[str],
  num_layers: int | None,
) -> dict[str, np.ndarray]:
  """Returns a map of each parameter that is not all theirs; see `_row_maps`."""
  maps = _row_maps(theirs, model, tokenizer)
  if num_layers is not None:
    maps |= _layer_maps(paths, model, num_layers)
  return maps


def _row_maps(
  theirs: Opened, model: nn.Module, tokenizer: Any
) -> dict[str, np.ndarray]:
  """Returns 'path/of/parameter' -> int [rows], -1: fresh, else which of theirs.

  Of parameters whose rows are not all theirs, in their order.
  """
  maps = {}
  if POSITIONS in theirs.shapes and theirs.model.max_length < model.max_length:
    rows = np.arange(model.max_length)
    maps[POSITIONS] = np.where(rows < theirs.model.max_length, rows, -1)
  if isinstance(model, elmo.Elmo):
    return maps  # whole words are the same, or their softmax starts anew
  rows = _token_rows(theirs.tokenizer, tokenizer)
  rows = np.where(rows < theirs.model.vocab_size, rows, -1)
  same = np.array_equal(rows, np.arange(theirs.model.vocab_size))
  return maps if same else maps | dict.fromkeys(VOCABULARY, rows)


def _layer_maps(
  paths: Iterable[str], model: nn.Module, num_layers: int
) -> dict[str, np.ndarray]:
  """Returns a map as `_row_maps` does of each parameter of the layers."""
  rows = np.arange(model.num_layers)
  rows = np.where(rows < num_layers, rows, -1)
  return {path: rows for path in paths if path.startswith('layers/')}


@functools.partial(jax.jit, donate_argnums=0)
def _replace_rows(
  fresh: jax.Array, leaf: jax.Array, rows: jax.Array
) -> jax.Array:
  """Returns `fresh` with rows of `leaf` where `rows` is not -1."""
  rows = jnp.pad(rows, (0, len(fresh) - len(rows)), constant_values=-1)
  known = jnp.expand_dims(rows >= 0, tuple(range(1, fresh.ndim)))
  return jnp.where(known, jnp.take(leaf, rows, axis=0, mode='clip'), fresh)


def _report(
  theirs: Opened, model: nn.Module, tokenizer: Any, anew: Sequence[str]
) -> list[str]:
  """Returns lines of what does not come from the weights, or is not used."""
  lines = []
  heads = sorted({path.partition('/')[0] for path in anew})
  if heads:
    lines.append(f'starts anew: {", ".join(heads)}')
  if theirs.heads:
    lines.append(f'left out: {", ".join(theirs.heads)}')
  maps = _row_maps(theirs, model, tokenizer)
  for path, what in ((VOCABULARY[0], 'tokens'), (POSITIONS, 'positions')):
    new = np.flatnonzero(maps.get(path, np.zeros(1)) < 0)
    if len(new):
      line = f'new: {what} {new[0]:,} to {new[-1]:,}'
      named = f': {_list(tokenizer, new)}' if what == 'tokens' else ''
      lines.append(line + named)
  for note in ('padding', gpt.NO_SOFTMAX):
    if note in theirs.notes:
      lines.append(theirs.notes[note])
  if 'gelu' in theirs.notes:
    lines.append(
      f'GELU: {theirs.notes["gelu"]}; the run has the form {model.gelu!r}'
    )
  return lines


def _list(tokenizer: Any, ids: Sequence[int]) -> str:
  """Returns pieces for a message, the first of many."""
  named = ', '.join(tokenizer.pieces[i] for i in ids[:NAMED_PIECES])
  return named + (', ...' if len(ids) > NAMED_PIECES else '')


def _raise(config: ml_collections.ConfigDict, problems: Sequence[str]) -> None:
  if problems:
    raise ValueError(
      f'init.weights={config.init.weights} does not fit the config:\n  '
      + '\n  '.join(problems)
    )
