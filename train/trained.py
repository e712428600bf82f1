"""Opens a workdir or published weights, to use them: model and tokenizer."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
from etils import epath
from flax import linen as nn

from data import bpe, characters, tokenization
from models import elmo
from models.pretrained import elmo as pretrained_elmo
from models.pretrained import published
from train import assemble, checkpoint, settings, state
from train.architecture import Vocabulary

LEFT_TO_RIGHT = ('gpt', 'gpt2')
HELP = (
  'workdir of a GPT or GPT-2, or a folder of published weights (config.json,'
  ' model.safetensors, vocabulary)'
)
ELMO_HELP = (
  'workdir of an ELMo, or a folder of released weights (one *options.json, one'
  ' *weights.hdf5)'
)


class Trained(NamedTuple):
  """A trained model, ready for use.

  Attributes:
    name: 'bert', 'gpt' or 'gpt2'.
    model: the module.
    params: its parameters, unboxed.
    tokenizer: of its vocabulary.
  """

  name: str
  model: nn.Module
  params: Any
  tokenizer: Any

  def encode(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns each text's ids; '<|endoftext|>' in it is GPT-2's symbol."""
    if hasattr(self.tokenizer, 'end_of_text_id'):
      return self.tokenizer.encode_batch(texts, special=True)
    return self.tokenizer.encode_batch(texts)


def load(weights: epath.PathLike, *, expected: tuple[str, ...]) -> Trained:
  """Opens the newest checkpoint of a workdir, or published weights.

  Args:
    weights: a workdir of `train.main`; or a folder with Hugging Face's
      config.json and model.safetensors of a GPT or GPT-2, and a vocabulary.
    expected: the models that will do.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it is of another model, or damaged, or not finite.
  """
  folder = epath.Path(weights).expanduser()
  if not (folder / 'config.json').exists():
    raise FileNotFoundError(
      f'{folder}: no config.json, so this is neither a workdir of train.main'
      ' nor published weights'
    )
  found = None
  if published.is_published(folder):
    found = published.open_folder(folder)
    name = found.name
  else:
    config = _read_config(folder)
    name = config.model.name
  if name not in expected:
    raise ValueError(
      f'{folder} holds a {name}, expected {" or ".join(expected)}'
    )
  tokenizer = tokenization.load(folder)
  if found is not None:
    return _load_published(found, tokenizer)
  architecture = assemble.architecture_of(config)
  model = architecture.build_model(config.model, tokenizer.vocab_size)
  vocabulary = Vocabulary.of(tokenizer)
  length = settings.check_phases(config)[-1].length
  inputs = assemble.model_inputs(
    architecture,
    model,
    architecture.build_objective(config, length, vocabulary),
    length,
    1,
  )
  shapes = nn.unbox(state.abstract_params(model, inputs))
  params = checkpoint.restore_params(folder, _on_one_device(shapes))
  return _finite(folder, Trained(name, model, params, tokenizer))


def load_elmo(
  weights: epath.PathLike,
) -> tuple[elmo.Elmo, Any, str | None]:
  """Opens an ELMo to embed sentences with: all of it but its softmax.

  Args:
    weights: a workdir of `train.main`; or a folder with the options.json and
      the HDF5 weights of the released program.

  Returns:
    The model; its parameters, unboxed; and how the words that it was trained on
    were split, see `data.words`, None where nobody told.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it is of another model, or damaged, or not finite, or does
      not read characters.
  """
  folder = epath.Path(weights).expanduser()
  if (folder / 'config.json').exists():
    model, split = _open_elmo(folder)
    _check_characters(folder, model)
    shapes = jax.eval_shape(
      model.init,
      jax.random.key(0),
      jax.ShapeDtypeStruct((1, 1, model.max_characters), jnp.int32),
      jax.ShapeDtypeStruct((1,), jnp.int32),
    )
    shapes = _on_one_device(nn.unbox(shapes['params']))
    params = checkpoint.restore_params(folder, shapes)
  elif any(folder.glob(f'*{pretrained_elmo.OPTIONS_FILE}')):
    found = published.open_folder(folder)
    model, params = found.model, found.load()
    _check_characters(folder, model)
    split = None
    params = jax.device_put(
      {name: leaf for name, leaf in params.items() if name != 'softmax'}
    )
    model = model.clone(vocab_size=0)
  else:
    raise FileNotFoundError(
      f'{folder}: neither config.json nor *{pretrained_elmo.OPTIONS_FILE}, so'
      ' this is neither a workdir of train.main nor released weights of an ELMo'
    )
  _check_finite(folder, params)
  return model, params, split


def _open_elmo(folder: epath.Path) -> tuple[elmo.Elmo, str]:
  """Returns the model of a workdir, without a softmax, and `split`."""
  if published.is_published(folder):
    config, name = None, published.open_folder(folder).name
  else:
    config = _read_config(folder)
    name = config.model.name
  if config is None or name != 'elmo':
    raise ValueError(
      f'{folder} holds a {name}, expected the workdir of an elmo'
    )
  tokenizer = tokenization.load(folder)
  model = assemble.architecture_of(config).build_model(
    config.model, tokenizer.softmax_size
  )
  return model.clone(vocab_size=0), tokenizer.split


def _check_characters(folder: epath.Path, model: elmo.Elmo) -> None:
  """Refuses a model that does not read words as we spell them.

  Raises:
    ValueError: if so.
  """
  if model.num_words:
    raise ValueError(
      f'{folder}: the model has a table of {model.num_words:,} words in place'
      ' of a character encoder, and nothing here tells which words they are'
    )
  if model.max_characters != characters.MAX_CHARACTERS:
    raise ValueError(
      f'{folder}: the model reads {model.max_characters} characters of a word,'
      f' expected {characters.MAX_CHARACTERS}'
    )


def _finite(folder: epath.Path, found: Trained) -> Trained:
  """Returns what was found, its parameters being numbers."""
  _check_finite(folder, found.params)
  return found


def _check_finite(folder: epath.Path, params: Any) -> None:
  """Refuses parameters that are no numbers: the run has diverged.

  Raises:
    ValueError: naming them.
  """
  finite = jax.jit(
    lambda params: jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), params)
  )(params)
  for path, ok in jax.tree_util.tree_leaves_with_path(finite):
    if not ok:
      name = jax.tree_util.keystr(path, simple=True, separator='/')
      raise ValueError(f'{folder}: the parameters of {name} are not all finite')


def _load_published(
  found: published.Published, tokenizer: tokenization.Tokenizer
) -> Trained:
  found.check()
  # Texts never give the last symbols of GPT, which its weights do not have.
  from_texts = tokenizer.vocab_size - (
    len(bpe.SPECIALS) if found.name == 'gpt' else 0
  )
  if found.model.vocab_size not in (from_texts, tokenizer.vocab_size):
    raise ValueError(
      f'{found.folder}: the weights are of {found.model.vocab_size:,} pieces,'
      f' the vocabulary beside them has {from_texts:,}'
    )
  # Else each call would copy them again.
  params = found.load(lambda path, array: jax.device_put(array))
  return Trained(found.name, found.model, params, tokenizer)


def _read_config(folder: epath.Path) -> ml_collections.ConfigDict:
  try:
    config = settings.read_workdir_config(folder)
    config.model.name  # noqa: B018, asks whether it is there
  except (json.JSONDecodeError, AttributeError, ValueError) as error:
    raise ValueError(
      f'{folder / "config.json"}: not the config of a run ({error})'
    ) from error
  return config


def _on_one_device(shapes: Any) -> Any:
  """Returns a tree's ShapeDtypeStructs, each on the first device."""
  place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
    shapes,
  )
