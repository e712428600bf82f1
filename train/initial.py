"""Where a run's parameters begin: `init.weights`."""

from typing import Any

import jax
from etils import epath

from data import tokenization
from models import elmo
from models.pretrained import elmo as pretrained_elmo
from models.pretrained import published, strict
from train import checkpoint
from train.reporting import say

# Of an ELMo, what its parameters do not show.
ELMO_SETTINGS = ('cell_clip', 'projection_clip', 'use_skip_connections')


def check(weights: epath.PathLike, tokenizer: Any) -> None:
  """Refuses parameters whose token ids mean other pieces.

  Args:
    weights: a workdir; or a folder with the options.json and the HDF5 weights
      of a released ELMo, which know no words.
    tokenizer: of the text.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if the vocabularies differ.
  """
  if _is_released(weights):
    return
  if checkpoint.latest_step(weights) is None:
    raise FileNotFoundError(f'init.weights={weights}: no complete checkpoint')
  theirs = tokenization.load(weights)
  if theirs.fingerprint != tokenizer.fingerprint:
    raise ValueError(
      f'init.weights={weights} has another vocabulary'
      f' ({theirs.vocab_size} pieces, {theirs.fingerprint[:8]}) than the store'
      f' ({tokenizer.vocab_size} pieces, {tokenizer.fingerprint[:8]}): prepare'
      f' the text with --tokenizer {weights}'
    )


def load(weights: epath.PathLike, model: Any, fresh: Any) -> Any:
  """Returns the parameters to begin with, laid out as `fresh` is.

  Args:
    weights: as in `check`.
    model: the module that is trained.
    fresh: its parameters as newly drawn. Of a released ELMo, the softmax stays
      as it is here: it is no part of what was released.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if it is damaged, or the sizes differ; then all that do.
  """
  if not _is_released(weights):
    shapes = jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=leaf.sharding
      ),
      fresh,
    )
    say(f'Starting from the parameters of {weights}.')
    return checkpoint.restore_params(weights, shapes)
  found = published.open_folder(weights)
  params = found.load()
  _check_fit(weights, model, fresh, found.model, params)
  begun = {
    name: jax.tree.map(
      # Each process makes the shards that its devices hold.
      lambda leaf, place: jax.make_array_from_callback(
        leaf.shape, place.sharding, leaf.__getitem__
      ),
      params[name],
      fresh[name],
    )
    for name in params.keys() - {'softmax'}
  }
  say(f'Starting from {weights}, but for the softmax, which starts anew.')
  return fresh | begun


def _check_fit(
  weights: epath.PathLike,
  model: Any,
  fresh: Any,
  theirs: elmo.Elmo,
  params: Any,
) -> None:
  if not isinstance(model, elmo.Elmo):
    raise ValueError(
      f'init.weights={weights} is an ELMo, but the model is a'
      f' {type(model).__name__}: set model.name, or other weights'
    )
  given, expected = (
    {
      path: leaf
      for path, leaf in strict.flatten(tree).items()
      if not path.startswith('softmax/')
    }
    for tree in (params, fresh)
  )
  problems = strict.misfits(
    strict.in_memory(given),
    [strict.Piece(path, path, leaf.shape) for path, leaf in expected.items()],
  )
  for name in ELMO_SETTINGS:
    found, wanted = getattr(theirs, name), getattr(model, name)
    if found != wanted:
      problems.append(f'{name} is {found} there, {wanted} in the config')
  if problems:
    raise ValueError(
      f'init.weights={weights} does not fit the config:\n  '
      + '\n  '.join(problems)
    )


def _is_released(weights: epath.PathLike) -> bool:
  folder = epath.Path(weights)
  return not (folder / 'config.json').exists() and any(
    folder.glob(f'*{pretrained_elmo.OPTIONS_FILE}')
  )
