"""Fine-tuning on a task: a config becomes a job for the training loop."""

import copy
import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
from etils import epath
from flax import linen as nn
from jax.sharding import Mesh

from data.examples import pipeline
from data.tasks import registry
from models import layers
from models.layers import Params
from train.engine import optim, sharding, state, steps
from train.host import processes
from train.host.console import say
from train.host.files import Json
from train.run import checkpoint, metrics, training, workdirs
from train.run.job import Job, Keep, Program, Stage, StayAlive
from train.run.training_phases import Phase
from train.transfer import (
  assemble,
  bodies,
  several,
  task_data,
  task_outputs,
  task_plan,
)
from train.transfer.program import TaskProgram


def check_config(
  config: ml_collections.ConfigDict, *, dry_run: bool = False
) -> None:
  """Checks all of a config that needs neither data, weights nor devices."""
  task_plan.check_settings(config)
  for name in task_data.task_names(config) or (config.task.name,):
    if name != 'own':
      task_data.with_languages(config, registry.find(name))
  if dry_run:
    from train.transfer import downloads  # for a dry run alone

    downloads.check_downloaded(config)


def make(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  *,
  shared: 'FineTuning | None' = None,
) -> Job | None:
  """Plans a run of a checked config: opens sets and weights, builds steps.

  `shared` is the plan of the same config with another seed, whose compiled
  steps are reused. Returns None for a finished run, and prints its results.
  """
  workdir = epath.Path(workdir)

  # ---- Workdir and devices -------------------------------------------------
  results = workdirs.read_results(workdir)
  saved = checkpoint.latest_step(workdir)
  if results is None and saved is None and shared is None:
    assemble.check_fits(config)
    source = config.data.source
    if not source.startswith(('tfds', 'hf:')):  # sets that are no folders
      folder = epath.Path(source).expanduser()
      if not folder.exists():
        raise FileNotFoundError(
          f'data.source={folder}: there is no such folder'
        )
  mesh = training.find_devices(config) if shared is None else shared.mesh
  task_plan.check_batches(config, mesh)

  if results is not None:
    sized = bodies.program_of(config).with_sizes_of(config, workdir)
    task_plan.check_continuation(config, workdir, sized)
    say(f'{workdir} holds a finished run of this config.')
    of_several = shared is not None
    task_plan.print_results(results, workdir, of_several=of_several)
    return None

  # ---- Sets, model, objective, optimiser ------------------------------------
  job = shared or plan(config, mesh, workdir=None if saved is None else workdir)
  if saved is not None:
    task_plan.check_continuation(config, workdir, job.config)
  return job.of_run(config, workdir, of_several=shared is not None)


def plan(
  config: ml_collections.ConfigDict,
  mesh: Mesh,
  *,
  workdir: epath.Path | None = None,
  splits: tuple[str, ...] | None = None,
) -> 'FineTuning':
  """Plans the runs of a config, of all seeds; see `assemble.open_programs`."""
  return FineTuning(
    assemble.open_programs(config, workdir=workdir, splits=splits), mesh
  )


class FineTuning(Job):
  """A fine-tuning, on one task or on several in turns.

  Several seeds share one; `of_run` returns a copy for a seed and a workdir.

  Attributes:
    tasks: the program of each task.
    objectives: the objective of each task's steps: its program or, with several
      tasks, a `several.OneOfSeveral` whose state all tasks share.
    draw: rng -> the state at step 0 without the initial weights, jitted.
  """

  def __init__(self, tasks: Sequence[TaskProgram], mesh: Mesh):
    """Builds the state and the steps of programs whose splits are read."""
    first = tasks[0]
    config = self.config = first.config
    self.tasks, self.mesh = tuple(tasks), mesh
    self.usual_mfu = first.usual_mfu
    for program in tasks:
      program.prepare(mesh)
    self.total_steps, self.score_every = assemble.count_steps(
      config, [program.splits['train'] for program in tasks]
    )
    self.save_every = config.train.checkpoint_every or self.score_every
    length, rows = config.task.max_length, config.train.global_batch
    schedule = assemble.make_schedule(
      config, Phase(self.total_steps, length, rows, 'continue')
    )
    inputs = [
      assemble.input_shapes(program, self.total_steps) for program in tasks
    ]
    model, self.objectives = first.model, self.tasks
    if self._is_alone:
      (inputs,) = inputs
    else:
      model = several.SharedModels(tuple(each.model for each in tasks))
      self.objectives = several.objectives_of(tasks)
    abstract = state.abstract_params(model, tuple(inputs))
    tx = optim.make_optimizer(
      config.optim, schedule, sharding.axis_names(abstract), first.vocab_size
    )
    moving = first.trainable(nn.unbox(abstract))
    if not all(jax.tree.leaves(moving)):
      tx = optax.masked(tx, moving)
    objective = self.objectives[0]
    init, self.shapes, shardings, placements = state.abstract_state(
      model,
      tuple(inputs),
      tx,
      objective.loss_names + objective.metric_names,
      mesh,
      config.mesh.rules,
      adjust=functools.partial(
        assemble.clear, paths=first.replaced(nn.unbox(abstract))
      ),
      encoder=first.layered,
    )
    self.draw = jax.jit(init, out_shardings=shardings)
    self.steps = {
      self._named('train', program): steps.make_train_step(
        program.model,
        objective,
        tx,
        schedule,
        seed=0,
        micro_batches=config.train.micro_batches,
        log_every=config.train.log_every,
        mesh=mesh,
        state_shardings=shardings,
        placements=placements,
      )
      for program, objective in zip(tasks, self.objectives, strict=True)
    }
    self.steps |= {
      self._named('predict', program): program.predict_step for program in tasks
    }

  def of_run(
    self,
    config: ml_collections.ConfigDict,
    workdir: epath.Path,
    *,
    of_several: bool,
  ) -> 'FineTuning':
    """Returns the fine-tuning of the seed of a config, in its workdir.

    `of_several` says whether it is one of several runs, whose ends are short.
    """
    job = copy.copy(self)
    job._begin_run(config, workdir, of_several)
    return job

  def _begin_run(
    self,
    config: ml_collections.ConfigDict,
    workdir: epath.Path,
    of_several: bool,
  ) -> None:
    """Sets the fields of one run."""
    self.config = task_plan.with_run_keys(self.config, config)
    train = self.config.train
    self._workdir, self._of_several = workdir, of_several
    self._seed = train.seed
    sizes = [len(program.splits['train'].features) for program in self.tasks]
    self._turns = several.Turns(sizes, self.total_steps, self._seed)
    self._rows = sharding.local_rows(self.mesh, train.global_batch)
    self._main = [f'eval/{p.task.name}/{p.task.metrics[0]}' for p in self.tasks]
    self.keep = Keep(
      self._main[0] if self._is_alone else several.MEAN,
      best=train.select == 'best',
      patience=train.patience,
      plateau=train.plateau,
    )
    # Of the last score: task -> split -> logits.
    self._last_logits: dict[str, dict[str, list[np.ndarray]]] = {}
    self._largest, self.num_later = [], 0
    for program, own_steps in zip(self.tasks, self._turns.totals, strict=True):
      if not own_steps:
        raise ValueError(
          f'{program.task.name}: none of the {self.total_steps:,} steps is of'
          ' this task: train longer, or leave it out'
        )
      found, more = task_plan.largest_steps(
        program,
        self.shapes,
        self._seed,
        int(own_steps),
        self.arguments(()),
        functools.partial(self._named, program=program),
      )
      self._largest += found
      self.num_later += more

  @property
  def _is_alone(self) -> bool:
    return len(self.tasks) == 1

  def _named(self, step: str, program: TaskProgram) -> str:
    return step if self._is_alone else f'{step} {program.task.name}'

  def stage(self, step: int) -> Stage:
    """Returns the step of the task whose turn it is after `step` steps."""
    number, _ = self._turns.at(step)
    program = self.tasks[number]
    return Stage(
      self._named('train', program), program.model, self.objectives[number]
    )

  def batch(self, step: int, whole: bool) -> pipeline.Batch:
    """Returns the host batch after `step` steps, whole or our own rows."""
    number, turn = self._turns.at(step)
    batches = self.tasks[number].splits['train'].batches
    return batches.train_batch(
      turn,
      pipeline.ALL_ROWS if whole else self._rows,
      self.config.train.global_batch,
      self._seed,
      int(self._turns.totals[number]),
    )

  def arguments(self, scores: Sequence[float]) -> tuple:
    """Returns the seed and, where scores lower it, the factor of the rate."""
    if self.keep.plateau is None:
      return (jnp.int32(self._seed),)
    return jnp.int32(self._seed), jnp.float32(self.keep.rate(scores))

  def work(
    self, step: int, batch: Mapping[str, jax.Array]
  ) -> tuple[int, float]:
    """Returns tokens and model FLOPs of the step after `step` steps."""
    program = self.tasks[self._turns.at(step)[0]]
    return batch['token_mask'].size, program.step_flops(batch)

  def programs(self, done: int) -> Iterable[Program]:
    """Returns the steps on the longest rows."""
    del done
    return self._largest

  def create(self) -> state.TrainState:
    """Returns the state at step 0, with the initial weights."""
    created = self.begin(self._seed)
    if self.tasks[0].is_begun:  # read by each process
      processes.check_same(lambda: state.checksums(created.params))
    return created

  def begin(self, seed: int) -> state.TrainState:
    """Returns the state at step 0 of a seed, with the initial weights."""
    rng = jax.random.fold_in(jax.random.key(seed), state.INIT_STREAM)
    begun = self.draw(rng)
    return begun.begin_with(self.tasks[0].load_weights(begun.params, seed))

  @property
  def num_parameters(self) -> int:
    """The model's number of parameters, the vocabulary unpadded."""
    return layers.num_parameters(self.shapes.params, self.tasks[0].vocab_size)

  def facts(self) -> dict[str, Json]:
    """Returns the tasks' settings and the digests of their sets."""
    return {
      name: value
      for program in self.tasks
      for name, value in task_plan.facts(program).items()
    }

  def write(self, workdir: epath.Path) -> None:
    """Writes the vocabulary, and what the weights need beside it."""
    self.tasks[0].write(workdir)

  def _with_compiled(
    self, compiled: Mapping[str, Callable], program: TaskProgram
  ) -> TaskProgram:
    program = copy.copy(program)
    program.predict_step = compiled[self._named('predict', program)]
    return program

  def score(
    self,
    compiled: Mapping[str, Callable],
    params: Params,
    step: int,
    stay_alive: StayAlive,
  ) -> dict[str, float]:
    """Returns each task's metrics on dev and, of several, their mean."""
    del step
    row = {}
    for program in self.tasks:
      name = program.task.name
      found, self._last_logits[name] = task_outputs.score_dev(
        self._with_compiled(compiled, program), params, stay_alive
      )
      row |= {f'eval/{name}/{key}': value for key, value in found.items()}
    if not self._is_alone:
      row[several.MEAN] = statistics.fmean(row[name] for name in self._main)
    return row

  def finish(
    self,
    compiled: Mapping[str, Callable],
    params: Params,
    workdir: epath.Path,
    is_scored: bool,
    stay_alive: StayAlive,
  ) -> dict[str, Json]:
    """Scores all splits, and writes answers and predictions."""
    figures, intervals, constant = {}, {}, {}
    for program in self.tasks:
      name = program.task.name
      constant |= task_outputs.constant_scores(program)
      folder = self._workdir
      if not self._is_alone:
        folder = folder / several.FOLDER / name
      known = self._last_logits.get(name, {}) if is_scored else {}
      found, bounds = task_outputs.score_all(
        self._with_compiled(compiled, program),
        params,
        folder,
        known,
        stay_alive,
      )
      figures |= found | task_outputs.oracles(
        program,
        lambda metric: processes.of_first(
          metrics.history(workdir, metric, self.total_steps)
        ),
      )
      intervals |= bounds
    if not self._is_alone:
      mean = statistics.fmean(figures[name] for name in self._main)
      figures = {several.MEAN: mean} | figures
    sizes = [len(program.splits['train'].examples) for program in self.tasks]
    return {
      'main_metric': self.keep.metric,
      'metrics': figures,
      'intervals': intervals,
      'constant': constant,
      'train_size': sum(sizes),
    }

  def print_plan(self, workdir: epath.Path, in_detail: bool) -> None:
    """Prints the run's sizes, always in detail."""
    del in_detail
    epochs = task_plan.epochs(self.tasks, self.total_steps)
    training_steps = (
      f'{self.total_steps:,} steps of {epochs},'
      f' dev every {self.score_every:,} steps'
    )
    task_plan.print_plan(
      self.tasks, workdir, self.num_parameters, training_steps
    )

  def score_line(self, step: int, row: Mapping[str, float]) -> str:
    """Returns the metrics of a score as one line."""
    return task_plan.evaluation_line(step, row)

  def print_results(
    self, results: workdirs.Results, workdir: epath.Path
  ) -> None:
    """Prints the end of a run."""
    task_plan.print_results(results, workdir, of_several=self._of_several)
