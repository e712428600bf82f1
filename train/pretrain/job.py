"""Pre-training on raw text: a config becomes a job for the training loop."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import ml_collections
from etils import epath

from data.examples import pipeline
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.engine import evaluate, objectives, sharding, state, steps
from train.host import processes
from train.host.console import say
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
from train.run.job import Job, Program, StayAlive


def check(config: ml_collections.ConfigDict, *, dry_run: bool = False) -> None:
  """Checks all of a config that needs neither text nor devices."""
  families.check(config)
  if dry_run:
    run_stores.check_downloaded(config)


def make(
  config: ml_collections.ConfigDict, workdir: epath.PathLike
) -> Job | None:
  """Plans a run of a checked config: opens its text, builds model and steps.

  Returns None for a finished run, and prints its results.
  """
  workdir = epath.Path(workdir)
  seed = config.train.seed

  # ---- Weights, and devices ------------------------------------------------
  architecture = families.architecture_of(config)
  results = workdirs.read_results(workdir)
  saved = checkpoint.latest_step(workdir)
  done = saved if saved is not None else (results or {}).get('steps')
  beginning = None
  if done is None and config.init.weights is not None:
    from train.params import warm_start  # with all that opens weights

    beginning = warm_start.check(config)
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
      phase.kind: architecture.open_examples(
        stores[phase.unit],
        phase.length,
        held_out=h,
        **architecture.example_options(config),
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
  num_windows = {kind[0]: e.num_windows for kind, e in examples.items()}
  phases = training_phases.resolve_phases(config, num_windows)
  plan.check_data(examples, phases)
  total_steps = sum(phase.steps for phase in phases)
  tracing.check(config.train.profile, total_steps)
  if done is not None:
    plan.check_continuation(config, workdir, stores, phases, num_windows, done)
  if results is not None and results['steps'] == total_steps:
    say(f'{workdir} holds a finished run of this config.')
    curves.print_results(results, workdir)
    return None

  # ---- Model, objective, optimiser ----------------------------------------
  counts = architecture.token_counts(store)
  parts = assemble.build_parts(
    config, phases, Vocabulary.of(store.tokenizer, counts), mesh
  )
  model = parts.model
  unigram = evaluate.unigram_log_probs(counts)
  baseline = functools.partial(objectives.unigram_losses, jnp.asarray(unigram))
  flops = {phase: parts.step_flops(phase) for phase in phases}
  local_rows = functools.cache(functools.partial(sharding.local_rows, mesh))
  phase_at = functools.partial(training_phases.phase_at, phases)

  def batch(step: int, whole: bool) -> pipeline.Batch:
    phase = phase_at(step)
    rows = pipeline.ALL_ROWS if whole else local_rows(phase.global_batch)
    return pipeline.train_batch(
      {phase.length: examples[phase.kind]}, phases, seed, step, rows
    )

  def programs(done: int) -> Iterator[Program]:
    left = training_phases.phases_after(phases, done)
    return plan.programs(parts, left)

  def create() -> state.TrainState:
    created = parts.create_state()
    if beginning is None:
      return created
    params = warm_start.load(beginning, model, store.tokenizer, created.params)
    # Each process read the weights itself.
    processes.check_same(lambda: state.checksums(params))
    return created.replace(params=params)

  def score(
    compiled: Mapping[str, Any], params: Any, step: int, stay_alive: StayAlive
  ) -> dict[str, float]:
    phase = phase_at(step - 1)
    size = config.eval.global_batch
    names = stores[phase.unit].languages
    most = max(1, config.eval.max_windows // len(names))
    languages = {
      name: pipeline.eval_batches(
        held_out[phase.kind],
        size,
        most,
        config.eval.draws,
        local_rows(size),
        language,
      )
      for language, name in enumerate(names)
    }
    return evaluate.evaluate(
      compiled[f'score {phase.name}'],
      params,
      languages,
      parts.empty_carry(size),
      mesh,
      parts.objective,
      stay_alive,
    )

  def finish(
    compiled: Mapping[str, Any],
    params: Any,
    workdir: epath.Path,
    is_scored: bool,
    stay_alive: StayAlive,
  ) -> dict[str, Any]:
    del compiled, is_scored, stay_alive
    architecture.print_samples(model, params, store, phases[-1].length)
    architecture.write_outputs(config, params, store, workdir)
    figures = {
      name: value
      for step, name, value in metrics.read_metrics(workdir)
      if step == total_steps and not name.startswith('time/')
    }
    return {'metrics': figures, 'store': run_stores.describe(stores)}

  return Job(
    config=config,
    mesh=mesh,
    model=lambda step: model,
    shapes=parts.shapes,
    steps={f'train {p.name}': parts.train_step(*p.kind) for p in phases}
    | {
      f'score {p.name}': steps.make_eval_step(
        model, parts.objective_of[p.kind], baseline=baseline, mesh=mesh
      )
      for p in phases
    },
    arguments=lambda scores: (),
    total_steps=total_steps,
    save_every=config.train.checkpoint_every,
    score_every=config.train.eval_every,
    keep_checkpoints=config.train.keep_checkpoints,
    profile=config.train.profile,
    keep=None,
    programs=programs,
    num_later=0,
    step_name=lambda step: f'train {phase_at(step).name}',
    objective=lambda step: parts.objective_of[phase_at(step).kind],
    batch=batch,
    work=lambda step, batch: (
      phase_at(step).global_batch * phase_at(step).length,
      flops[phase_at(step)],
    ),
    create=create,
    restore=parts.restore,
    facts=lambda: {'the stores': run_stores.describe(stores)},
    write=lambda workdir: plan.write_workdir(
      workdir, stores, plan.language_shares(examples, phases)
    ),
    print_plan=lambda workdir, in_detail: plan.print_plan(
      parts, workdir, store, examples, in_detail
    ),
    score=score,
    score_line=curves.evaluation_line,
    finish=finish,
    print_results=curves.print_results,
  )
