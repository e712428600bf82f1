"""The parameters that a run begins with: `init.weights`."""

import dataclasses
import functools
import shlex
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath
from flax import linen as nn

from configs import base
from data.store import folders
from data.vocabulary import tokenization
from data.vocabulary.tokenizer import Tokenizer
from models.layers import Params
from models.pretrained import strict
from models.pretrained import weights as pretrained_weights
from models.pretrained.weights import NO_SOFTMAX, Weights
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.host.console import say
from train.params import opened
from train.run import settings, workdirs

# Keys of `config.model` that leave the parameters' shapes as they are.
FREE_KEYS = (
  'dropout_rate',
  'attention_dropout_rate',
  'dtype',
  'scan_layers',
  'remat',
  'attention',
  'unrolled_layers',
)
# Fields of modules that may differ: they keep the function of the model, or
# belong to the vocabulary and the heads, which are checked apart.
FREE_FIELDS = frozenset(
  {
    *FREE_KEYS,
    'vocab_size',
    'heads',
    'stacked',
    'num_samples',
    'parent',
    'name',
  }
)
POSITIONS, TYPES = 'embeddings/positions', 'embeddings/token_types'
TABLES = ('embeddings/tokens/embedding', 'tokens/embedding')
# Parameters with a row for each piece: of BERT and GPT, of the LSTM, and of
# Bengio's network. ELMo's softmax is whole, or starts anew.
VOCABULARY = (
  *TABLES,
  *pretrained_weights.VOCABULARY[1:],
  'softmax/kernel',
  'softmax/bias',
)
# Keys that set a field of a module; of all others, `model.` and the field.
KEYS = {'kind': 'train.objective'}  # of a word2vec
TOKENIZER_OPTION = '--config.data.tokenizer=PATH'
NEW_ROWS = '--config.init.new_rows=true'
NAMED_PIECES = 8  # in a message


def open_beginning(config: ml_collections.ConfigDict) -> Weights:
  """Opens the weights of `init.weights` and checks that they fit the config.

  No array is read; the vocabulary is checked if it is known. A ValueError lists
  all differences, each with the key and the value that would fit.
  """
  weights = _open(config)
  if weights.name != config.model.name:
    raise ValueError(
      f'init.weights={config.init.weights} holds a {weights.name}, but'
      f' model.name={config.model.name!r}: give other weights, or the config of'
      f' a {weights.name}'
    )
  weights.check_complete(TOKENIZER_OPTION)
  problems = _differences(weights, config)
  tokenizer = known_tokenizer(config)
  if tokenizer is not None:
    problems += _vocabulary_differences(weights, config, tokenizer)
  _raise(config, problems)
  return weights


def _open(config: ml_collections.ConfigDict) -> Weights:
  """Opens weights, if need be with the vocabulary of `data.tokenizer`."""
  weights, tokenizer = config.init.weights, config.data.tokenizer
  found = opened.open_weights(weights)
  has_vocabulary = found.tokenizer is not None or found.reads_words
  if not has_vocabulary and tokenization.parse_training(tokenizer) is None:
    # Not with a store's: another one of the same size would go unnoticed.
    found = opened.open_weights(weights, tokenizer)
  if 'layers' not in config.init or not config.init.layers:
    return found
  from train.params import kept_layers

  return kept_layers.keep(found, config)


def check_vocabulary(
  weights: Weights, config: ml_collections.ConfigDict, tokenizer: Tokenizer
) -> None:
  """Checks that a store's token ids mean the same pieces in the weights."""
  _raise(config, _vocabulary_differences(weights, config, tokenizer))


def load(
  weights: Weights,
  model: nn.Module,
  tokenizer: Tokenizer,
  fresh: Params,
  *,
  num_layers: int | None = None,
) -> Params:
  """Returns the parameters to begin with, laid out as `fresh` is.

  Heads, and rows of pieces and positions, that the weights lack keep the values
  of `fresh` (newly drawn arrays on devices) and are printed. Arrays of `fresh`
  that come whole from the weights are deleted first, so that memory never holds
  two copies. `num_layers`: only so many of the lowest layers come from the
  weights.
  """
  leaves = strict.flatten(fresh)
  maps = _row_maps(weights, model, tokenizer, leaves, num_layers)
  places = {path: leaves[path].sharding for path in maps}

  def keep(path: str, leaf: jax.Array) -> jax.Array:
    if maps[path] is None:
      return leaf
    merged = _replace_rows(leaves[path], leaf, maps[path])
    return jax.device_put(merged, places[path])

  for path, rows in maps.items():
    if rows is None:
      leaves[path].delete()  # frees its memory for the weights
  say(f'Starting from the parameters of {weights.folder} ({weights.kind}).')
  begun = strict.flatten(weights.load(places, keep))
  for line in _report(weights, model, tokenizer, leaves):
    say(f'  {line}')
  if num_layers is not None:
    say(f'  new: layers {num_layers} to {model.num_layers - 1}')
  params: dict = {}
  for path, leaf in leaves.items():
    strict.put(params, path.split('/'), begun.get(path, leaf))
  return params


def replaced(
  weights: Weights,
  model: nn.Module,
  tokenizer: Tokenizer,
  paths: Iterable[str],
  *,
  num_layers: int | None = None,
) -> set[str]:
  """Returns paths of parameters taken whole from the weights, see `load`."""
  maps = _row_maps(weights, model, tokenizer, paths, num_layers)
  return {path for path, rows in maps.items() if rows is None}


def module_settings(name: str, model: nn.Module) -> dict[str, settings.Value]:
  """Returns {key of `config.model`: value} of a module's sizes and settings."""
  keys = families.ARCHITECTURES[name].default_config().model
  found = {
    key: getattr(model, key)
    for key in keys
    if hasattr(model, key) and key not in FREE_FIELDS
  }
  if hasattr(model, 'num_words'):
    return {'characters': not model.num_words} | found
  return found


def overrides(name: str, model: nn.Module) -> list[str]:
  """Returns the arguments of a command line that set a module's sizes.

  Those of a form that is BERT's own are left out.
  """
  form = {**base.form(), 'tied': True}
  keys = {
    f'model.{key}': value
    for key, value in module_settings(name, model).items()
    if key not in form or value != form[key]
  }
  keys |= {
    key: getattr(model, field)
    for field, key in KEYS.items()
    if hasattr(model, field)
  }
  return list(map(override, keys, keys.values()))


def override(key: str, value: settings.Value) -> str:
  """Returns the argument of a command line that sets a key of a config."""
  return shlex.quote(f'--config.{key}={value}')


def _differences(
  weights: Weights, config: ml_collections.ConfigDict
) -> list[str]:
  """Returns a line for each size and setting that differs."""
  ours = families.build_model(config, weights.model.vocab_size or 1)
  there, here = map(_fields, (weights.model, ours))
  problems = []
  for key, value in there.items():
    if here[key] == value or (key == 'gelu' and 'gelu' in weights.notes):
      continue
    name = KEYS.get(key, f'model.{key}')
    line = f'{key} is {value} there, {here[key]} in the config'
    if key == 'pool':
      # Without a pooler nothing is pooled: the run keeps it for a fine-tuning.
      if 'pooler' in ours.heads:
        problems.append(f'{line}: {override("train.objective", "mlm")}')
      continue
    if key == 'num_token_types' and here[key] > value:
      if not config.init.new_rows:
        cure = f'{NEW_ROWS} to draw the other types anew'
        if config.model.num_token_types == here[key]:
          cure = f'{override(name, value)}, or {cure}'
        problems.append(f'{line}: {cure}')
      continue
    if name not in settings.flatten(config) or value is None:
      problems.append(f'{line}, which no key sets: take other weights')
      continue
    cure = override(name, value)
    if key == 'max_length' and here[key] > value:
      if config.init.new_rows:
        continue
      cure += f', or {NEW_ROWS} to draw the other positions anew'
    problems.append(f'{line}: {cure}')
  return problems


def _fields(model: nn.Module) -> dict[str, settings.Value]:
  """Returns the fields of a module that must be equal."""
  fields = {
    field.name: getattr(model, field.name)
    for field in dataclasses.fields(model)
    if field.name not in FREE_FIELDS
  }
  if 'num_words' in fields:
    fields['characters'] = not fields.pop('num_words')
  return fields


def _vocabulary_differences(
  weights: Weights, config: ml_collections.ConfigDict, tokenizer: Tokenizer
) -> list[str]:
  """Returns a line if ids of the store mean other pieces in the weights."""
  known = weights.tokenizer
  if known is None:
    if weights.model.num_words:
      return [
        f'they have a table of {weights.model.num_words:,} words, and nothing'
        ' tells which words they are'
      ]
    return []
  cure = f'prepare the text with --tokenizer {weights.vocabulary}'
  try:
    new = np.flatnonzero(_token_rows(known, tokenizer) < 0)
  except ValueError as error:
    return [
      f'they have another vocabulary ({known.vocab_size} pieces,'
      f' {known.fingerprint[:8]}) than the store ({tokenizer.vocab_size}'
      f' pieces, {tokenizer.fingerprint[:8]}): {error}: {cure}'
    ]
  if config.init.new_rows or not len(new):
    return []
  return [
    f"the store's vocabulary has {len(new):,} pieces that the weights lack:"
    f' {_list(tokenizer, new)}: {NEW_ROWS} to draw their rows anew, or {cure}'
  ]


def known_tokenizer(config: ml_collections.ConfigDict) -> Tokenizer | None:
  """Returns the tokenizer of a run; None if it is still to be trained."""
  data = config.data
  folder = epath.Path(data.folder or workdirs.default_store(config))
  if folders.is_store(folder):
    return tokenization.load(folder)
  if tokenization.parse_training(data.tokenizer) is None:
    return tokenization.load(data.tokenizer)
  return None


def _token_rows(known: Tokenizer, tokenizer: Tokenizer) -> np.ndarray:
  """Returns int [V]: each token's id in `known`, or -1 if it is new.

  V counts the tokens that have a row: the words of a softmax, or all pieces.
  """
  if known.fingerprint == tokenizer.fingerprint:
    return np.arange(Vocabulary.of(tokenizer).size)
  return tokenization.inherited_ids(tokenizer, known)


def _row_maps(
  weights: Weights,
  model: nn.Module,
  tokenizer: Tokenizer,
  paths: Iterable[str],
  num_layers: int | None = None,
) -> dict[str, np.ndarray | None]:
  """Returns path -> int [rows]: each row in the weights, -1 if it is new.

  None: the whole parameter is taken. New parameters are left out.
  """
  known = weights.model

  def first(num_known: int, num_rows: int) -> np.ndarray:
    rows = np.arange(num_rows)
    return np.where(rows < num_known, rows, -1)

  # Without a vocabulary, the words of a softmax are unknown.
  anew = 'softmax/' if weights.tokenizer is None else ()
  maps: dict[str, np.ndarray | None] = {
    path: None
    for path in paths
    if path in weights.shapes and not path.startswith(anew)
  }
  changed = {}
  if POSITIONS in maps and known.max_length < model.max_length:
    changed[POSITIONS] = first(known.max_length, model.max_length)
  if TYPES in maps and known.num_token_types < model.num_token_types:
    changed[TYPES] = first(known.num_token_types, model.num_token_types)
  if not weights.reads_words:  # its softmax is whole, or starts anew
    rows = _token_rows(weights.tokenizer, tokenizer)
    rows = np.where(rows < known.vocab_size, rows, -1)
    if not np.array_equal(rows, np.arange(known.vocab_size)):
      changed |= dict.fromkeys(VOCABULARY, rows)
  if num_layers is not None:
    rows = first(num_layers, model.num_layers)
    changed |= {path: rows for path in maps if path.startswith('layers/')}
  return {path: changed.get(path) for path in maps}


@functools.partial(jax.jit, donate_argnums=0)
def _replace_rows(
  fresh: jax.Array, leaf: jax.Array, rows: jax.Array
) -> jax.Array:
  """Returns `fresh` with rows of `leaf` where `rows` is not -1."""
  rows = jnp.pad(rows, (0, len(fresh) - len(rows)), constant_values=-1)
  known = jnp.expand_dims(rows >= 0, tuple(range(1, fresh.ndim)))
  return jnp.where(known, jnp.take(leaf, rows, axis=0, mode='clip'), fresh)


def _report(
  weights: Weights, model: nn.Module, tokenizer: Tokenizer, paths: Iterable[str]
) -> list[str]:
  """Returns lines on parameters that are drawn anew or not used."""
  lines, maps = [], _row_maps(weights, model, tokenizer, paths)
  heads = sorted({path.partition('/')[0] for path in paths if path not in maps})
  if heads:
    lines.append(f'starts anew: {", ".join(heads)}')
  if weights.heads:
    lines.append(f'left out: {", ".join(weights.heads)}')
  for path, name in (
    *((table, 'tokens') for table in TABLES),
    (POSITIONS, 'positions'),
    (TYPES, 'token types'),
  ):
    if maps.get(path) is not None and (maps[path] < 0).any():
      new = np.flatnonzero(maps[path] < 0)
      pieces = f': {_list(tokenizer, new)}' if path in VOCABULARY else ''
      lines.append(f'new: {name} {new[0]:,} to {new[-1]:,}{pieces}')
  notes = weights.notes
  lines += [notes[key] for key in ('padding', NO_SOFTMAX) if key in notes]
  if 'gelu' in notes:
    lines.append(f'GELU: {notes["gelu"]}; the run has the form {model.gelu!r}')
  return lines


def _list(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
  named = ', '.join(tokenizer.pieces[i] for i in ids[:NAMED_PIECES])
  return named + (', ...' if len(ids) > NAMED_PIECES else '')


def _raise(config: ml_collections.ConfigDict, problems: Sequence[str]) -> None:
  if problems:
    raise ValueError(
      f'init.weights={config.init.weights} does not fit the config:\n  '
      + '\n  '.join(problems)
    )
