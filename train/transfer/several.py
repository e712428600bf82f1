"""Several tasks trained together: one state, and one task a step.

Each step's task is drawn in proportion to the tasks' training sets (Wang et
al. 2018, section 4); a classifier gets no gradient in the steps of other tasks.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models.layers import Params
from train.engine.steps import Batch, Objective, Outputs, Sums
from train.transfer.program import TaskProgram

# Told apart from a run's other streams of random numbers.
_STREAM = 8
# The mean over the tasks of their main metrics, which chooses the best model.
MEAN = 'eval/mean'
# In a workdir: a folder for each task, with its task.json and predictions.
FOLDER = 'tasks'


@dataclasses.dataclass(frozen=True)
class SharedModels:
  """Modules that share the parameters of equal names.

  It takes the place of one module when parameters are drawn.
  """

  models: tuple[nn.Module, ...]

  @property
  def dtype(self) -> jax.typing.DTypeLike:
    """The type of the activations."""
    return self.models[0].dtype

  def init(
    self, rng: jax.Array, *inputs: tuple, **arguments: bool
  ) -> dict[str, Params]:
    """Returns all modules' variables; `inputs` has a tuple for each module."""
    params: dict = {}
    for model, own in zip(self.models, inputs, strict=True):
      _add(params, model.init(rng, *own, **arguments)['params'])
    return {'params': params}


def _add(params: dict, others: Params) -> None:
  """Adds parameters at paths that are not there yet."""
  for name, part in others.items():
    if isinstance(part, Mapping):
      _add(params.setdefault(name, {}), part)
    else:
      params.setdefault(name, part)


class Turns:
  """The task of each step, as a function of the seed."""

  def __init__(self, sizes: Sequence[int], total_steps: int, seed: int) -> None:
    """Draws tasks in proportion to the `sizes` of their training sets."""
    shares = np.array(sizes) / sum(sizes)
    rng = np.random.default_rng((seed, _STREAM))
    self._tasks = rng.choice(len(sizes), total_steps, p=shares)
    self.totals = np.bincount(self._tasks, minlength=len(sizes))
    is_of = self._tasks[:, None] == np.arange(len(sizes))
    self._before = np.cumsum(is_of, axis=0) - is_of

  def at(self, step: int) -> tuple[int, int]:
    """Returns the number of a step's task, and of its step of this task."""
    task = int(self._tasks[step])
    return task, int(self._before[step, task])


class OneOfSeveral(Objective):
  """The objective of one task among several.

  A state adds up the same losses and metrics in each step, so each is named
  after its task, and the losses and metrics of the other tasks are 0.
  """

  def __init__(
    self, objective: Objective, own: str, all_names: Sequence[tuple[str, bool]]
  ):
    """`all_names`: (name, whether it has an accuracy) of all tasks.

    `own` is the name of the task of `objective`.
    """
    self._one, self._own = objective, own
    self._tasks = tuple(name for name, _ in all_names)
    self._shared = tuple(n for n in objective.loss_names if n != 'task')
    self._accuracies = {n: f'{n}_accuracy' for n, has in all_names if has}
    self.loss_names = (*self._tasks, *self._shared)
    self.metric_names = tuple(self._accuracies.values())
    self.method = objective.method
    self.transform, self.inputs = objective.transform, objective.inputs
    self.targets = objective.targets

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the losses and accuracies of all tasks, by their names."""
    found, metrics = self._one.losses(outputs, batch)
    nothing = (jnp.float32(0), jnp.float32(0))
    sums = dict.fromkeys(self._tasks, nothing) | {self._own: found['task']}
    sums |= {name: found[name] for name in self._shared}
    named = dict.fromkeys(self._accuracies.values(), nothing)
    if 'accuracy' in metrics:
      named[self._accuracies[self._own]] = metrics['accuracy']
    return sums, named

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns each loss's divisor; other tasks' losses have 1."""
    totals = self._one.weights(batch)
    sums = dict.fromkeys(self._tasks, jnp.float32(1))
    sums |= {self._own: totals['task']}
    return sums | {name: totals[name] for name in self._shared}


def objectives_of(programs: Sequence[TaskProgram]) -> tuple[Objective, ...]:
  """Returns an objective for each program; all share the sums of one state."""
  names = [
    (each.task.name, 'accuracy' in each.metric_names) for each in programs
  ]
  return tuple(OneOfSeveral(each, each.task.name, names) for each in programs)
