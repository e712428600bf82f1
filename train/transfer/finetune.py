"""Fine-tuning on a task, from a config to a finished workdir."""

import contextlib
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from etils import epath

from data.examples import pipeline
from train.engine import memory, sharding, state, steps
from train.host import console, device, huge_pages, processes
from train.host.console import say
from train.params import opened
from train.run import (
  checkpoint,
  curves,
  failure,
  ledger,
  metrics,
  settings,
  workdirs,
)
from train.transfer import encoders, task_job, task_outputs, task_plan
from train.transfer.task_job import TaskJob

# Of a workdir: the parameters to use.
MODEL_FOLDER = opened.TASK_MODEL_FOLDER


def train(
  config: ml_collections.ConfigDict,
  workdir: epath.PathLike,
  *,
  dry_run: bool = False,
  began: float | None = None,
  job: TaskJob | None = None,
) -> dict[str, Any] | None:
  """Runs, or continues, the fine-tuning that `config` describes.

  Args:
    config: a locked config of a task, see configs/base.py.
    workdir: folder that ends up with everything of the run; if it holds a run
      of the same config, that run continues after its last checkpoint.
    dry_run: check everything, print the plan and stop.
    began: Unix time that the run's time is counted from; now by default.
    job: of a run of the same config but for its seed, to share what is
      compiled.

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
  shared = job is not None

  # ---- Devices ------------------------------------------------------------
  processes.check_same(
    {'the code': device.revision()} | settings.flatten(config)
  )
  device.check_platform(config.train.platform)
  if config.train.deterministic:
    device.check_deterministic()
  mesh = sharding.make_mesh(config.mesh) if job is None else job.mesh
  task_plan.check(config, mesh.shape['data'] * mesh.shape['fsdp'])
  results = workdirs.read_results(workdir)
  if results is not None:
    sized = encoders.with_sizes_of(config, workdir)
    task_plan.check_continuation(config, workdir, sized)
    say(f'{workdir} holds a finished run of this config.')
    task_plan.print_results(results, workdir, of_several=shared)
    return None if dry_run else results
  saved = checkpoint.latest_step(workdir)

  # ---- Data, model, objective, optimiser ----------------------------------
  if job is None:
    there = None if saved is None else workdir
    job = task_job.plan(config, mesh, workdir=there)
  if saved is not None:
    task_plan.check_continuation(config, workdir, job.config)
  task_plan.print_plan(job, workdir)
  with sharding.scope(mesh, config.mesh.rules), clock.measure('compile'):
    needed = task_plan.memory_of(job, config.train.seed)
  if dry_run:
    memory.print_plan(needed)
  memory.check(needed)
  if dry_run:
    return None
  config = task_plan.with_run_keys(job.config, config)
  seed, total_steps = config.train.seed, job.total_steps
  rows = sharding.local_rows(mesh, config.train.global_batch)
  training = job.splits['train'].batches
  best_metric = f'eval/{job.task.name}/{job.task.metrics[0]}'

  def batch_at(step: int, of_batch: Any = rows) -> pipeline.Batch:
    return training.train_batch(
      step, of_batch, config.train.global_batch, seed, total_steps
    )

  # ---- State: created, or restored ----------------------------------------
  with contextlib.ExitStack() as stack:
    if processes.is_first():
      stack.enter_context(workdirs.sole_writer(workdir))
      task_plan.write_workdir(config, workdir, job)
    workdirs.check_shared(workdir)
    task_plan.check_same(job, saved)
    stack.enter_context(sharding.scope(mesh, config.mesh.rules))
    checkpoints = stack.enter_context(checkpoint.Checkpoints(workdir, keep=1))
    kept = stack.enter_context(
      checkpoint.Checkpoints(workdir / MODEL_FOLDER, keep=1)
    )
    if saved is not None:
      with clock.measure('restore'):
        saved, train_state = checkpoints.restore(job.shapes)
        jax.block_until_ready(train_state)
      say(f'Continuing after step {saved} of {checkpoints.folder}.')
    else:
      train_state = job.begin(seed)
      if job.encoder.weights is not None:  # each process read them itself
        processes.check_same(state.checksums(train_state.params))
    first_step = saved or 0
    task_plan.drop_later_models(kept, first_step)
    model_step = processes.of_first(kept.latest())
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
    scored = task_plan.History(
      processes.of_first(
        task_plan.History.read(workdir, best_metric, first_step).values
      )
    )
    is_scored = processes.of_first(metrics.is_scored(workdir, first_step))
    watchdog = stack.enter_context(failure.Watchdog(config.train.hang_minutes))
    heap = huge_pages.Heap(needed.slack)
    preemption = stack.enter_context(processes.Preemption())
    train_step = clock.compiled(job.train_step, watchdog.compiling, heap.bound)
    job = dataclasses.replace(
      job,
      predict_step=clock.compiled(
        job.predict_step, watchdog.compiling, heap.bound
      ),
    )
    dev = job.splits[task_job.DEV]
    peak = device.peak_tflops(config.train.peak_tflops)

    # ---- Evaluation -------------------------------------------------------
    step = first_step  # done
    dev_logits = None  # of the last score

    def stay_alive() -> None:
      watchdog.feed()
      heap.bound()
      if preemption.is_due():
        raise processes.Preempted(step)

    def score_dev(params: Any) -> None:
      nonlocal dev_logits
      with clock.measure('eval'):
        dev_logits, loss = task_outputs.run_model(job, params, dev, stay_alive)
        found = task_outputs.score(
          job,
          dev,
          task_outputs.predict(
            job,
            dev,
            dev_logits,
            no_answer=task_outputs.has_no_answers(dev),
            threshold=task_outputs.tune_threshold(job, dev, dev_logits),
          ),
        )
      watchdog.feed()
      name = f'eval/{job.task.name}'
      row = {f'{name}/loss': loss} | {
        f'{name}/{metric}': value for metric, value in found.items()
      }
      scored.add(row[best_metric])
      is_best = config.train.select == 'best' and scored.is_best()
      # It is there if the run ended between it and the row that says so.
      if is_best and step != model_step:
        with clock.measure('save'):
          kept.save(step, {'params': params})
          kept.finish()
      writer.write(step, row, whole=True)
      say(task_plan.evaluation_line(step, row, job.task))
      clock.write()

    def is_score_due() -> bool:
      return step == total_steps or step % job.eval_every == 0

    clock.begin_training(seconds_before)
    # The run ended when this step was saved, and not yet scored.
    if first_step and is_score_due() and not is_scored:
      score_dev(train_state.params)

    # ---- Training ---------------------------------------------------------
    open_batches = {
      'tf': pipeline.tf_batches,
      'plain': pipeline.plain_batches,
    }[config.data.loader]
    every = config.train.checkpoint_every or job.eval_every
    report = None
    last_step = first_step if scored.is_over(config) else total_steps
    with (
      open_batches(batch_at, first_step, last_step) as batches,
      console.ProgressBar(first_step, total_steps) as bar,
    ):
      for step in range(first_step + 1, last_step + 1):
        with clock.measure('data'):
          host_batch = next(batches)
        batch = sharding.put_batch(host_batch, mesh)
        before = report
        train_state, report = train_step(train_state, batch, jnp.int32(seed))
        jax.block_until_ready(before)  # one step is dispatched ahead, not more
        clock.count(step, batch['token_mask'].size, job.step_flops(batch))
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
        save = last or preempted or step % every == 0
        score = is_score_due()
        if log or save or score:
          host = jax.device_get(report)
          if host['nonfinite_step'] >= 0:
            bad_step = int(host['nonfinite_step'])
            with watchdog.compiling():
              failure.stop_nonfinite(
                bad_step,
                train_state,
                steps.make_gradient_norms(job.model, job.objective, seed=seed),
                batch_at(bad_step, pipeline.ALL_ROWS),
                rows,
                workdir,
                checkpoints,
                mesh,
                kept,
              )
        if log:
          row = metrics.training_row(host, job.objective.loss_names)
          row |= clock.row(peak, jax.device_count())
          with clock.measure('other'):
            writer.write(step, row)
          bar.update(step, console.figures(row))
        if save or score:
          failure.check_finite(train_state.params, step, checkpoints, kept)
        if log or save or score:
          clock.write()  # before the save: see ledger.with_losses
        if save:
          with clock.measure('save'):
            checkpoints.save(step, train_state)
        if score and not preempted:  # else the same command begins with it
          try:
            score_dev(train_state.params)
          except processes.Preempted:
            preempted = True
        over = score and not preempted and scored.is_over(config)
        if (preempted or over) and not save:
          with clock.measure('save'):
            checkpoints.save(step, train_state)
        if preempted:
          with clock.measure('save'):
            checkpoints.finish()
          raise processes.Preempted(step)
        if over and not last:
          say(
            f'No better score in {config.train.patience} evaluations: stopping'
            f' after step {step}.'
          )
          break
      clock.switch('other')

    # ---- Results ----------------------------------------------------------
    watchdog.feed()
    optimizer_sha256 = state.digest(train_state.opt_state)
    done = int(train_state.step)
    with clock.measure('save'):
      # Without the best one where a restart dropped it and, on another mesh,
      # its score did not come again.
      model_step = processes.of_first(kept.latest())
      if model_step is None or (
        config.train.select == 'last' and model_step != done
      ):
        model_step = done
        kept.save(done, {'params': train_state.params})
      kept.finish()
      checkpoints.finish()
    processes.wait_for_all('all is written')
    watchdog.feed()
    if model_step != done:
      del train_state
      params = checkpoint.restore_params(
        workdir / MODEL_FOLDER, job.shapes.params
      )
    else:
      params = train_state.params
    known = dev_logits if model_step == done else None
    with clock.measure('eval'):
      figures, intervals = task_outputs.score_all(
        job, params, workdir, known, stay_alive
      )
    results = {
      'metrics': figures,
      'intervals': intervals,
      'state_sha256': state.digest(params),
      'optimizer_sha256': optimizer_sha256,
      'steps': done,
      'best_step': model_step,
      'train_size': len(job.splits['train'].examples),
      'seconds': metrics.last_value(workdir, 'time/seconds', done),
      'seed': seed,
      'device': device.describe(),
      'revision': device.revision(),
      'config': settings.flatten(config),
    }
    if processes.is_first():
      curves.draw_curves(workdir)
      workdirs.write_results(workdir, results)
      clock.write()
    task_plan.print_results(results, workdir, of_several=shared)
    return results
