"""Makes the parts of a fine-tuning: programs, data, steps, learning rate."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import ml_collections
from etils import epath

from configs import base
from models.layers import Params
from models.pretrained import strict
from train.engine import optim
from train.run.training_phases import Phase
from train.transfer import bodies, task_data
from train.transfer.program import TaskProgram
from train.transfer.task_data import Split


def check_fits(config: ml_collections.ConfigDict) -> None:
  """Checks that a config fits its tasks and its weights; reads no array."""
  tasks = task_data.open_tasks(config)
  bodies.program_of(config).check_files(config, tasks)


def open_programs(
  config: ml_collections.ConfigDict,
  *,
  workdir: epath.Path | None = None,
  splits: tuple[str, ...] | None = None,
) -> list[TaskProgram]:
  """Opens the weights of a config and reads the data of its tasks.

  `workdir` is the folder of a run that continues. By default all existing
  `splits` are read.
  """
  tasks = task_data.open_tasks(config)
  programs = bodies.program_of(config).open(config, tasks, workdir)
  names = [
    splits or ('train', *task_data.eval_splits(config, task)) for task in tasks
  ]
  read = programs[0].open_sets(programs, names)
  for program, splits_of in zip(programs, read, strict=True):
    program.splits = splits_of
    if splits is None:
      task_data.check_labelled(program.task, splits_of)
  return programs


def input_shapes(program: TaskProgram, total_steps: int) -> tuple:
  """Returns the shapes of the model's inputs, of a batch of one row."""
  example = program.splits['train'].batches.train_batch(
    0, slice(0, 1), program.config.train.global_batch, 0, total_steps
  )
  shapes = {
    name: jax.ShapeDtypeStruct(array.shape, array.dtype)
    for name, array in example.items()
  }
  keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
  return jax.eval_shape(
    lambda batch, keys: program.inputs(program.transform(batch, keys)),
    shapes,
    keys,
  )


def clear(params: Params, paths: set[str]) -> Params:
  """Returns parameters with zeros at `paths`, which are then never drawn."""
  cleared: dict = {}
  for path, leaf in strict.flatten(params).items():
    if path in paths:
      leaf = jnp.zeros_like(leaf)
    strict.put(cleared, path.split('/'), leaf)
  return cleared


# As of a pre-training, where a key sets it.
DECAY_SHARE = base.schedule().decay_share
# `train.count` -> (examples, batch, epochs) -> (steps of an epoch, of a run).
COUNTS = {
  # google-research/bert, run_classifier.py and run_squad.py
  'bert': lambda n, batch, epochs: (-(-n // batch), int(n / batch * epochs)),
  # finetune-transformer-lm, train.py
  'gpt': lambda n, batch, epochs: (
    max(1, n // batch),
    int(n // batch * epochs),
  ),
  'rows': lambda n, batch, epochs: (
    -(-n // batch),
    -(-int(n * epochs) // batch),
  ),
}


def count_steps(
  config: ml_collections.ConfigDict, training_sets: Sequence[Split]
) -> tuple[int, int]:
  """Returns (steps of a run, steps between scores of dev)."""
  train = config.train
  of_rows = train.count == 'rows'
  size = sum(
    len(split.features if of_rows else split.examples)
    for split in training_sets
  )
  epoch, total = COUNTS[train.count](size, train.global_batch, train.num_epochs)
  total = max(1, total) if train.steps is None else train.steps
  return total, train.eval_every or min(epoch, total)


def make_schedule(
  config: ml_collections.ConfigDict, phase: Phase
) -> optim.Schedule:
  """Returns step -> learning rate, with a fraction of the steps as warm-up."""
  keys = dict(config.optim)
  warmup = keys.pop('warmup_fraction') * phase.steps
  if config.optim.schedule != 'gpt_linear':
    warmup = int(warmup)  # as released: google-research/bert, run_classifier.py
  keys |= {'warmup_steps': warmup, 'restarts': (), 'decay_share': DECAY_SHARE}
  return optim.make_schedule(ml_collections.ConfigDict(keys), [phase])
