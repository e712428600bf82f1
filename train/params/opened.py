"""Opens weights, workdirs and published ones: no array is read yet."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from etils import epath
from flax import linen as nn
from jax.sharding import Sharding

from data import hub
from data.vocabulary import tokenization
from models import bert, elmo
from models.pretrained import published, strict
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.params import vocabulary_fit
from train.params.vocabulary_fit import TOKENIZER_OPTION
from train.run import checkpoint, settings

# Heads of fine-tuning, beside a model's own.
HEADS = ('classifier', 'token_classifier', 'span_classifier')
# What else a task's model has between its encoder and its head.
BETWEEN = ('bilstm', 'mix')
# Of a workdir that `train.weights import` or a fine-tuning made: what no config
# tells.
IMPORTED_FILE = 'imported.json'
# Of a fine-tuning's workdir: the parameters to use, its best or last.
TASK_MODEL_FOLDER = 'model'
# Fields of modules that no key of a config sets.
FIELDS_BESIDE = (
  'heads',
  'layer_norm_epsilon',
  'max_characters',
  'num_token_types',
  'num_words',
  'pool_last',
  'use_skip_connections',
)
Keep = Callable[[str, jax.Array], Any]


@dataclasses.dataclass(frozen=True)
class Opened:
  """Weights whose names and sizes are known.

  Attributes:
    folder: that they lie in.
    kind: 'workdir', 'Hugging Face', 'TensorFlow', 'OpenAI' or 'ELMo'.
    name: 'bert', 'gpt', 'gpt2' or 'elmo', or what is none of ours.
    model: the module; None where nothing tells enough of it.
    tokenizer: of its vocabulary; None where none is there and none was named.
    vocabulary: the path of it, to be given to other commands.
    shapes: 'path/of/parameter' -> ShapeDtypeStruct, those of `heads` too.
    heads: those of `HEADS` that are there.
    labels: names of a head's classes, see `strict.Published`.
    set_aside: names that are known and not used.
    notes: what the files do not tell, and how they are read.
    problems: why they cannot be used, a line each.
    read: see `load`.
  """

  folder: epath.Path
  kind: str
  name: str
  model: nn.Module | None
  tokenizer: Any
  vocabulary: str
  shapes: Mapping[str, jax.ShapeDtypeStruct]
  heads: tuple[str, ...]
  labels: Mapping[str, str]
  set_aside: tuple[str, ...]
  notes: Mapping[str, Any]
  problems: tuple[str, ...]
  read: Callable[[Mapping[str, Sharding], Keep], dict]

  def check(self, option: str = TOKENIZER_OPTION) -> None:
    """Refuses what cannot be used with texts.

    Args:
      option: how a user names a vocabulary that does not lie beside the
        weights.

    Raises:
      ValueError: that lists all problems, if there are any; or if the weights
        have no vocabulary, which an ELMo does not need.
    """
    self.check_problems()
    if self.tokenizer is None and self.name != 'elmo':
      raise ValueError(
        f'{self.folder} holds no vocabulary, only weights: name the one that'
        f' they were trained with by {option}, or make a workdir of both by'
        f' python -m train.weights import {self.folder} WORKDIR'
        f' {TOKENIZER_OPTION}'
      )

  def check_problems(self) -> None:
    """Refuses damaged weights, and those that we do not have.

    Raises:
      ValueError: that lists all problems, if there are any.
    """
    if self.problems:
      raise ValueError(
        f'{self.folder}: these weights cannot be used:\n  '
        + '\n  '.join(self.problems)
      )

  def load(
    self,
    shardings: Mapping[str, Sharding],
    keep: Keep = lambda path, leaf: leaf,
  ) -> dict:
    """Reads parameters.

    Args:
      shardings: 'path/of/parameter' -> where it is to lie; these are read.
      keep: (path, array laid out so) -> what takes its place in the result.

    Returns:
      The tree of them, float32.

    Raises:
      ValueError: if there are problems, or an array is damaged or not finite.
    """
    self.check_problems()
    return self.read(shardings, keep)

  def on_one_device(self) -> dict[str, Sharding]:
    """Returns 'path/of/parameter' -> the first device."""
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return dict.fromkeys(self.shapes, place)


def open_weights(
  weights: epath.PathLike, tokenizer: epath.PathLike | None = None
) -> Opened:
  """Opens a workdir or published weights.

  Args:
    weights: the workdir of a run, or one that `train.weights import` made; a
      folder of published weights; or their name on Hugging Face's hub.
    tokenizer: the vocabulary of published weights, see `tokenization.load`;
      by default the one that lies beside them, if any.

  Raises:
    FileNotFoundError: if there is none, or no such vocabulary.
    ValueError: if what is there is damaged, or if a workdir has another
      vocabulary; what does not fit is among the `problems` instead.
  """
  folder = hub.find(weights)
  is_published = published.is_published(folder)
  given = None if tokenizer is None else tokenization.load(tokenizer)
  if (folder / 'config.json').exists() and not is_published:
    found = _open_workdir(folder)
    if given is not None:
      _check_same(found, given, str(tokenizer))
    return found
  try:
    found = published.open_folder(folder)
  except FileNotFoundError as error:
    if is_published:  # but for a file
      raise
    raise FileNotFoundError(
      f'{folder}: neither a workdir of train.main nor published weights:'
      f' {error}'
    ) from error
  return _open_published(found, given, str(tokenizer or folder))


def fields_beside(model: nn.Module) -> dict[str, Any]:
  """Returns the module's fields that no config tells."""
  names = ('vocab_size', *FIELDS_BESIDE)
  return {name: getattr(model, name) for name in names if hasattr(model, name)}


def abstract_params(model: nn.Module) -> Any:
  """Returns a model's parameters as boxed ShapeDtypeStructs."""
  ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 1), bool)
  if isinstance(model, elmo.Elmo):
    word = () if model.num_words else (model.max_characters,)
    words = jax.ShapeDtypeStruct((1, 1, *word), jnp.int32)
    inputs, modes = (words, jax.ShapeDtypeStruct((1,), jnp.int32)), {}
  elif isinstance(model, bert.Bert):
    inputs, modes = (ids, mask, ids, ids, ids), {'train': False}
  else:
    inputs, modes = (ids, mask, ids), {'train': False}
  init = functools.partial(model.init, **modes)
  return jax.eval_shape(init, jax.random.key(0), *inputs)['params']


def _open_workdir(folder: epath.Path) -> Opened:
  config = _read_config(folder)
  imported = _read_imported(folder)
  saved_in = folder / TASK_MODEL_FOLDER if 'task' in config else folder
  name = config.model.name
  tokenizer = None
  if name != 'elmo' or imported.get('tokenizer', True):
    tokenizer = tokenization.load(folder)
  size = 0 if tokenizer is None else Vocabulary.of(tokenizer).size
  model = families.build_model(config, size)
  fields = imported.get('fields', {})
  if 'heads' in fields:
    fields = fields | {'heads': tuple(fields['heads'])}
  model = model.clone(**fields)
  saved = {
    path: jax.ShapeDtypeStruct(shape, jnp.float32)
    for path, shape in checkpoint.params_shapes(saved_in).items()
  }
  shapes = strict.flatten(nn.unbox(abstract_params(model)))
  shapes |= {
    path: leaf
    for path, leaf in saved.items()
    if path.partition('/')[0] in HEADS + BETWEEN
  }
  entries = {
    path: strict.Entry(leaf.shape, leaf.dtype, lambda: None)
    for path, leaf in saved.items()
  }
  pieces = [
    strict.Piece(path, path, leaf.shape) for path, leaf in shapes.items()
  ]
  return Opened(
    folder=folder,
    kind='workdir',
    name=name,
    model=model,
    tokenizer=tokenizer,
    vocabulary=str(folder),
    shapes=shapes,
    heads=_heads(shapes),
    labels=imported.get('labels', {}),
    set_aside=(),
    notes=imported.get('notes', {}),
    problems=tuple(strict.misfits(entries, pieces)),
    read=functools.partial(_read_workdir, saved_in, shapes),
  )


def _read_imported(folder: epath.Path) -> dict[str, Any]:
  """Returns what `train.weights import` wrote; nothing of a run's workdir."""
  file = folder / IMPORTED_FILE
  if not file.exists():
    return {}
  try:
    found = json.loads(file.read_bytes())
  except ValueError as error:
    raise ValueError(f'{file} is damaged, import again: {error}') from error
  if not isinstance(found, dict):
    raise ValueError(f'{file}: not a JSON object, import again')
  return found


def _heads(shapes: Mapping[str, Any]) -> tuple[str, ...]:
  there = {path.partition('/')[0] for path in shapes}
  return tuple(head for head in HEADS if head in there)


def _check_same(found: Opened, given: Any, path: str) -> None:
  """Refuses another vocabulary than a workdir's own.

  Raises:
    ValueError: if it is.
  """
  ours = found.tokenizer
  if ours is not None and ours.fingerprint == given.fingerprint:
    return
  has = 'none' if ours is None else f'its own, {ours.description}'
  raise ValueError(
    f'{found.folder} is a workdir, and its vocabulary is {has}; {path} is'
    f' another, {given.description}: leave it out'
  )


def _open_published(
  found: published.Published, given: Any, vocabulary: str
) -> Opened:
  """Opens published weights.

  Args:
    found: the weights.
    given: the tokenizer that was named for them; None: that beside them.
    vocabulary: its path.
  """
  tokenizer, problems, notes = given, list(found.problems), dict(found.notes)
  # ELMo's weights are published without words; our own export writes them.
  is_there = (
    (found.folder / 'words.txt').exists()
    if found.name == 'elmo'
    else tokenization.has_vocabulary(found.folder)
  )
  if given is None and is_there:
    try:
      tokenizer = tokenization.load(found.folder)
    except (FileNotFoundError, ValueError) as error:
      problems.append(str(error))
  if tokenizer is not None and found.model is not None:
    named = vocabulary if given is not None else None
    problem = vocabulary_fit.misfit(found, tokenizer, named)
    if problem:
      problems.append(problem)
    else:
      found, note = vocabulary_fit.cut_padding(found, tokenizer)
      notes |= note
  return Opened(
    folder=found.folder,
    kind=found.kind,
    name=found.name,
    model=found.model,
    tokenizer=tokenizer,
    vocabulary=vocabulary,
    shapes=found.shapes,
    heads=found.heads,
    labels=found.labels,
    set_aside=tuple(found.set_aside),
    notes=notes,
    problems=tuple(problems),
    read=functools.partial(_read_published, found),
  )


def _read_published(
  found: published.Published, shardings: Mapping[str, Sharding], keep: Keep
) -> dict:
  def place(path: str, array: Any) -> Any:
    # Each process makes the shards that its devices hold.
    leaf = jax.make_array_from_callback(
      array.shape, shardings[path], array.__getitem__
    )
    return keep(path, leaf)

  shapes = {path: found.shapes[path] for path in shardings}
  return dataclasses.replace(found, shapes=shapes).load(place)


def _read_workdir(
  folder: epath.Path,
  shapes: Mapping[str, jax.ShapeDtypeStruct],
  shardings: Mapping[str, Sharding],
  keep: Keep,
) -> dict:
  asked: dict = {}
  for path, place in shardings.items():
    leaf = shapes[path]
    strict.put(
      asked,
      path.split('/'),
      jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
    )
  restored = checkpoint.restore_params(folder, asked)
  _check_finite(folder, restored)
  kept: dict = {}
  for path, leaf in strict.flatten(restored).items():
    strict.put(kept, path.split('/'), keep(path, leaf))
  return kept


def _check_finite(folder: epath.Path, params: Any) -> None:
  """Refuses parameters that are no numbers: the run has diverged.

  Raises:
    ValueError: naming them.
  """
  finite = jax.jit(
    lambda params: jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), params)
  )(params)
  for path, ok in strict.flatten(finite).items():
    if not ok:
      raise ValueError(f'{folder}: the parameters of {path} are not all finite')


def _read_config(folder: epath.Path) -> ml_collections.ConfigDict:
  try:
    config = settings.read_workdir_config(folder)
    config.model.name  # noqa: B018, asks whether it is there
  except (json.JSONDecodeError, AttributeError, ValueError) as error:
    raise ValueError(
      f'{folder / "config.json"}: not the config of a run ({error})'
    ) from error
  return config
