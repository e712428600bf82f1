"""Opens a workdir or published weights, to use them: model and tokenizer."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
from etils import epath
from flax import linen as nn

from data import bpe, tokenization
from models.pretrained import gpt
from train import assemble, checkpoint, settings, state
from train.architecture import Vocabulary

LEFT_TO_RIGHT = ('gpt', 'gpt2')
HELP = (
  'workdir of a GPT or GPT-2, or a folder of published weights (config.json,'
  ' model.safetensors, vocabulary)'
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
  published = _model_type(folder)
  if published is None:
    config = _read_config(folder)
    name = config.model.name
  else:
    name = gpt.MODEL_TYPES.get(published, published)
  if name not in expected:
    raise ValueError(
      f'{folder} holds a {name}, expected {" or ".join(expected)}'
    )
  tokenizer = tokenization.load(folder)
  if published is not None:
    return _finite(folder, _load_published(folder, name, tokenizer))
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
  params = checkpoint.restore_params(folder, _shapes(model, inputs))
  return _finite(folder, Trained(name, model, params, tokenizer))


def _finite(folder: epath.Path, found: Trained) -> Trained:
  """Returns what was found, its parameters being numbers.

  Raises:
    ValueError: naming those that are not: the run has diverged.
  """
  finite = jax.jit(
    lambda params: jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), params)
  )(found.params)
  for path, ok in jax.tree_util.tree_leaves_with_path(finite):
    if not ok:
      name = jax.tree_util.keystr(path, simple=True, separator='/')
      raise ValueError(f'{folder}: the parameters of {name} are not all finite')
  return found


def _load_published(
  folder: epath.Path, name: str, tokenizer: tokenization.Tokenizer
) -> Trained:
  model, params = gpt.read_folder(folder)
  # Texts never give the last symbols of GPT, which its weights do not have.
  from_texts = tokenizer.vocab_size - (
    len(bpe.SPECIALS) if name == 'gpt' else 0
  )
  if model.vocab_size not in (from_texts, tokenizer.vocab_size):
    raise ValueError(
      f'{folder}: the weights are of {model.vocab_size:,} pieces, the'
      f' vocabulary beside them has {from_texts:,}'
    )
  # Else each call would copy them again.
  return Trained(name, model, jax.device_put(params), tokenizer)


def _model_type(folder: epath.Path) -> str | None:
  """Returns what Hugging Face's config says it is of; None for our own."""
  try:
    found = json.loads((folder / 'config.json').read_bytes())
  except ValueError:
    return None  # told by who reads it
  return gpt.model_type(found)


def _read_config(folder: epath.Path) -> ml_collections.ConfigDict:
  try:
    config = settings.read_workdir_config(folder)
    config.model.name  # noqa: B018, asks whether it is there
  except (json.JSONDecodeError, AttributeError, ValueError) as error:
    raise ValueError(
      f'{folder / "config.json"}: not the config of a run ({error})'
    ) from error
  return config


def _shapes(model: nn.Module, inputs: tuple) -> Any:
  """Returns the parameters' shapes on one device."""
  place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
    nn.unbox(state.abstract_params(model, inputs)),
  )
