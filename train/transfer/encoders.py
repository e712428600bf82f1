"""The model of a task: an encoder, the head on it, and where both begin."""

import dataclasses
import json
from typing import Any

import ml_collections
from etils import epath
from flax import linen as nn

from data.tasks.examples import Task
from data.vocabulary import tokenization
from models import bert, elmo, features, gpt, task_model
from models.pretrained import gpt as published_gpt
from train.architectures import families
from train.architectures.architecture import Vocabulary, model_fields
from train.params import opened, warm_start
from train.params.opened import Opened
from train.run import settings
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
    tokenizer: of its vocabulary; None of an ELMo, which reads any word.
    weights: that it begins with; None: drawn, or restored.
  """

  config: ml_collections.ConfigDict
  module: nn.Module
  tokenizer: Any
  weights: Opened | None

  @property
  def labels_last_piece(self) -> bool:
    """Whether a word's tag is at its last piece, which alone has seen it all.

    So it is of a model that sees no later token; of a BERT it is the first
    piece (Devlin et al. 2018, section 5.3).
    """
    if isinstance(self.module, bert.Bert):
      return self.module.pool_last
    return task_data.form_of(self.config.model.name) == 'gpt'


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
  module = found.module.clone(heads=heads)
  if workdir is None:
    # In an older workdir it was [CLS] that was read, and stays so there.
    module = module.clone(pool_last=module.left_to_right)
  return dataclasses.replace(found, module=module)


def _open(config: ml_collections.ConfigDict) -> Encoder:
  weights = opened.open_weights(config.init.weights, config.data.tokenizer)
  weights.check(warm_start.TOKENIZER_OPTION)
  tokenizer, size = weights.tokenizer, 0
  if isinstance(weights.model, elmo.Elmo):
    if weights.model.num_words:
      raise ValueError(
        f'init.weights={config.init.weights} holds an ELMo with a table of'
        f' {weights.model.num_words:,} words: tasks are read by one of'
        ' characters'
      )
    tokenizer = None  # and no softmax
  else:
    # A GPT's published table lacks the symbols that tasks are framed with.
    size = Vocabulary.of(tokenizer).size
  sizes = warm_start.module_settings(weights.name, weights.model)
  config = with_model(config, {'name': weights.name} | sizes)
  module = weights.model.clone(
    vocab_size=size, **_free_fields(config, weights.model)
  )
  return Encoder(config, module, tokenizer, weights)


def _reopen(config: ml_collections.ConfigDict, workdir: epath.Path) -> Encoder:
  config = with_sizes_of(config, workdir)
  imported = json.loads((workdir / opened.IMPORTED_FILE).read_bytes())
  tokenizer = tokenization.load(workdir) if imported['tokenizer'] else None
  fields = imported['fields']
  return Encoder(
    config, _build(config, tokenizer).clone(**fields), tokenizer, None
  )


def with_sizes_of(
  config: ml_collections.ConfigDict, workdir: epath.Path
) -> ml_collections.ConfigDict:
  """Returns a copy of a config with the model's sizes of a run that goes on.

  Raises:
    ValueError: if it is of no task.
  """
  saved = settings.read_workdir_config(workdir)
  if saved is None or 'task' not in saved:
    raise ValueError(
      f'{workdir} holds a run that is no fine-tuning: pass another --workdir'
    )
  return with_model(
    config,
    {key: value for key, value in saved.model.items() if key not in FREE_KEYS},
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
  size = 0 if tokenizer is None else Vocabulary.of(tokenizer).size
  return families.build_model(config, size)


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
  settings_ = found.config.task
  length = settings_.max_length
  most = getattr(found.module, 'max_length', length)
  if not 8 <= length <= most:
    raise ValueError(
      f'task.max_length={length}: expected 8 to {most}, the positions of the'
      ' model'
    )
  if task.kind == 'span' and not isinstance(found.module, bert.Bert):
    raise ValueError(
      f'task.name={task.name!r}: spans are found by a BERT, and these weights'
      f' are of a {found.config.model.name}'
    )
  if isinstance(found.module, elmo.Elmo):
    _check_elmo(settings_, task)
  if settings_.features in features.LAST_4 and found.module.num_layers < 4:
    raise ValueError(
      f'task.features={settings_.features!r}: the encoder has'
      f' {found.module.num_layers} layers; mix averages all that there are'
    )
  if settings_.lm_weight and isinstance(found.module, bert.Bert | elmo.Elmo):
    raise ValueError(
      f"task.lm_weight={settings_.lm_weight}: only a GPT has a language model's"
      " loss beside the task's"
    )
  notes = {} if found.weights is None else found.weights.notes
  if settings_.lm_weight and published_gpt.NO_SOFTMAX in notes:
    raise ValueError(
      f'task.lm_weight={settings_.lm_weight}: {notes[published_gpt.NO_SOFTMAX]}'
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


def _check_elmo(settings_: ml_collections.ConfigDict, task: Task) -> None:
  if not settings_.frozen:
    raise ValueError(
      'task.frozen=False: an ELMo is read as it is, with task.frozen=True, as'
      ' recipe=frozen has it'
    )
  if HEAD_OF_KIND[task.kind] == 'classifier' and not settings_.bilstm_layers:
    raise ValueError(
      "task.bilstm_layers=0: an ELMo's vectors are of words; what is said of a"
      ' whole text needs a BiLSTM on them, of 1 layer or more'
    )


def build_model(found: Encoder, task: Task) -> task_model.TaskModel:
  """Returns the module of a task."""
  settings_ = found.config.task
  return task_model.TaskModel(
    backbone=found.module,
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
    lm_positions=_lm_positions(found),
  )


def _lm_positions(found: Encoder) -> int:
  """Returns how many positions stand in the softmax beside the tokens.

  All that an input may have, of a GPT; the table of the release is cut to the
  longest input of the set (openai/finetune-transformer-lm, train.py). GPT-2's
  positions are a table apart, and the LSTM has none.
  """
  module, settings_ = found.module, found.config.task
  if not settings_.lm_weight or not isinstance(module, gpt.Gpt):
    return 0
  return 0 if module.pre_norm else min(settings_.max_length, module.max_length)


def num_outputs(task: Task, task_config: Any) -> int:
  """Returns K of the head's last layer."""
  if task.kind in ('classification', 'tagging'):
    return len(task.labels)
  if task.kind == 'regression':
    return task_config.soft_classes or 1
  return 2 if task.kind == 'span' else 1
