"""The table of model families."""

import ml_collections
from flax import linen as nn

from data.by_name import ByName
from train.architectures.architecture import Architecture, TextObjective
from train.run import settings

# Name -> (where its `Architecture` is, what its weights are used for): 'embed',
# 'score' (tokens), 'generate', 'fill_masks', 'tasks' (to be fine-tuned); and
# files of other programs, 'onnx' and 'sentence-transformers'.
FAMILIES = {
  'bert': (
    'train.architectures.bert:ARCHITECTURE',
    ('embed', 'fill_masks', 'tasks', 'onnx', 'sentence-transformers'),
  ),
  'gpt': (
    'train.architectures.gpt:GPT',
    ('embed', 'score', 'generate', 'tasks', 'onnx'),
  ),
  'gpt2': (
    'train.architectures.gpt:GPT2',
    ('embed', 'score', 'generate', 'tasks', 'onnx'),
  ),
  'lstm': ('train.architectures.gpt:LSTM', ('score', 'tasks')),
  'nnlm': ('train.architectures.nnlm:ARCHITECTURE', ('score',)),
  'elmo': ('train.architectures.elmo:ARCHITECTURE', ('tasks',)),
  'word2vec': ('train.architectures.word2vec:ARCHITECTURE', ()),
  'glove': ('train.architectures.glove:ARCHITECTURE', ()),
}
# Name -> `Architecture`, loaded when it is looked up.
ARCHITECTURES = ByName({name: place for name, (place, _) in FAMILIES.items()})


def is_for(name: str, use: str) -> bool:
  """Returns whether a family has a use in `FAMILIES`."""
  return name in FAMILIES and use in FAMILIES[name][1]


def names_for(use: str) -> tuple[str, ...]:
  """Returns the families with a use in `FAMILIES`."""
  return tuple(name for name in FAMILIES if is_for(name, use))


def architecture_of(config: ml_collections.ConfigDict) -> Architecture:
  """Returns the family of `model.name`; ValueError if unknown."""
  name = config.model.name
  if name not in ARCHITECTURES:
    raise ValueError(
      f'model.name={name!r}: expected one of {", ".join(ARCHITECTURES)}'
    )
  return ARCHITECTURES[name]


def check_reads_tasks(name: str, weights: str | None = None) -> None:
  """Checks that a family, perhaps of `init.weights`, can be fine-tuned.

  An unknown name passes: `architecture_of` refuses it.
  """
  if name in FAMILIES and not is_for(name, 'tasks'):
    found, cure = f'model.name={name}', ''
    if weights is not None:
      found = f'init.weights={weights}'
      if ARCHITECTURES[name].whole_words:  # it writes its vectors
        cure = f', or task.word_vectors={weights}/vectors.txt of a task model'
    raise ValueError(
      f'{found}: a model of the kind {name} has no layers for the head of a'
      f' task: expected {", ".join(names_for("tasks"))}{cure}'
    )


def objective_of(config: ml_collections.ConfigDict) -> type[TextObjective]:
  """Returns the class of a checked config's `train.objective`."""
  architecture = architecture_of(config)
  table = architecture.packed if is_packed(config) else architecture.objectives
  return table[config.train.objective]


def is_packed(config: ml_collections.ConfigDict) -> bool:
  """Returns whether rows are packed with whole texts."""
  return 'packed' in config.data and config.data.packed is not None


def build_model(
  config: ml_collections.ConfigDict, vocab_size: int
) -> nn.Module:
  """Returns the module that a run trains, of a fine-tuning without a head."""
  model = architecture_of(config).build_model(config.model, vocab_size)
  return model if 'task' in config else objective_of(config).with_heads(model)


def check_config(config: ml_collections.ConfigDict) -> Architecture:
  """Checks a config of pre-training; returns its architecture."""
  architecture = architecture_of(config)
  needed = settings.flatten(architecture.default_config())
  if missing := sorted(needed.keys() - settings.flatten(config)):
    raise ValueError(
      f'model.name={config.model.name!r} needs the keys'
      f' {", ".join(missing)}, which this config lacks: start from a config of'
      ' such a model'
    )
  settings.check_pretraining(config)
  objective = config.train.objective
  if objective not in architecture.objectives:
    raise ValueError(
      f'train.objective={objective!r}: model.name={config.model.name!r} is'
      f' trained with {" or ".join(map(repr, architecture.objectives))}'
    )
  if is_packed(config) and objective not in architecture.packed:
    raise ValueError(
      f'data.packed={config.data.packed!r}: train.objective={objective!r}'
      ' learns from pairs of texts in one row, expected'
      f' {" or ".join(map(repr, architecture.packed))}, or data.packed=None'
    )
  architecture.check(config)
  return architecture
