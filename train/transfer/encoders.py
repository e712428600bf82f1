"""A language model below the head of a task, and its weights."""

import json
import math
from collections.abc import Mapping, Sequence

import ml_collections
import numpy as np
from etils import epath
from flax import linen as nn

from data.inputs import framing
from data.inputs.features import Form
from data.scoring.kinds import KINDS
from data.tasks.examples import Task
from data.vocabulary import tokenization
from data.vocabulary.tokenizer import Tokenizer
from models import features, task_model
from models.layers import Params
from models.pretrained import strict
from models.pretrained.weights import NO_SOFTMAX, Weights
from train.architectures import families
from train.architectures.architecture import Vocabulary, model_fields
from train.engine.optim import Mask
from train.host import files
from train.host.files import Json
from train.params import opened, warm_start
from train.run import settings, workdirs
from train.transfer import tag_paths, task_data, task_losses
from train.transfer.program import Found, TaskProgram
from train.transfer.task_data import Split
from train.transfer.task_losses import Batch

# Arrays of a batch that a model with an encoder reads, in order.
INPUTS = ('tokens', 'token_mask', 'token_types', 'positions', 'last')
# Of an ELMo, of paths of tags, and of a second reading.
SOME_INPUTS = ('characters', 'tag_mask', *task_losses.HIDDEN)


# `data.scoring.kinds.Kind.unit` -> one of `models.features.HEADS`. No head
# reads whole documents.
HEADS = {
  'text': 'classifier',
  'word': 'token_classifier',
  'part': 'span_classifier',
  'document': '',
}


class EncoderProgram(TaskProgram):
  """A language model below the head of a task.

  Attributes:
    module: the model; of its own heads, it has the ones that the task reads.
    tokenizer: the tokenizer of the model; None for an ELMo, which reads any
      word.
    initial: the initial weights; None if parameters are drawn or restored.
    family: the row of the model in the table of families.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    task: Task,
    module: nn.Module,
    tokenizer: Tokenizer,
    initial: Weights | None,
  ):
    """Takes what `open_encoder` finds; ValueError as `TaskProgram`."""
    super().__init__(config, task)
    self.module, self.tokenizer, self.initial = module, tokenizer, initial
    self.layered, self.vocab_size = module, module.vocab_size
    self.is_begun = initial is not None
    self.family = families.architecture_of(config)
    self.usual_mfu = self.family.usual_mfu
    if config.task.lm_weight and self.family.needs_mask:
      self.vocabulary = Vocabulary.of(tokenizer)

  @classmethod
  def check_keys(cls, config: ml_collections.ConfigDict) -> None:  # noqa: D102
    found, known = config.task.features, (*features.FEATURES, 'mix')
    settings.expect(
      config, found in known, 'task.features', f'one of {", ".join(known)}'
    )

  @classmethod
  def check_files(  # noqa: D102
    cls, config: ml_collections.ConfigDict, tasks: Sequence[Task]
  ) -> None:
    cls.open(config, tasks, None)

  @classmethod
  def with_sizes_of(  # noqa: D102
    cls, config: ml_collections.ConfigDict, workdir: epath.Path
  ) -> ml_collections.ConfigDict:
    return with_sizes_of(config, workdir)

  @classmethod
  def open(  # noqa: D102
    cls,
    config: ml_collections.ConfigDict,
    tasks: Sequence[Task],
    workdir: epath.Path | None,
  ) -> list['EncoderProgram']:
    (task,) = tasks
    return [open_encoder(config, task, workdir, cls)]

  @property
  def labels_last_piece(self) -> bool:
    """Whether a word's tag is at its last piece, not at its first.

    A left-to-right model sees the whole word at its last piece alone; a BERT
    reads the first piece (Devlin et al. 2018, section 5.3).
    """
    pool = 'last' if self.form.left_to_right else 'first'
    return getattr(self.module, 'pool', pool) == 'last'

  @property
  def form(self) -> Form:
    """The form of the rows that the model reads."""
    return framing.FORMS[self.family.form]

  @classmethod
  def open_sets(  # noqa: D102
    cls,
    programs: Sequence['EncoderProgram'],
    names: Sequence[Sequence[str]],
    found: Found = None,
  ) -> list[dict[str, Split]]:
    return [
      {
        name: task_data.open_split(
          program.config,
          program.task,
          name,
          program.tokenizer,
          (found or {}).get(name),
          form=program.family.form,
          at_last=program.labels_last_piece,
        )
        for name in names_of
      }
      for program, names_of in zip(programs, names, strict=True)
    ]

  def inputs(self, batch: Batch) -> tuple:  # noqa: D102
    return *(batch[name] for name in INPUTS), *map(batch.get, SOME_INPUTS)

  def build_model(self) -> task_model.TaskModel:  # noqa: D102
    settings_ = self.config.task
    return task_model.TaskModel(
      backbone=self.module,
      head=HEADS[self.kind.unit],
      num_outputs=self.num_outputs,
      dropout_rate=self.config.model.dropout_rate,
      both_orders=self.task.symmetric and self.form.left_to_right,
      features=settings_.features,
      frozen=settings_.frozen,
      bilstm_layers=settings_.bilstm_layers,
      bilstm_dim=settings_.bilstm_dim,
      lm=bool(settings_.lm_weight),
      lm_positions=_lm_positions(self.config, self.module),
      transitions=tag_paths.transitions(self.task, settings_),
      path_scores=tag_paths.path_scores(settings_) or 'learned',
    )

  def replaced(self, params: Params) -> set[str]:  # noqa: D102
    if self.initial is None:
      return set()
    labels = tag_paths.tag_labels(self.task, self.config.task)
    return warm_start.replaced(
      opened.inherited(self.initial, params, labels),
      self.module,
      self.tokenizer,
      strict.flatten(params),
      num_layers=self.config.init.num_layers,
    )

  def load_weights(self, params: Params, seed: int) -> Params:  # noqa: D102
    del seed
    if self.initial is None:
      return params
    labels = tag_paths.tag_labels(self.task, self.config.task)
    return warm_start.load(
      opened.inherited(self.initial, params, labels),
      self.module,
      self.tokenizer,
      params,
      num_layers=self.config.init.num_layers,
    )

  def trainable(self, params: Params) -> Mask:  # noqa: D102
    return task_model.trainable(params, self.config.task.frozen)

  def step_flops(self, batch: Mapping[str, np.ndarray]) -> int:
    """Returns the encoder's FLOPs in a step: 3 forward passes, 1 if frozen."""
    *rows, length = batch['tokens'].shape
    count = math.prod(rows) * (2 if self.vocabulary else 1)
    forward = self.family.encoder_flops(self.module, count, length)
    return forward if self.config.task.frozen else 3 * forward

  def describe(self) -> list[tuple[str, str]]:  # noqa: D102
    weights = self.config.init.weights
    frozen = ', frozen' if self.config.task.frozen else ''
    layers = self.config.init.layers
    taken = f', layers {layers}' if weights and layers else ''
    return [
      ('weights', f'{weights or "none: without pre-training"}{taken}{frozen}')
    ]

  def write(self, workdir: epath.Path) -> None:
    """Writes the tokenizer, and the facts about encoder and head."""
    labels = tag_paths.tag_labels(self.task, self.config.task)
    imported = {
      'kind': 'fine-tuning',
      'tokenizer': self.tokenizer and self.tokenizer.fingerprint,
      'fields': opened.fields_beside(self.module),
      'labels': {str(i): name for i, name in enumerate(labels)},
    }
    text = json.dumps(imported, indent=2) + '\n'
    files.write_atomically(workdir / opened.IMPORTED_FILE, text)
    if self.tokenizer is not None:
      self.tokenizer.save(workdir)

  def load(self, workdir: epath.Path) -> Params:  # noqa: D102
    weights = opened.open_weights(workdir)
    weights.check_complete()
    return weights.load(weights.on_one_device())

  def facts(self) -> dict[str, Json]:  # noqa: D102
    return {
      'reading in both orders': self.model.both_orders,
      'the vocabulary': self.tokenizer and self.tokenizer.fingerprint[:8],
      'the form of its inputs': self.family.form,
      'tagging of last pieces': self.labels_last_piece,
    }


def open_encoder(
  config: ml_collections.ConfigDict,
  task: Task,
  workdir: epath.Path | None,
  program: type[EncoderProgram] = EncoderProgram,
) -> EncoderProgram:
  """Returns the program of a task's config, without reading arrays.

  A run that continues in `workdir` needs no other weights. `program` is its
  class.

  Raises:
    FileNotFoundError: if the weights are missing.
    ValueError: if they cannot be used for the task.
  """
  initial = None
  if workdir is not None:
    config, module, tokenizer = _reopen(config, workdir)
  elif config.init.weights is not None:
    config, module, tokenizer, initial = _open(config)
  else:
    config, module, tokenizer = _draw(config)
  _check_encoder(config, module, initial, task)
  reads_pooler = (
    KINDS[task.kind].unit == 'text'
    and config.task.features == 'last'
    and not config.task.bilstm_layers
  )
  lm = bool(config.task.lm_weight)
  family = families.architecture_of(config)
  module = family.below_head(module, reads_pooler, lm)
  if workdir is None and getattr(module, 'left_to_right', False):
    # Workdirs of older versions read [CLS], and still do.
    module = module.clone(pool='last')
  return program(config, task, module, tokenizer, initial)


def _open(
  config: ml_collections.ConfigDict,
) -> tuple[ml_collections.ConfigDict, nn.Module, Tokenizer | None, Weights]:
  """Returns (config with sizes, module, tokenizer, `init.weights`)."""
  weights = opened.open_weights(config.init.weights, config.data.tokenizer)
  weights.check_complete(warm_start.TOKENIZER_OPTION)
  families.check_reads_tasks(weights.name, config.init.weights)
  if config.init.layers:
    from train.params import kept_layers

    weights = kept_layers.keep(weights, config)
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
  free = {
    key: fields[key]
    for key in warm_start.FREE_KEYS
    if hasattr(weights.model, key)
  }
  module = weights.model.clone(vocab_size=size, **free)
  return config, module, tokenizer, weights


def _reopen(
  config: ml_collections.ConfigDict, workdir: epath.Path
) -> tuple[ml_collections.ConfigDict, nn.Module, Tokenizer | None]:
  """Returns (config with sizes, module, tokenizer) of a run."""
  config = with_sizes_of(config, workdir)
  imported = files.read_json(workdir / opened.IMPORTED_FILE)
  tokenizer = opened.load_vocabulary(workdir, imported)
  module = _build(config, tokenizer).clone(**opened.fields_of(imported))
  return config, module, tokenizer


def with_sizes_of(
  config: ml_collections.ConfigDict, workdir: epath.Path
) -> ml_collections.ConfigDict:
  """Returns a copy of a config with the model's sizes of a run to continue.

  Raises ValueError if the run is no fine-tuning.
  """
  saved = workdirs.read_config(workdir)
  is_ours = saved is not None and saved.model.name in families.ARCHITECTURES
  if not is_ours or 'task' not in saved:
    raise ValueError(
      f'{workdir} holds a run that is no fine-tuning of a language model: pass'
      ' another --workdir'
    )
  return _with_model(
    config,
    {
      key: value
      for key, value in saved.model.items()
      if key not in warm_start.FREE_KEYS
    },
  )


def _draw(
  config: ml_collections.ConfigDict,
) -> tuple[ml_collections.ConfigDict, nn.Module, Tokenizer]:
  """Returns (config, module, tokenizer) without any weights."""
  if config.data.tokenizer is None:
    raise ValueError(
      'init.weights is empty: give weights to begin with'
      ' (--config.init.weights=WEIGHTS), or, to begin without pre-training, the'
      ' vocabulary to read with (--config.data.tokenizer=PATH)'
    )
  families.check_reads_tasks(config.model.name)
  tokenizer = tokenization.load(config.data.tokenizer)
  return config, _build(config, tokenizer), tokenizer


def _build(
  config: ml_collections.ConfigDict, tokenizer: Tokenizer
) -> nn.Module:
  size = 0 if tokenizer is None else Vocabulary.of(tokenizer).size
  return families.build_model(config, size)


def _with_model(
  config: ml_collections.ConfigDict, sizes: Mapping[str, settings.Value]
) -> ml_collections.ConfigDict:
  copy = config.copy_and_resolve_references()
  with copy.unlocked(), copy.ignore_type():
    copy.model.update(sizes)
  return copy


def _check_encoder(
  config: ml_collections.ConfigDict,
  module: nn.Module,
  initial: Weights | None,
  task: Task,
) -> None:
  """Refuses settings that do not fit the encoder.

  Raises:
    ValueError: naming the key, its value and the expected values.
  """
  family = families.architecture_of(config)
  form = framing.FORMS[family.form]
  unit = KINDS[task.kind].unit
  settings_, name = config.task, config.model.name
  reads_words = family.reads_words
  most = getattr(module, 'max_length', settings_.max_length)
  layers = config.init.num_layers
  notes = {} if initial is None else initial.notes

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
    bool(HEADS[unit]),
    'task.name',
    'expected model=e2e_coref, which reads whole documents; init.weights are'
    ' then the layers below it',
  )
  ensure(
    unit != 'part' or family.finds_spans,
    'task.name',
    f'only a BERT finds spans, and these weights are of a {name}',
  )
  ensure(
    task.name != 'own'
    or unit != 'word'
    or not (config.own.symmetric and form.left_to_right),
    'own.symmetric',
    f'expected False: the kind {task.kind} has no two texts to change places',
  )
  ensure(
    settings_.frozen or not reads_words,
    'task.frozen',
    'ELMo must be frozen: set task.frozen=True, as recipe=frozen does',
  )
  ensure(
    not reads_words or unit != 'text' or settings_.bilstm_layers,
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
    not settings_.lm_weight
    or form.left_to_right
    or (family.needs_mask and not module.left_to_right),
    'task.lm_weight',
    "only a GPT, or a BERT that reads both ways, adds a language model's loss",
  )
  ensure(
    not settings_.lm_weight or NO_SOFTMAX not in notes,
    'task.lm_weight',
    str(notes.get(NO_SOFTMAX)),
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


def _lm_positions(config: ml_collections.ConfigDict, module: nn.Module) -> int:
  """Returns the number of positions in the softmax beside the tokens.

  A GPT scores all positions of an input; the release's table is cut to the
  longest input of the set (openai/finetune-transformer-lm, train.py). GPT-2's
  positions are a separate table; the LSTM and rotary positions have none.
  """
  has_table = getattr(module, 'positions', 'rotary') == 'learned'
  is_pre = getattr(module, 'pre_norm', True)
  if not config.task.lm_weight or is_pre or not has_table:
    return 0
  return min(config.task.max_length, module.max_length)
