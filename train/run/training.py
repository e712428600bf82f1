"""The training loop of every run, from a planned job to a finished workdir."""

import contextlib

import jax
import ml_collections
from etils import epath
from jax.sharding import Mesh

from data.examples import pipeline
from data.steady_errors import SteadyErrors
from models.layers import Params
from train.engine import memory, sharding, state, steps
from train.host import console, device, files, huge_pages, processes
from train.host.console import say
from train.run import (
  checkpoint,
  curves,
  failure,
  ledger,
  metrics,
  mirror,
  outlook,
  settings,
  tracing,
  workdirs,
)
from train.run.job import Job


def find_devices(config: ml_collections.ConfigDict) -> Mesh:
  """Returns a run's mesh; checks processes, platform and its settings."""
  processes.check_same(
    lambda: {'the code': device.revision()} | settings.flatten(config)
  )
  device.check_platform(config.train.platform)
  if config.train.deterministic:
    device.check_deterministic()
  return sharding.make_mesh(config.mesh)


def train(
  job: Job,
  workdir: epath.PathLike,
  *,
  dry_run: bool = False,
  began: float | None = None,
) -> workdirs.Results | None:
  """Runs, or continues, a planned job; returns its results.json.

  A workdir with a run of the same config continues after its last checkpoint.
  With `dry_run`, prints the plan and returns None. `began` is the Unix time
  from which the run's time counts. Raises ValueError or OSError for bad input,
  before device time is spent; FloatingPointError if a number is not finite;
  processes.Preempted if asked to end early, after saving.
  """
  config, mesh, keep = job.config, job.mesh, job.keep
  clock = ledger.Ledger(began)
  workdir = epath.Path(workdir)
  saved = checkpoint.latest_step(workdir)
  peak = device.peak_tflops(config.train.peak_tflops)

  # ---- Plan: is there memory for the largest steps? -----------------------
  with console.saying_results() if dry_run else contextlib.nullcontext():
    job.print_plan(workdir, dry_run)
    programs = []
    with sharding.scope(mesh, config.mesh.rules), clock.measure('compile'):
      for program in job.programs(saved or 0):
        before = huge_pages.resident_bytes()
        lowered = job.steps[program.step].lower(*program.arguments)
        programs.append(
          memory.compile_program(program.label, program.remedy, lowered, before)
        )
    needed = memory.plan(
      job.shapes,
      programs,
      mesh,
      loader=config.data.loader,
      num_later=job.num_later,
    )
    if dry_run:
      memory.print_plan(needed)
    memory.check_memory(needed)
    outlook.print_outlook(job, workdir, needed, saved or 0, peak)
  if dry_run:
    return None

  # ---- State: created, or restored ----------------------------------------
  with contextlib.ExitStack() as stack:
    enter = stack.enter_context
    is_first = processes.is_first()
    growing = mirror.Mirror(workdir)
    if is_first:
      growing.check = enter(workdirs.sole_writer(workdir))
      files.write_atomically(
        workdir / 'config.json', settings.as_json(config) + '\n'
      )
      job.write(workdir)
      # The run continues: drop the results of its earlier end.
      (workdir / 'results.json').unlink(missing_ok=True)
    workdirs.check_shared(workdir)
    # Another process may have trained here since the plan.
    saved = checkpoint.latest_step(workdir)
    processes.check_same(lambda: {'steps': saved, **job.facts()})
    enter(sharding.scope(mesh, config.mesh.rules))
    enter(growing)
    enter(clock.recording())  # around the checkpoints: closing them counts
    checkpoints = enter(
      checkpoint.Checkpoints(workdir, keep=job.keep_checkpoints)
    )
    models = None
    if keep is not None:
      folder = workdir / workdirs.MODEL_FOLDER
      models = enter(checkpoint.Checkpoints(folder, keep=1))
    if saved is not None:
      with clock.measure('restore'):
        saved, train_state = job.restore(checkpoints)
        jax.block_until_ready(train_state)
      say(f'Continuing after step {saved} of {checkpoints.folder}.')
    else:
      train_state = job.create()
    first_step = saved or 0
    rows = growing.folder
    if is_first:
      growing.fetch({} if saved is None else checkpoints.notes(saved))
      clock.open(rows, first_step, job.total_steps)
    model_step, scores = None, []  # of the best model so far; all scores
    if keep is not None:
      _drop_after(models, first_step)
      model_step = processes.of_first(models.latest())
      scores = processes.of_first(
        metrics.history(rows, keep.metric, first_step)
      )
    seconds_before = metrics.last_value(rows, 'time/seconds', first_step)
    writer = metrics.MetricsWriter(rows, step=first_step, active=is_first)
    stack.callback(writer.close)
    if is_first and config.train.trackers:
      from train.run.trackers import Trackers  # few runs have any

      flat = settings.flatten(config)
      others = enter(Trackers(config.train.trackers, workdir, rows, flat))
      writer.readers.append(others.write)
    was_scored = processes.of_first(metrics.is_scored(rows, first_step))
    growing.copy()
    watchdog = failure.Watchdog(config.train.hang_minutes)
    heap = huge_pages.Heap(needed.slack)
    compiled = {
      name: clock.compiled(step, watchdog.compiling, heap.bound)
      for name, step in job.steps.items()
    }
    preemption = enter(processes.Preemption())
    enter(watchdog)
    step = first_step  # steps done

    # ---- Scores -----------------------------------------------------------
    def stay_alive() -> None:
      watchdog.feed()
      heap.bound()
      if preemption.is_due():
        raise processes.Preempted(f'step {step} is saved')

    def score(params: Params) -> None:
      with clock.measure('eval'):
        row = job.score(compiled, params, step, stay_alive)
      watchdog.feed()
      if keep is not None:
        scores.append(row[keep.metric])
        # The model is there if the run ended between saving it and the row.
        if keep.is_best(scores) and step != model_step:
          with clock.measure('save'):
            models.save(step, {'params': params})
            models.finish()
      writer.write(step, row, whole=True)
      say(job.score_line(step, row))
      clock.write()

    def is_score_due() -> bool:
      return step == job.total_steps or step % job.score_every == 0

    def is_over() -> bool:
      return keep is not None and keep.is_over(scores)

    # The run ended after this step was saved, and before it was scored.
    if first_step and is_score_due() and not was_scored:
      score(train_state.scored)

    # ---- Training ---------------------------------------------------------
    open_batches = {'tf': pipeline.tf_batches, 'plain': pipeline.plain_batches}[
      config.data.loader
    ]
    report = None
    arguments = job.arguments(scores)

    def latest_report() -> steps.Report | None:
      return report

    last_step = first_step if is_over() else job.total_steps
    with (
      open_batches(
        lambda step: job.batch(step, False), first_step, last_step
      ) as batches,
      console.ProgressBar(first_step, job.total_steps) as bar,
    ):
      clock.begin_training(seconds_before)
      for step in tracing.steps(
        range(first_step + 1, last_step + 1),
        job.profile,
        rows,
        latest_report,
        clock,
      ):
        with clock.measure('data'):
          host_batch = next(batches)
        batch = sharding.put_batch(host_batch, mesh)
        before = report
        stage = job.stage(step - 1)
        train_state, report = compiled[stage.name](
          train_state, batch, *arguments
        )
        # Dispatch one step ahead, not more: host batches would pile up.
        jax.block_until_ready(before)
        clock.count(step, *job.work(step - 1, batch))
        bar.update(step)
        watchdog.feed()
        heap.bound()
        if step == first_step + 1:
          jax.block_until_ready(report)
          say(f'First step after {clock.elapsed():.1f} s.')
          clock.write()

        last = step == job.total_steps
        log = last or step % config.train.log_every == 0
        preempted = preemption.is_due()
        save = last or preempted or step % job.save_every == 0
        score_due = is_score_due()
        if log or save or score_due:
          growing.check(save)
          host = jax.device_get(report)
          if host['nonfinite_step'] >= 0:
            bad_step = int(host['nonfinite_step'])
            bad = job.stage(bad_step)
            with watchdog.compiling():
              failure.stop_nonfinite(
                bad_step,
                train_state,
                steps.make_gradient_norms(
                  bad.model, bad.objective, seed=config.train.seed
                ),
                job.batch(bad_step, True),
                workdir,
                checkpoints,
                mesh,
                models,
              )
        if log:
          row = metrics.training_row(host, stage.objective.loss_names)
          row |= clock.row(peak, jax.device_count())
          with clock.measure('other'):
            writer.write(step, row)
          bar.update(step, console.figures(row))
        if save or score_due:
          failure.check_finite(train_state.params, step, checkpoints, models)
        if log or save or score_due:
          clock.write()  # before the save: see ledger.with_losses
        if save:
          with clock.measure('save'):
            checkpoints.save(step, train_state, growing.tails())
        over = False
        if score_due and not preempted:  # else a restart scores first
          try:
            score(train_state.scored)
            arguments = job.arguments(scores)
            over = is_over()
          except processes.Preempted:
            preempted = True
        if (preempted or over) and not save:
          with clock.measure('save'):
            checkpoints.save(step, train_state, growing.tails())
        if save or score_due:
          growing.copy()
        if preempted:
          with clock.measure('save'):
            checkpoints.finish()
          raise processes.Preempted(f'step {step} is saved')
        if over and not last:
          say(
            f'No better score in {keep.patience} evaluations: stopping after'
            f' step {step}.'
          )
          break
      clock.switch('other')

    # ---- Results ----------------------------------------------------------
    watchdog.feed()
    optimizer_sha256 = state.digest(train_state.opt_state)
    done = model_step = int(train_state.step)
    with clock.measure('save'):
      if keep is not None:
        # A restart may drop the best model and, on another mesh, not reach its
        # score again.
        model_step = processes.of_first(models.latest())
        if model_step is None or not (keep.best or model_step == done):
          model_step = done
          models.save(done, {'params': train_state.scored})
        models.finish()
      checkpoints.finish()
    if not growing.settle() and is_first:
      raise OSError(
        f'{workdir}: the metrics of the last steps could not be written. The'
        ' same command does so once Cloud Storage answers'
      )
    processes.wait_for_all('all is written')
    watchdog.feed()
    params = train_state.scored
    if model_step != done:
      del train_state, params
      params = checkpoint.restore_params(
        workdir / workdirs.MODEL_FOLDER, job.shapes.params
      )
    with clock.measure('eval'), watchdog.compiling():
      ended = job.finish(
        compiled, params, workdir, model_step == done, stay_alive
      )
    results = {
      'state_sha256': state.digest(params),
      'optimizer_sha256': optimizer_sha256,
      'steps': done,
      'seconds': metrics.last_value(rows, 'time/seconds', done),
      'seed': config.train.seed,
      'device': device.describe(),
      'revision': device.revision(),
      'config': settings.flatten(config),
      **SteadyErrors.facts(),
      **({} if keep is None else {'best_step': model_step}),
      **ended,
    }
    if is_first:
      curves.draw_curves(rows, workdir)
      workdirs.write_results(workdir, results)
      clock.write()
      growing.settle()
    with console.lossy_output():
      job.print_results(results, workdir)
    return results


def _drop_after(models: checkpoint.Checkpoints, step: int) -> None:
  """Removes a best model of a later step; training will reach it again."""
  latest = processes.of_first(models.latest())
  if latest is not None and latest > step:
    models.delete(latest)
