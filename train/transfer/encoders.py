"""The model of a task: an encoder with a head, and the encoder's weights."""

import dataclasses
import json
from typing import Any

import ml_collections
from etils import epath
from flax import linen as nn

from data.inputs import framing
from data.inputs.features import Form
from data.tasks.examples import Task
from data.vocabulary import tokenization
from models import features, task_model
from models.pretrained import gpt as published_gpt
from models.pretrained.weights import Weights
from train.architectures import families
from train.architectures.architecture import (
  Architecture,
  Vocabulary,
  model_fields,
)
from train.params import opened, warm_start
from train.run import settings
from train.transfer.kinds import KINDS

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


@dataclasses.dataclass(frozen=True)
class Encoder:
  """A language model below the head of a task.

  Attributes:
    config: with the sizes of the model in its section `model`.
    module: the model, with those of its own heads that the task reads.
    tokenizer: of its vocabulary; None for an ELMo, which reads any word.
    weights: initial weights; None: drawn at random, or restored.
  """

  config: ml_collections.ConfigDict
  module: nn.Module
  tokenizer: Any
  weights: Weights | None

  @property
  def labels_last_piece(self) -> bool:
    """Whether a word's tag is at its last piece, not at its first.

    Of a left-to-right model only the last piece has seen the whole word; a BERT
    reads the first piece (Devlin et al. 2018, section 5.3).
    """
    return getattr(self.module, 'pool_last', self.form.left_to_right)

  @property
  def family(self) -> Architecture:
    """The row of the model in the table of families."""
    return families.architecture_of(self.config)

  @property
  def form(self) -> Form:
    """The form of the rows that the model reads."""
    return framing.FORMS[self.family.form]


def open_encoder(
  config: ml_collections.ConfigDict, task: Task, workdir: epath.Path | None
) -> Encoder:
  """Returns the encoder of a task's config, without reading arrays.

  A run that continues in `workdir` needs no other weights.

  Raises:
    FileNotFoundError: if the weights are missing.
    ValueError: if they cannot be used for the task.
  """
  if workdir is not None:
    found = _reopen(config, workdir)
  elif config.init.weights is not None:
    found = _open(config)
  else:
    found = _draw(config)
  _check(found, task)
  reads_pooler = (
    KINDS[task.kind].head == 'classifier'
    and config.task.features == 'last'
    and not config.task.bilstm_layers
  )
  module = found.family.below_head(found.module, reads_pooler)
  if workdir is None and hasattr(module, 'pool_last'):
    # Workdirs of older versions read [CLS], and still do.
    module = module.clone(pool_last=module.left_to_right)
  return dataclasses.replace(found, module=module)


def _open(config: ml_collections.ConfigDict) -> Encoder:
  weights = opened.open_weights(config.init.weights, config.data.tokenizer)
  weights.check(warm_start.TOKENIZER_OPTION)
  tokenizer, size = weights.tokenizer, 0
  if families.ARCHITECTURES[weights.name].reads_words:
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
  config = _with_model(config, {'name': weights.name} | sizes)
  fields = model_fields(config.model)
  free = {key: fields[key] for key in FREE_KEYS if hasattr(weights.model, key)}
  module = weights.model.clone(vocab_size=size, **free)
  return Encoder(config, module, tokenizer, weights)


def _reopen(config: ml_collections.ConfigDict, workdir: epath.Path) -> Encoder:
  config = with_sizes_of(config, workdir)
  imported = json.loads((workdir / opened.IMPORTED_FILE).read_bytes())
  tokenizer = tokenization.load(workdir) if imported['tokenizer'] else None
  module = _build(config, tokenizer).clone(**imported['fields'])
  return Encoder(config, module, tokenizer, None)


def with_sizes_of(
  config: ml_collections.ConfigDict, workdir: epath.Path
) -> ml_collections.ConfigDict:
  """Returns a copy of a config with the model's sizes of a run to continue.

  Raises:
    ValueError: if the run is no fine-tuning.
  """
  saved = settings.read_workdir_config(workdir)
  if saved is None or 'task' not in saved:
    raise ValueError(
      f'{workdir} holds a run that is no fine-tuning: pass another --workdir'
    )
  return _with_model(
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


def _with_model(
  config: ml_collections.ConfigDict, sizes: dict[str, Any]
) -> ml_collections.ConfigDict:
  copy = config.copy_and_resolve_references()
  with copy.unlocked(), copy.ignore_type():
    copy.model.update(sizes)
  return copy


def _check(found: Encoder, task: Task) -> None:
  """Refuses settings that do not fit the encoder.

  Raises:
    ValueError: naming the key, its value and the expected values.
  """
  config, module, kind = found.config, found.module, KINDS[task.kind]
  settings_, name = config.task, config.model.name
  reads_words = found.family.reads_words
  most = getattr(module, 'max_length', settings_.max_length)
  layers = config.init.num_layers
  notes = {} if found.weights is None else found.weights.notes

  def ensure(fits: bool, key: str, message: str) -> None:
    if not fits:
      section, _, field = key.partition('.')
      raise ValueError(f'{key}={config[section][field]!r}: {message}')

  ensure(
    8 <= settings_.max_length <= most,
    'task.max_length',
    f'expected 8 to {most}, the positions of the model',
  )
  ensure(
    not kind.of_bert or found.family.finds_spans,
    'task.name',
    f'only a BERT finds spans, and these weights are of a {name}',
  )
  ensure(
    settings_.frozen or not reads_words,
    'task.frozen',
    'ELMo must be frozen: set task.frozen=True, as recipe=frozen does',
  )
  ensure(
    not reads_words or kind.head != 'classifier' or settings_.bilstm_layers,
    'task.bilstm_layers',
    "an ELMo's vectors are of words; to classify a whole text it needs a BiLSTM"
    ' of 1 layer or more',
  )
  ensure(
    settings_.features not in features.LAST_4 or module.num_layers >= 4,
    'task.features',
    f'the encoder has {module.num_layers} layers; mix averages all of them',
  )
  ensure(
    not settings_.lm_weight or found.form.left_to_right,
    'task.lm_weight',
    "only a GPT adds a language model's loss to the task's",
  )
  ensure(
    not settings_.lm_weight or published_gpt.NO_SOFTMAX not in notes,
    'task.lm_weight',
    str(notes.get(published_gpt.NO_SOFTMAX)),
  )
  ensure(
    layers is None or hasattr(module, 'scan_layers'),
    'init.num_layers',
    f'only a BERT or a GPT inherits some layers, these weights are of a {name}',
  )
  ensure(
    layers is None or 0 <= layers <= module.num_layers,
    'init.num_layers',
    f'expected 0 to {module.num_layers}',
  )


def build_model(found: Encoder, task: Task) -> task_model.TaskModel:
  """Returns the module of a task."""
  settings_ = found.config.task
  return task_model.TaskModel(
    backbone=found.module,
    head=KINDS[task.kind].head,
    num_outputs=KINDS[task.kind].num_outputs(task, settings_),
    dropout_rate=found.config.model.dropout_rate,
    both_orders=task.symmetric and found.form.left_to_right,
    features=settings_.features,
    frozen=settings_.frozen,
    bilstm_layers=settings_.bilstm_layers,
    bilstm_dim=settings_.bilstm_dim,
    lm=bool(settings_.lm_weight),
    lm_positions=_lm_positions(found),
  )


def _lm_positions(found: Encoder) -> int:
  """Returns the number of positions in the softmax beside the tokens.

  A GPT scores all positions of an input; the release's table is cut to the
  longest input of the set (openai/finetune-transformer-lm, train.py). GPT-2's
  positions are a separate table, and the LSTM has none.
  """
  module, settings_ = found.module, found.config.task
  if not settings_.lm_weight or getattr(module, 'pre_norm', True):
    return 0
  return min(settings_.max_length, module.max_length)
