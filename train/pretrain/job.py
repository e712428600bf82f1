"""Pre-training on raw text: a config becomes a job for the training loop."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath

from data.examples import pipeline
from data.examples.pipeline import Examples
from data.store import corpus
from models.layers import Params
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.engine import evaluate, objectives, sharding, state, steps
from train.host import processes
from train.host.console import say
from train.host.files import Json
from train.pretrain import assemble, plan, run_stores
from train.run import (
  checkpoint,
  curves,
  metrics,
  tracing,
  training,
  training_phases,
  workdirs,
)
from train.run.job import Job, Program, Stage, StayAlive
from train.run.training_phases import Phase

if TYPE_CHECKING:
  from models.pretrained.weights import Weights


def check_config(
  config: ml_collections.ConfigDict, *, dry_run: bool = False
) -> None:
  """Checks all of a config that needs neither text nor devices."""
  families.check_config(config)
  if dry_run:
    run_stores.check_downloaded(config)


def make(
  config: ml_collections.ConfigDict, workdir: epath.PathLike
) -> Job | None:
  """Plans a run of a checked config: opens its text, builds model and steps.

  Returns None for a finished run, and prints its results.
  """
  workdir = epath.Path(workdir)

  # ---- Weights, and devices ------------------------------------------------
  results = workdirs.read_results(workdir)
  saved = checkpoint.latest_step(workdir)
  done = saved if saved is not None else (results or {}).get('steps')
  beginning = None
  if done is None and config.init.weights is not None:
    from train.params import warm_start  # with all that opens weights

    beginning = warm_start.open_beginning(config)
  kind = families.objective_of(config)
  kind.check_beside(config)
  if processes.is_alone():  # of several, only process 0 needs the text
    run_stores.check_source(config)
  mesh = training.find_devices(config)
  asked = training_phases.check_phases(config)
  plan.check_batches(config, asked, mesh)

  # ---- Text ---------------------------------------------------------------
  store = run_stores.open_store(config)
  stores = run_stores.open_stages(config, asked, store)
  plan.check_dialogues(config, stores.values())
  if beginning is not None:
    warm_start.check_vocabulary(beginning, config, store.tokenizer)
  examples, held_out = (
    {
      phase.kind: kind.open_examples(
        config,
        stores[phase.unit],
        phase.length,
        held_out=h,
        **(
          {'units': True}
          if training_phases.has_units(config, phase.kind)
          else {}
        ),
      )
      for phase in asked
    }
    for h in (False, True)
  )
  num_windows = {length: e.num_windows for (length, _), e in examples.items()}
  phases = training_phases.resolve_phases(config, num_windows)
  plan.check_data(examples, phases)
  total_steps = sum(phase.steps for phase in phases)
  tracing.check_profile(config.train.profile, total_steps)
  if done is not None:
    from train.pretrain import continuation  # a new run needs no such check

    continuation.check_continuation(
      config, workdir, stores, phases, num_windows, done
    )
  if results is not None and results['steps'] == total_steps:
    say(f'{workdir} holds a finished run of this config.')
    curves.print_results(results, workdir)
    return None

  # ---- Model, objective, optimiser ----------------------------------------
  counts = kind.token_counts(store)
  vocabulary = Vocabulary.of(store.tokenizer, counts)
  parts = assemble.build_parts(config, phases, vocabulary, mesh)
  return PreTraining(parts, stores, examples, held_out, counts, beginning)


class PreTraining(Job):
  """A pre-training whose text is open and whose model is planned."""

  def __init__(
    self,
    parts: assemble.Parts,
    stores: Mapping[str, corpus.Store],
    examples: Mapping[tuple[int, str], Examples],
    held_out: Mapping[tuple[int, str], Examples],
    counts: np.ndarray,
    beginning: 'Weights | None',
  ):
    """Makes the jitted steps; none is compiled.

    Args:
      parts: model, objectives, optimiser.
      stores: unit of masks -> the store with such masks; '' -> the store of
        the run.
      examples: kind of phase -> examples to train on.
      held_out: kind of phase -> examples to score.
      counts: how often each token is a target, int [V].
      beginning: the weights of `init.weights`; None: parameters are drawn.
    """
    config, phases = parts.config, parts.phases
    self.config, self.mesh, self.shapes = config, parts.mesh, parts.shapes
    self.total_steps = sum(phase.steps for phase in phases)
    self.save_every = config.train.checkpoint_every
    self.score_every = config.train.eval_every
    self.keep_checkpoints = config.train.keep_checkpoints
    self.profile = config.train.profile
    self.usual_mfu = parts.architecture.usual_mfu
    self._parts, self._stores = parts, stores
    self._examples, self._held_out = examples, held_out
    self._beginning = beginning
    self._flops = {phase: parts.step_flops(phase) for phase in phases}
    rows_of = functools.partial(sharding.local_rows, parts.mesh)
    self._local_rows = functools.cache(rows_of)
    unigram = jnp.asarray(evaluate.unigram_log_probs(counts))
    baseline = functools.partial(objectives.unigram_losses, unigram)
    self.steps = {f'train {p.name}': parts.train_step(*p.kind) for p in phases}
    self.steps |= {
      f'score {p.name}': steps.make_eval_step(
        parts.model,
        parts.objective_of[p.kind],
        baseline=baseline,
        mesh=parts.mesh,
      )
      for p in phases
    }

  def _phase_at(self, step: int) -> Phase:
    return training_phases.phase_at(self._parts.phases, step)

  def stage(self, step: int) -> Stage:
    """Returns the step of the phase after `step` steps."""
    phase = self._phase_at(step)
    objective = self._parts.objective_of[phase.kind]
    return Stage(f'train {phase.name}', self._parts.model, objective)

  def batch(self, step: int, whole: bool) -> pipeline.Batch:
    """Returns the host batch after `step` steps, whole or our own rows."""
    phase, seed = self._phase_at(step), self.config.train.seed
    rows = pipeline.ALL_ROWS if whole else self._local_rows(phase.global_batch)
    examples = {phase.length: self._examples[phase.kind]}
    return pipeline.train_batch(examples, self._parts.phases, seed, step, rows)

  def work(
    self, step: int, batch: Mapping[str, jax.Array]
  ) -> tuple[int, float]:
    """Returns tokens and model FLOPs of the step after `step` steps."""
    del batch
    phase = self._phase_at(step)
    return phase.global_batch * phase.length, self._flops[phase]

  def arguments(self, scores: Sequence[float]) -> tuple:
    """Returns the parameters of another model that the objective reads."""
    del scores
    return self._parts.objective.beside(self.mesh)

  def programs(self, done: int) -> Iterator[Program]:
    """Returns the steps of the phases that remain."""
    left = training_phases.phases_after(self._parts.phases, done)
    return plan.programs(self._parts, left)

  def create(self) -> state.TrainState:
    """Returns the state at step 0, with the weights to begin with if any."""
    created = self._parts.create_state()
    if self._beginning is None:
      return created
    from train.params import warm_start

    model, tokenizer = self._parts.model, self._stores[''].tokenizer
    params = warm_start.load(self._beginning, model, tokenizer, created.params)
    # Each process read the weights itself.
    processes.check_same(lambda: state.checksums(params))
    return created.replace(params=params)

  def restore(
    self, checkpoints: checkpoint.Checkpoints
  ) -> tuple[int, state.TrainState]:
    """Returns (steps done, state) of the newest sound checkpoint."""
    return self._parts.restore(checkpoints)

  def facts(self) -> dict[str, Json]:
    """Returns the digests of the text."""
    return {'the stores': run_stores.describe(self._stores)}

  def write(self, workdir: epath.Path) -> None:
    """Writes the vocabulary and the description of the text."""
    shares = plan.language_shares(self._examples, self._parts.phases)
    plan.write_workdir(workdir, self._stores, shares)
    if self._beginning is not None:
      from train.params import opened

      opened.write_pool(workdir, self._beginning)

  def score(
    self,
    compiled: Mapping[str, Callable],
    params: Params,
    step: int,
    stay_alive: StayAlive,
  ) -> dict[str, float]:
    """Returns losses and accuracies on held-out text, of each language."""
    phase, wanted = self._phase_at(step - 1), self.config.eval
    size = wanted.global_batch
    names = self._stores[phase.unit].languages
    most = max(1, wanted.max_windows // len(names))
    languages = {
      name: pipeline.eval_batches(
        self._held_out[phase.kind],
        size,
        most,
        wanted.draws,
        self._local_rows(size),
        language,
      )
      for language, name in enumerate(names)
    }
    return evaluate.evaluate(
      compiled[f'score {phase.name}'],
      params,
      languages,
      self._parts.empty_carry(size),
      self.mesh,
      self._parts.objective,
      stay_alive,
    )

  def finish(
    self,
    compiled: Mapping[str, Callable],
    params: Params,
    workdir: epath.Path,
    is_scored: bool,
    stay_alive: StayAlive,
  ) -> dict[str, Json]:
    """Shows samples, writes the family's files; returns the last figures."""
    del compiled, is_scored, stay_alive
    architecture, store = self._parts.architecture, self._stores['']
    length = self._parts.phases[-1].length
    architecture.print_samples(self._parts.model, params, store, length)
    architecture.write_outputs(self.config, params, store, workdir)
    figures = {
      name: value
      for step, name, value in metrics.read_metrics(workdir)
      if step == self.total_steps and not name.startswith('time/')
    }
    return {'metrics': figures, 'store': run_stores.describe(self._stores)}

  def print_plan(self, workdir: epath.Path, in_detail: bool) -> None:
    """Prints the run's sizes."""
    store = self._stores['']
    plan.print_plan(self._parts, workdir, store, self._examples, in_detail)

  def score_line(self, step: int, row: Mapping[str, float]) -> str:
    """Returns the metrics of a score as one line."""
    return curves.evaluation_line(step, row)

  def print_results(
    self, results: workdirs.Results, workdir: epath.Path
  ) -> None:
    """Prints the end of a run."""
    curves.print_results(results, workdir)
