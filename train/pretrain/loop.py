"""Pre-training, from a config to a finished workdir."""

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from etils import epath

from data.examples import pipeline
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.engine import evaluate, memory, objectives, sharding, state, steps
from train.host import console, device, huge_pages, processes
from train.host.console import say
from train.params import warm_start
from train.pretrain import assemble, plan
from train.run import (
  checkpoint,
  curves,
  failure,
  ledger,
  metrics,
  settings,
  tracing,
  training_phases,
  workdirs,
)


def train(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  *,
  dry_run: bool = False,
  began: float | None = None,
) -> dict[str, Any] | None:
  """Runs, or continues, what `config` describes.

  Args:
    config: a locked config, see configs/base.py.
    workdir: folder that ends up with everything of the run; if it holds a run
      of the same config, that run continues after its last checkpoint.
    dry_run: check everything, print the plan and stop.
    began: Unix time that the run's time is counted from; now by default.

  Returns:
    The results, as in results.json; None after a dry run.

  Raises:
    ValueError, OSError: bad input, before device time is spent.
    FloatingPointError: the loss, a gradient or a parameter stopped being
      finite.
    processes.Preempted: asked to end early; what was done is saved.
  """
  clock = ledger.Ledger(began)
  workdir = epath.Path(workdir)

  # ---- Devices ------------------------------------------------------------
  processes.check_same(
    {'the code': device.revision()} | settings.flatten(config)
  )
  device.check_platform(config.train.platform)
  if config.train.deterministic:
    device.check_deterministic()
  mesh = sharding.make_mesh(config.mesh)
  architecture = families.check(config, mesh)
  results = workdirs.read_results(workdir)
  saved = checkpoint.latest_step(workdir)
  done = saved if saved is not None else (results or {}).get('steps')
  beginning = None
  if done is None and config.init.weights is not None:
    beginning = warm_start.check(config)

  # ---- Data ---------------------------------------------------------------
  store = plan.open_store(config)
  if beginning is not None:
    warm_start.check_vocabulary(beginning, config, store.tokenizer)
  examples = {
    length: architecture.open_examples(store, length, held_out=False)
    for length in {
      phase.length for phase in training_phases.check_phases(config)
    }
  }
  num_windows = {length: e.num_windows for length, e in examples.items()}
  phases = training_phases.resolve_phases(config, num_windows)
  held_out = {
    length: architecture.open_examples(store, length, held_out=True)
    for length in examples
  }
  plan.check_data(examples, phases)
  total_steps = sum(phase.steps for phase in phases)
  tracing.check(config.train.profile, total_steps)
  rows_of = {
    size: sharding.local_rows(mesh, size)
    for size in {phase.global_batch for phase in phases}
  }

  def batch_at(step: int) -> pipeline.Batch:
    rows = rows_of[training_phases.phase_at(phases, step).global_batch]
    return pipeline.train_batch(examples, phases, config.train.seed, step, rows)

  # ---- Model, objective, optimiser ----------------------------------------
  job = assemble.build_job(config, phases, Vocabulary.of(store.tokenizer), mesh)
  model, objective_of = job.model, job.objective_of
  peak = device.peak_tflops(config.train.peak_tflops)
  flops = {phase: job.step_flops(phase) for phase in phases}
  train_steps = {length: job.train_step(length) for length in examples}
  unigram = evaluate.unigram_log_probs(architecture.token_counts(store))
  baseline = functools.partial(objectives.unigram_losses, jnp.asarray(unigram))
  eval_steps = {
    length: steps.make_eval_step(
      model, objective_of[length], baseline=baseline, mesh=mesh
    )
    for length in examples
  }

  def memory_needed() -> memory.Plan:
    left = training_phases.phases_after(phases, saved or 0)
    with sharding.scope(mesh, config.mesh.rules), clock.measure('compile'):
      return plan.memory_of(job, left, train_steps, eval_steps)

  plan.print_plan(job, workdir, store, examples)
  if dry_run:
    plan.print_parameters(job)
    needed = memory_needed()
    memory.print_plan(needed)
    memory.check(needed)
    return None

  # ---- State: created, or restored ----------------------------------------
  if done is not None:
    plan.check_continuation(config, workdir, store, phases, num_windows, done)
  if results is not None and results['steps'] == total_steps:
    say(f'{workdir} holds a finished run of this config.')
    curves.print_results(results, workdir)
    return results
  needed = memory_needed()
  memory.check(needed)
  with contextlib.ExitStack() as stack:
    if processes.is_first():
      stack.enter_context(workdirs.sole_writer(workdir))
      plan.write_workdir(config, workdir, store)
    workdirs.check_shared(workdir)
    processes.check_same({'the store': store.meta['digest'], 'steps': done})
    stack.enter_context(sharding.scope(mesh, config.mesh.rules))
    checkpoints = stack.enter_context(
      checkpoint.Checkpoints(workdir, keep=config.train.keep_checkpoints)
    )
    if saved is not None:
      with clock.measure('restore'):
        saved, train_state = job.restore(checkpoints)
        jax.block_until_ready(train_state)
      say(f'Continuing after step {saved} of {checkpoints.folder}.')
    else:
      train_state = job.create_state()
      if beginning is not None:
        params = warm_start.load(
          beginning, model, store.tokenizer, train_state.params
        )
        # Each process read them itself.
        processes.check_same(state.checksums(params))
        train_state = train_state.replace(params=params)
    first_step = saved or 0
    stack.enter_context(
      clock.recording(
        workdir, first_step, total_steps, active=processes.is_first()
      )
    )
    seconds_before = metrics.last_value(workdir, 'time/seconds', first_step)
    writer = metrics.MetricsWriter(
      workdir, step=first_step, active=processes.is_first()
    )
    stack.callback(writer.close)
    scored = processes.of_first(metrics.is_scored(workdir, first_step))

    # ---- Compiled steps ---------------------------------------------------
    watchdog = failure.Watchdog(config.train.hang_minutes)
    heap = huge_pages.Heap(needed.slack)
    train_steps = {
      length: clock.compiled(step, watchdog.compiling, heap.bound)
      for length, step in train_steps.items()
    }
    eval_steps = {
      length: clock.compiled(step, watchdog.compiling, heap.bound)
      for length, step in eval_steps.items()
    }

    # ---- Evaluation -------------------------------------------------------
    preemption = stack.enter_context(processes.Preemption())
    stack.enter_context(watchdog)
    step = first_step  # done

    def stay_alive() -> None:
      watchdog.feed()
      heap.bound()
      if preemption.is_due():
        raise processes.Preempted(step)

    def score_held_out(params: Any) -> None:
      length = training_phases.phase_at(phases, step - 1).length
      size = config.eval.global_batch
      batches = pipeline.eval_batches(
        held_out[length],
        size,
        config.eval.max_windows,
        config.eval.draws,
        sharding.local_rows(mesh, size),
      )
      with clock.measure('eval'):
        row = evaluate.evaluate(
          eval_steps[length],
          params,
          batches,
          job.empty_carry(size),
          mesh,
          job.objective,
          stay_alive,
        )
      writer.write(step, row, whole=True)
      say(curves.evaluation_line(step, row))
      clock.write()

    def is_score_due() -> bool:
      return step == total_steps or step % config.train.eval_every == 0

    clock.begin_training(seconds_before)
    # The run ended when this step was saved, and not yet scored.
    if first_step and is_score_due() and not scored:
      score_held_out(train_state.params)

    # ---- Training ---------------------------------------------------------
    open_batches = {
      'tf': pipeline.tf_batches,
      'plain': pipeline.plain_batches,
    }[config.data.loader]
    report = None

    def latest_report() -> Any:
      return report

    with (
      open_batches(batch_at, first_step, total_steps) as batches,
      console.ProgressBar(first_step, total_steps) as bar,
    ):
      for step in tracing.steps(
        range(first_step + 1, total_steps + 1),
        config.train.profile,
        workdir,
        latest_report,
        clock,
      ):
        phase = training_phases.phase_at(phases, step - 1)
        with clock.measure('data'):
          host_batch = next(batches)
        batch = sharding.put_batch(host_batch, mesh)
        before = report
        train_state, report = train_steps[phase.length](train_state, batch)
        # One step is dispatched ahead, not more: the bar tells the truth, and
        # host batches do not pile up.
        jax.block_until_ready(before)
        clock.count(step, phase.global_batch * phase.length, flops[phase])
        bar.update(step)
        watchdog.feed()
        heap.bound()
        if step == first_step + 1:
          jax.block_until_ready(report)
          say(f'First step after {clock.elapsed():.1f} s.')
          clock.write()

        last = step == total_steps
        log = last or step % config.train.log_every == 0
        preempted = preemption.is_due()
        save = last or preempted or step % config.train.checkpoint_every == 0
        score = is_score_due()
        if log or save or score:
          host = jax.device_get(report)
          if host['nonfinite_step'] >= 0:
            bad_step = int(host['nonfinite_step'])
            bad_phase = training_phases.phase_at(phases, bad_step)
            with watchdog.compiling():
              failure.stop_nonfinite(
                bad_step,
                train_state,
                steps.make_gradient_norms(
                  model, objective_of[bad_phase.length], seed=config.train.seed
                ),
                pipeline.train_batch(
                  examples, phases, config.train.seed, bad_step
                ),
                rows_of[bad_phase.global_batch],
                workdir,
                checkpoints,
                mesh,
              )
        if log:
          row = metrics.training_row(host, job.objective.loss_names)
          row |= clock.row(peak, jax.device_count())
          with clock.measure('other'):
            writer.write(step, row)
          bar.update(step, console.figures(row))
        if save or score:
          failure.check_finite(train_state.params, step, checkpoints)
        if log or save or score:
          clock.write()  # before the save: see ledger.with_losses
        if save:
          with clock.measure('save'):
            checkpoints.save(step, train_state)
        if score and not preempted:  # else the same command begins with it
          try:
            score_held_out(train_state.params)
          except processes.Preempted:
            preempted = True
            if not save:
              with clock.measure('save'):
                checkpoints.save(step, train_state)
        if preempted:
          with clock.measure('save'):
            checkpoints.finish()
          raise processes.Preempted(step)
      clock.switch('other')

    # ---- Results ----------------------------------------------------------
    watchdog.feed()
    with clock.measure('save'):
      checkpoints.finish()
    processes.wait_for_all('all is written')
    watchdog.feed()
    figures = {
      name: value
      for step, name, value in metrics.read_metrics(workdir)
      if step == total_steps and not name.startswith('time/')
    }
    results = {
      'metrics': figures,
      'state_sha256': state.digest(train_state.params),
      'optimizer_sha256': state.digest(train_state.opt_state),
      'steps': total_steps,
      'seconds': metrics.last_value(workdir, 'time/seconds', total_steps),
      'seed': config.train.seed,
      'device': device.describe(),
      'revision': device.revision(),
      'config': settings.flatten(config),
      'store': plan.describe_store(store),
    }
    with watchdog.compiling():
      architecture.print_samples(
        model, train_state.params, store, phases[-1].length
      )
    if processes.is_first():
      curves.draw_curves(workdir)
      workdirs.write_results(workdir, results)
      clock.write()
    curves.print_results(results, workdir)
    return results
