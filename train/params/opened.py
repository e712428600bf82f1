"""Opens the weights of workdirs and of publishers; no array is read yet."""

import functools
import json
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn
from jax.sharding import Sharding, SingleDeviceSharding

from data import hub
from data.vocabulary import tokenization
from models.features import HEADS
from models.layers import Params
from models.pretrained import published, strict
from models.pretrained.weights import Keep, SentenceForm, Weights, shapes_of
from models.pretrained.weights import abstract_params as abstract_params
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.host import files
from train.host.files import Json
from train.params import vocabulary_fit
from train.run import checkpoint, workdirs
from train.run.settings import Value

# Other parts of a task's model, beside its encoder and its head.
BETWEEN = ('bilstm', 'mix', 'crf')
# Facts of an import or a fine-tuning that no config tells.
IMPORTED_FILE = 'imported.json'
# Fields of modules that no key of a config sets.
FIELDS_BESIDE = (
  'vocab_size',
  'heads',
  'layer_norm_epsilon',
  'max_characters',
  'num_token_types',
  'num_words',
  'pool',
  'use_skip_connections',
)


def open_weights(
  weights: epath.PathLike | Weights, tokenizer: epath.PathLike | None = None
) -> Weights:
  """Opens a workdir or published weights.

  `weights` names the workdir of a run or of `train.weights import`, a folder of
  published weights, or a model on Hugging Face's hub; open weights are returned
  as they are. WORKDIR@STEP is a kept checkpoint of a pre-training, WORKDIR its
  newest. `tokenizer` is the vocabulary of published weights, see
  `tokenization.load`; by default their folder is searched. Raises
  FileNotFoundError, or ValueError for damaged weights or another vocabulary
  than a workdir's; `problems` of the result lists other obstacles.
  """
  if isinstance(weights, Weights):
    return weights
  weights, step = _split_step(weights)
  folder = hub.find(weights)
  is_published = published.is_published(folder)
  given = None if tokenizer is None else tokenization.load(tokenizer)
  if (folder / 'config.json').exists() and not is_published:
    found = _open_workdir(folder, step)
    own = found.tokenizer
    if given is None or (own and own.fingerprint == given.fingerprint):
      return found
    raise ValueError(
      f'{folder} is a workdir, and its vocabulary is'
      f' {f"its own, {own.description}" if own else "none"}; {tokenizer} is'
      f' another, {given.description}: leave it out'
    )
  try:
    found = published.open_folder(folder)
  except FileNotFoundError as error:
    if is_published:  # a file is missing
      raise
    raise FileNotFoundError(
      f'{folder}: neither a workdir of train.main nor published weights:'
      f' {error}'
    ) from error
  return _with_vocabulary(found, given, str(tokenizer or folder))


def _split_step(weights: epath.PathLike) -> tuple[epath.PathLike, int | None]:
  """Returns WORKDIR and STEP of WORKDIR@STEP; of other weights no step."""
  workdir, _, step = str(weights).rpartition('@')
  if (
    not step.isdecimal()
    or epath.Path(weights).exists()
    or not epath.Path(workdir, 'config.json').exists()
  ):
    return weights, None
  return workdir, int(step)


def fields_beside(model: nn.Module) -> dict[str, Value]:
  """Returns the module's fields that no key of a config sets."""
  return {
    name: getattr(model, name) for name in FIELDS_BESIDE if hasattr(model, name)
  }


def fields_of(imported: Mapping[str, Json]) -> dict[str, Value]:
  """Returns the fields that an IMPORTED_FILE tells, see `fields_beside`."""
  fields = dict(imported.get('fields', {}))
  if 'heads' in fields:
    fields['heads'] = tuple(fields['heads'])
  if fields.pop('pool_last', False):  # as versions before `pool` wrote it
    fields['pool'] = 'last'
  return fields


def write_pool(workdir: epath.Path, weights: Weights) -> None:
  """Writes what the pooler of weights reads, if it is not the first token."""
  pool = getattr(weights.model, 'pool', 'first')
  if pool != 'first':
    imported = json.dumps({'fields': {'pool': pool}}) + '\n'
    files.write_atomically(workdir / IMPORTED_FILE, imported)


def inherited(
  weights: Weights, params: Params, labels: tuple[str, ...]
) -> Weights:
  """Returns the weights without the heads that do not fit the labels.

  A classifier stays only for the same labels (as after MultiNLI), unless they
  are mere numbers; a head of spans stays (as after TriviaQA). Parts above the
  encoder go if their sizes differ from those in `params`, as drawn.
  """
  shapes = strict.flatten(params)
  known = [weights.labels[key] for key in sorted(weights.labels, key=int)]
  on_top = (*HEADS, *BETWEEN)
  dropped = {
    path.partition('/')[0]
    for path, leaf in weights.shapes.items()
    if path.startswith(on_top)
    and (path not in shapes or shapes[path].shape != leaf.shape)
  }
  # Numbers are labels of many tasks, with another meaning in each.
  numbers = all(name.isdecimal() for name in known)
  if numbers or tuple(known) != labels:
    dropped |= {'classifier', 'token_classifier', 'crf'}
  return weights._replace(
    shapes={
      path: leaf
      for path, leaf in weights.shapes.items()
      if path.partition('/')[0] not in dropped
    },
    heads=tuple(head for head in weights.heads if head in dropped),
  )


def _open_workdir(folder: epath.Path, step: int | None) -> Weights:
  config = workdirs.read_config(folder)
  if step is not None and 'task' in config:
    raise ValueError(
      f'{folder}@{step}: {folder} is of a fine-tuning, which keeps one model:'
      ' leave the step out'
    )
  imported = _read_imported(folder)
  name = config.model.name
  if name not in families.ARCHITECTURES:
    raise ValueError(
      f'{folder} holds a task model ({name}), expected a language model: pass'
      ' the init.weights of that run'
    )
  reads_words = families.ARCHITECTURES[name].reads_words
  tokenizer = load_vocabulary(folder, imported)
  if tokenizer is not None and tokenizer.whole_words and not reads_words:
    tokenizer = tokenizer.predicted()
  size = 0 if tokenizer is None else Vocabulary.of(tokenizer).size
  fields = fields_of(imported)
  model = families.build_model(config, size).clone(**fields)
  saved_in = folder / workdirs.MODEL_FOLDER if 'task' in config else folder
  saved = {
    path: jax.ShapeDtypeStruct(shape, jnp.float32)
    for path, shape in checkpoint.params_shapes(saved_in, step).items()
  }
  shapes = shapes_of(model) | {
    path: leaf
    for path, leaf in saved.items()
    if path.partition('/')[0] in HEADS + BETWEEN
  }
  problems = strict.misfits(
    {
      path: strict.Entry(leaf.shape, np.dtype(np.float32), lambda: None)
      for path, leaf in saved.items()
    },
    [strict.Piece(path, path, leaf.shape) for path, leaf in shapes.items()],
  )
  parts = {path.partition('/')[0] for path in shapes}
  form = imported.get('sentence_form')
  return Weights(
    folder,
    'workdir',
    name,
    model=model,
    shapes=shapes,
    heads=tuple(head for head in HEADS if head in parts),
    labels=imported.get('labels', {}),
    notes=imported.get('notes', {}),
    problems=tuple(problems),
    sentence_form=form and SentenceForm(**form),
    reads_words=reads_words,
    read=functools.partial(_read_workdir, saved_in, step, shapes),
    tokenizer=tokenizer,
    vocabulary=str(folder),
  )


def load_vocabulary(
  folder: epath.Path, imported: Mapping[str, Json]
) -> tokenization.Tokenizer | None:
  """Returns the vocabulary of a workdir; None if its weights came without one.

  `imported` is the result of `_read_imported`. Raises ValueError if the
  vocabulary is not the one that the run or the import wrote.
  """
  written = imported.get('tokenizer')
  if 'tokenizer' not in imported and (folder / workdirs.STORE_FILE).exists():
    written = files.read_json(folder / workdirs.STORE_FILE).get('vocabulary')
  elif 'tokenizer' in imported and not written:
    return None
  tokenizer = tokenization.load(folder)
  if isinstance(written, str) and tokenizer.fingerprint != written:
    raise ValueError(
      f'{folder}: its vocabulary has the fingerprint'
      f' {tokenizer.fingerprint[:16]}, but was written with {written[:16]}: a'
      ' file of it was changed or is damaged. Put the right one back, or name a'
      ' copy of the workdir'
    )
  return tokenizer


def _read_imported(folder: epath.Path) -> dict[str, Json]:
  """Returns the content of `IMPORTED_FILE`; {} for a pre-training."""
  file = folder / IMPORTED_FILE
  return files.read_json(file) if file.exists() else {}


def _read_workdir(
  folder: epath.Path,
  step: int | None,
  shapes: Mapping[str, jax.ShapeDtypeStruct],
  shardings: Mapping[str, Sharding],
  keep: Keep,
) -> dict:
  """Reads parameters of a checkpoint, see `Weights.load`."""
  asked: dict = {}
  for path, place in shardings.items():
    leaf = jax.ShapeDtypeStruct(
      shapes[path].shape, shapes[path].dtype, sharding=place
    )
    strict.put(asked, path.split('/'), leaf)
  restored = checkpoint.restore_params(folder, asked, step)
  finite = jax.jit(
    lambda params: jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), params)
  )(restored)
  for path, ok in strict.flatten(finite).items():
    if not ok:  # the run has diverged
      raise ValueError(f'{folder}: the parameters of {path} are not all finite')
  kept: dict = {}
  for path, leaf in strict.flatten(restored).items():
    strict.put(kept, path.split('/'), keep(path, leaf))
  return kept


def load_params(folder: epath.PathLike) -> Params:
  """Returns all parameters of a checkpoint, on this process's first device.

  Raises ValueError for damage, and for parameters that are not all finite.
  """
  folder = epath.Path(folder)
  place = SingleDeviceSharding(jax.local_devices()[0])
  shapes = {
    path: jax.ShapeDtypeStruct(shape, jnp.float32)
    for path, shape in checkpoint.params_shapes(folder).items()
  }
  places = dict.fromkeys(shapes, place)
  return _read_workdir(folder, None, shapes, places, lambda path, leaf: leaf)


def _with_vocabulary(
  found: Weights, given: tokenization.Tokenizer | None, vocabulary: str
) -> Weights:
  """Returns weights cut to the `given` vocabulary, or the one beside them."""
  tokenizer = given
  # ELMo's weights are published without words; our own export writes them.
  is_there = (
    (found.folder / 'words.txt').exists()
    if found.reads_words
    else tokenization.has_vocabulary(found.folder)
  )
  if given is None and is_there:
    try:
      tokenizer = tokenization.load(found.folder)
    except (FileNotFoundError, ValueError) as error:
      found = found._replace(problems=(*found.problems, str(error)))
  if tokenizer is not None and found.model is not None:
    named = None if given is None else vocabulary
    found = vocabulary_fit.fit(found, tokenizer, named)
  return found._replace(tokenizer=tokenizer, vocabulary=vocabulary)
