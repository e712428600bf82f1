r"""Fine-tuning on a task of the GPT and BERT papers, or on one's own.

Hardware: any.

  python -m train.main --config transfer:task=mrpc \
    --config.init.weights=google-bert/bert-base-uncased \
    --config.data.source=glue

task: a name of data/tasks/registry.py, or own (the section `own`); for
bilstm_attention also several, such as mrpc+rte+stsb, trained together. A task
names the values in which its paper differs from a recipe (`Task.recipe`).

model: the size, only for training from scratch, without init.weights; or one of
ELMo's task models, which read words (Peters et al. 2018): bcn (a text), esim (a
pair, or choices), bilstm_crf (tags), bilstm_attention (a text or a pair),
deep_srl (roles), e2e_coref (documents), bidaf_plus and bidaf (questions):

  python -m train.main --config transfer:task=sst5,model=bcn \
    --config.data.source=sst5 --config.task.word_vectors=glove.txt \
    --config.init.weights=runs/elmo

There init.weights is a language model, of any family, whose layers are read
beside the words' vectors; without it there is none. Their recipes are those of
the programs that configs/variants.py names; they take no other.

recipe:
- corrected (default): as `bert`, but Adam with its bias correction, and a rate
  of 1e-4 where a task's paper names none, by which a MiniLM of width 384 learns
  (results/tables/sesame_transfer.md). Larger encoders may need a lower one.
- bert: as google-research/bert fine-tunes (Devlin et al. 2018, appendix A.3):
  Adam without bias correction, warm-up over 10 % of the steps, 3 epochs; SQuAD,
  SWAG as in the paper. The last step's model is kept.
- stable: with bias correction, and 20 epochs on sets of less than 10,000
  examples, so that large models do not collapse to one class (Mosbach et al.
  2020; Zhang et al. 2020). The best model on dev is kept, as in Mosbach et
  al.'s program (early_stopping in its configs of 20 epochs).
- gpt: as openai/finetune-transformer-lm, with the language model's loss. The
  best model on dev is kept.
- frozen: BERT's feature-based form (Devlin et al. 2018, section 5.4): a
  two-layer BiLSTM on the sum of the frozen encoder's last four layers. The best
  model on dev is kept, as for ELMo's task models (Peters et al. 2018).

Every epoch has a new permutation; a batch may span two epochs. Where the steps
leave out part of an epoch (`train.count`), less than a batch of random examples
is read once less (gpt: per epoch), and for questions in several windows as many
windows as exceed the questions.
"""

from typing import Any

import ml_collections

from configs import variants
from configs.sections import task as task_section
from data.tasks import registry

RECIPES = ('corrected', 'bert', 'stable', 'gpt', 'frozen')  # default first
SMALL = 10_000  # fewer training examples have more epochs


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config for 'task=NAME[,recipe=NAME][,model=NAME]'."""
  given = dict(part.partition('=')[::2] for part in arg.split(',') if part)
  unknown = given.keys() - {'task', 'recipe', 'model'}
  if unknown or '' in given.values():
    raise ValueError(
      f'transfer:{arg}: expected task=NAME, and perhaps recipe='
      f'{"|".join(RECIPES)} and model=NAME, set apart by commas'
    )
  recipe = given.get('recipe', RECIPES[0])
  if recipe not in RECIPES:
    raise ValueError(
      f'transfer:{arg}: recipe={recipe}, expected one of {", ".join(RECIPES)}'
    )
  name, model = given.get('task', 'sst2'), given.get('model')
  if model in variants.WORD_MODELS:
    if 'recipe' in given:
      raise ValueError(
        f'transfer:{arg}: model={model} has a recipe of its own, expected no'
        ' recipe'
      )
    return _read_words(name, model)
  if '+' in name:
    raise ValueError(
      f'transfer:{arg}: several tasks are trained together by'
      ' model=bilstm_attention alone'
    )
  config = task_section.get_config()
  config.task.name = name
  _set_model(config, model)
  if recipe == 'corrected':
    _corrected(config)
  _set_task(config, 'bert')
  if recipe in ('stable', 'gpt', 'frozen'):
    {'stable': _stable, 'gpt': _gpt, 'frozen': _frozen}[recipe](config)
    _set_task(config, recipe)
  return config.lock()


def _set_model(config: ml_collections.ConfigDict, model: str | None) -> None:
  if model is None:
    return
  kinds = {'bert': variants.BERT, 'gpt': variants.GPT, 'gpt2': variants.GPT2}
  for kind, sizes in kinds.items():
    if model in sizes:
      config.model.name = kind
      config.model.update(sizes[model])
      return
  tables = (*kinds.values(), variants.WORD_MODELS)
  raise ValueError(
    f'model={model}: expected one of'
    f' {", ".join(name for sizes in tables for name in sizes)}'
  )


def _read_words(name: str, model: str) -> ml_collections.ConfigDict:
  """Returns the config of one of ELMo's task models."""
  from configs.sections import task_models

  config = task_models.get_config()
  config.model.name = model
  config.task.name, *others = name.split('+')
  if others:
    config.task.names = (config.task.name, *others)
  config.update_from_flattened_dict(variants.WORD_MODELS[model])
  if not others:
    _set_task(config, 'words')
  return config.lock()


def _set_task(config: ml_collections.ConfigDict, recipe: str) -> None:
  """Sets the values in which a task's paper differs from a recipe."""
  task = _find_task(config)
  if task is not None:
    config.update_from_flattened_dict(task.recipe.get(recipe, {}))


def _find_task(config: ml_collections.ConfigDict) -> Any:
  """Returns a task's declaration; None: it is of the user's own, or unknown."""
  return registry.TASKS.get(config.task.name)


def _corrected(config: ml_collections.ConfigDict) -> None:
  config.optim.name = 'adamw'
  config.optim.learning_rate = 1e-4  # as configs/tables/sesame_transfer.py


def _stable(config: ml_collections.ConfigDict) -> None:
  config.train.select = 'best'
  config.train.count = 'rows'  # as PyTorch's loaders, which these papers used
  config.optim.name = 'adamw'
  config.optim.learning_rate = 2e-5
  task = _find_task(config)
  if task is not None and task.sizes.get('train', SMALL) < SMALL:
    config.train.num_epochs = 20.0


def _gpt(config: ml_collections.ConfigDict) -> None:
  """Radford et al. 2018, section 4.1, and the release's train.py."""
  config.optim.name = 'gpt_adam'
  config.optim.schedule = 'gpt_linear'
  config.optim.learning_rate = 6.25e-5
  config.optim.warmup_fraction = 0.002
  config.optim.epsilon = 1e-8
  config.task.max_length = 512
  config.task.lm_weight = 0.5
  config.train.global_batch = 32
  config.train.num_epochs = 3.0
  config.train.count = 'gpt'
  config.train.select = 'best'


def _frozen(config: ml_collections.ConfigDict) -> None:
  config.task.frozen = True
  config.task.features = 'sum_last_4'
  config.task.bilstm_layers = 2
  config.optim.name = 'adamw'
  config.optim.learning_rate = 1e-3  # ours: the paper has none for it
  config.train.num_epochs = 10.0
  config.train.count = 'rows'  # ours: the release has no such program
  config.train.select = 'best'
