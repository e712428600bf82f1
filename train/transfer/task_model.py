"""The model of a task: an encoder, the head on it, and where both begin."""

import dataclasses
import json
from typing import Any

import ml_collections
from etils import epath
from flax import linen as nn

from data import tokenization
from data.tasks.examples import Task
from models import bert, transfer
from train import assemble, initial, opened, settings
from train.architecture import Vocabulary, model_fields
from train.opened import Opened
from train.transfer import task_data

# Of `config.model`: how a module computes, not what.
FREE_KEYS = (
  'dropout_rate',
  'attention_dropout_rate',
  'dtype',
  'scan_layers',
  'remat',
)
HEAD_OF_KIND = {
  'classification': 'classifier',
  'regression': 'classifier',
  'choice': 'classifier',
  'tagging': 'token_classifier',
  'span': 'span_classifier',
}


@dataclasses.dataclass(frozen=True)
class Encoder:
  """A language model to put a head on.

  Attributes:
    config: with the sizes of the model in its section `model`.
    module: the model, with what is needed of its own heads.
    tokenizer: of its vocabulary.
    weights: that it begins with; None: drawn, or restored.
  """

  config: ml_collections.ConfigDict
  module: nn.Module
  tokenizer: Any
  weights: Opened | None


def open_encoder(
  config: ml_collections.ConfigDict, task: Task, workdir: epath.Path | None
) -> Encoder:
  """Returns the encoder that a config names; no array is read.

  Args:
    config: of a task.
    task: its declaration.
    workdir: of a run that goes on, which needs no other weights.

  Raises:
    FileNotFoundError: if there are no such weights.
    ValueError: if they cannot be used for the task.
  """
  if workdir is not None:
    found = _reopen(config, workdir)
  elif config.init.weights is not None:
    found = _open(config)
  else:
    found = _draw(config)
  _check(found, task)
  if not isinstance(found.module, bert.Bert):
    return found
  settings_ = config.task
  reads_pooler = (
    HEAD_OF_KIND[task.kind] == 'classifier'
    and settings_.features == 'last'
    and not settings_.bilstm_layers
  )
  heads = ('pooler',) if reads_pooler else ()
  return dataclasses.replace(found, module=found.module.clone(heads=heads))


def _open(config: ml_collections.ConfigDict) -> Encoder:
  weights = opened.open_weights(config.init.weights)
  weights.check()
  if weights.tokenizer is None or not hasattr(weights.model, 'max_length'):
    raise ValueError(
      f'init.weights={config.init.weights} holds a {weights.name}: tasks are'
      ' read by a BERT, a GPT or a GPT-2'
    )
  sizes = initial.module_settings(weights.name, weights.model)
  config = with_model(config, {'name': weights.name} | sizes)
  # A GPT's published table lacks the symbols that tasks are framed with.
  size = Vocabulary.of(weights.tokenizer).size
  module = weights.model.clone(
    vocab_size=size, **_free_fields(config, weights.model)
  )
  return Encoder(config, module, weights.tokenizer, weights)


def _reopen(config: ml_collections.ConfigDict, workdir: epath.Path) -> Encoder:
  saved = settings.read_workdir_config(workdir)
  if saved is None or 'task' not in saved:
    raise ValueError(
      f'{workdir} holds a run that is no fine-tuning: pass another --workdir'
    )
  sizes = {
    key: value for key, value in saved.model.items() if key not in FREE_KEYS
  }
  config = with_model(config, sizes)
  tokenizer = tokenization.load(workdir)
  fields = json.loads((workdir / opened.IMPORTED_FILE).read_bytes())['fields']
  return Encoder(
    config, _build(config, tokenizer).clone(**fields), tokenizer, None
  )


def _draw(config: ml_collections.ConfigDict) -> Encoder:
  if config.data.tokenizer is None:
    raise ValueError(
      'init.weights is empty: give weights to begin with'
      ' (--config.init.weights=WEIGHTS), or, to begin without pre-training, the'
      ' vocabulary to read with (--config.data.tokenizer=PATH)'
    )
  tokenizer = tokenization.load(config.data.tokenizer)
  return Encoder(config, _build(config, tokenizer), tokenizer, None)


def _build(config: ml_collections.ConfigDict, tokenizer: Any) -> nn.Module:
  return assemble.build_model(config, Vocabulary.of(tokenizer).size)


def _free_fields(
  config: ml_collections.ConfigDict, module: nn.Module
) -> dict[str, Any]:
  fields = model_fields(config.model)
  return {key: fields[key] for key in FREE_KEYS if hasattr(module, key)}


def with_model(
  config: ml_collections.ConfigDict, sizes: dict[str, Any]
) -> ml_collections.ConfigDict:
  """Returns a copy of a config whose model has these sizes."""
  copy = config.copy_and_resolve_references()
  with copy.unlocked(), copy.ignore_type():
    copy.model.update(sizes)
  return copy


def _check(found: Encoder, task: Task) -> None:
  length, most = found.config.task.max_length, found.module.max_length
  if not 8 <= length <= most:
    raise ValueError(
      f'task.max_length={length}: expected 8 to {most}, the positions of the'
      ' model'
    )
  if not isinstance(found.module, bert.Bert):
    if task.kind == 'span':
      raise ValueError(
        f'task.name={task.name!r}: spans are found by a BERT, and these weights'
        f' are of a {found.config.model.name}'
      )
  elif found.config.task.lm_weight:
    raise ValueError(
      f'task.lm_weight={found.config.task.lm_weight}: only a GPT has a language'
      " model's loss beside the task's"
    )
  layers = found.config.init.num_layers
  if layers is not None and not hasattr(found.module, 'scan_layers'):
    raise ValueError(
      f'init.num_layers={layers}: layers are taken over from a BERT or a GPT,'
      f' and these weights are of a {found.config.model.name}'
    )
  if layers is not None and not 0 <= layers <= found.module.num_layers:
    raise ValueError(
      f'init.num_layers={layers}: expected 0 to {found.module.num_layers}'
    )


def build_model(found: Encoder, task: Task) -> transfer.TaskModel:
  """Returns the module of a task."""
  settings_ = found.config.task
  return transfer.TaskModel(
    encoder=found.module,
    head=HEAD_OF_KIND[task.kind],
    num_outputs=num_outputs(task, settings_),
    dropout_rate=found.config.model.dropout_rate,
    both_orders=task.symmetric
    and task_data.form_of(found.config.model.name) == 'gpt',
    features=settings_.features,
    frozen=settings_.frozen,
    bilstm_layers=settings_.bilstm_layers,
    bilstm_dim=settings_.bilstm_dim,
    lm=bool(settings_.lm_weight),
  )


def num_outputs(task: Task, task_config: Any) -> int:
  """Returns K of the head's last layer."""
  if task.kind in ('classification', 'tagging'):
    return len(task.labels)
  if task.kind == 'regression':
    return task_config.soft_classes or 1
  return 2 if task.kind == 'span' else 1
