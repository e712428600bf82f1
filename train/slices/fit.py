"""Whether a config fits TPUs or GPUs, by their compilers."""

import concurrent.futures
import functools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import ml_collections

from data.store import build, folders
from data.vocabulary import tokenization
from models.layers import Params
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.engine import sharding, state
from train.engine.memory import GIB, batch_shapes
from train.engine.steps import Batch
from train.host.console import say
from train.host.files import Json
from train.pretrain import assemble
from train.pretrain import plan as pretraining
from train.pretrain.assemble import Parts
from train.run import settings, training_phases
from train.run.settings import FlatConfig
from train.run.training_phases import Phase
from train.slices import cycles, hlo, printing, task_steps, topology, traffic
from train.slices.task_steps import StepPlan

NO_CLOCK = "a GPU's compiler estimates no time; the bounds are what is known"
PhaseFigures = Mapping[str, Json]  # of a compiled step, see `_describe`


def preflight(
  config: ml_collections.ConfigDict,
  name: str,
  *,
  mfu: float | None = None,
  num_words: int = task_steps.NUM_WORDS,
) -> dict[str, Json]:
  """Compiles the training steps of a config for a slice or for GPUs.

  A pre-training has one for each phase, a task model one, with `num_words` in
  its table, see `task_steps.plan`. The run's hours follow from `mfu`, a
  measured model FLOPs utilisation, or from the compiler's estimate; they are
  None where both are missing. A GPU's compiler estimates no time: without `mfu`
  its hours are the fewest that the bounds of a step allow. The report has the
  verdict `fits`; where it is False, `remedies` are the single overrides that
  were tried. Bad input raises ValueError before any compilation.
  """
  machine = topology.find(name)
  steps = plan(config, machine, num_words)
  phases = compile_phases(steps, steps.phases, machine)
  report = {
    'topology': name,
    'machine': machine.text,
    'chips': machine.num_chips,
    'hosts': machine.num_hosts,
    'devices': len(machine.devices),
    'mesh': dict(steps.mesh.shape),
    'parameters': steps.num_parameters,
    'parameter_bytes': state.num_bytes(steps.shapes.params),
    'notes': dict(steps.notes),
    'phases': phases,
    'fits': all(phase['fits'] for phase in phases),
    'jax': jax.__version__,
    'compiler': machine.compiler,
  }
  if not report['fits']:
    found = find_remedies(config, machine, phases, num_words)
    return report | {'remedies': found}
  hours = count_hours(phases, mfu)
  return report | {
    'mfu': mfu,
    'hours': hours,
    'chip_hours': hours and hours * machine.num_chips,
  }


def count_hours(
  phases: Sequence[PhaseFigures], mfu: float | None
) -> float | None:
  """Returns the hours of all steps at an MFU, or by the compiler's estimate.

  The estimate adds the hours of the links to those of computing, as if nothing
  travelled while a device computes. None where the estimate is missing. Of GPUs
  they are the fewest that the bounds of a step allow.
  """
  seconds = 0.0
  for phase in phases:
    if mfu is not None:
      least = phase['least_seconds']['compute']
      step = least / min(mfu, phase['best_mfu'])
    elif 'traffic' in phase:
      step = max(phase['least_seconds'].values())
    elif 'missing' in phase['estimate']:
      return None
    else:
      step = phase['estimate']['seconds'] + phase['estimate']['links_seconds']
    seconds += phase['steps'] * step
  return seconds / 3600


def plan_parts(
  config: ml_collections.ConfigDict, machine: topology.Machine
) -> Parts:
  """Plans the run of a config on a slice, and checks the config."""
  mesh = sharding.make_mesh(config.mesh, machine.devices)
  if config.train.num_epochs is not None:
    if config.train.steps is None:
      raise ValueError(
        f'train.num_epochs={config.train.num_epochs} needs the text to count'
        ' steps: say how many with train.steps, which count here'
      )
    config = settings.with_overrides(config, {'train.num_epochs': None})
  families.check_config(config)
  phases = training_phases.resolve_phases(config, {})
  pretraining.check_batches(config, phases, mesh)
  folder, tokenizer = config.data.folder, config.data.tokenizer
  if folder and folders.is_store(folder):
    tokenizer = folder
  size = build.trained_size(tokenizer)  # None if it is trained already
  size = size or Vocabulary.of(tokenization.load(tokenizer)).size
  return assemble.build_parts(config, phases, Vocabulary.of_size(size), mesh)


def plan(
  config: ml_collections.ConfigDict, machine: topology.Machine, num_words: int
) -> StepPlan:
  """Plans the training steps of a config on a slice, and checks the config."""
  if 'task' in config:
    return task_steps.plan(config, machine.devices, num_words)
  parts = plan_parts(config, machine)

  def lower(phase: Phase) -> jax.stages.Lowered:
    shapes = parts.objective.batch_shapes(phase.length, phase.global_batch)
    batch = batch_shapes(shapes, parts.mesh)
    return parts.train_step(*phase.kind).lower(parts.shapes, batch)

  return StepPlan(
    config=config,
    mesh=parts.mesh,
    phases=parts.phases,
    shapes=parts.shapes,
    num_parameters=parts.num_parameters,
    lower=lower,
    flops=parts.step_flops,
    kept=functools.partial(residual_bytes, parts),
  )


def residual_bytes(parts: Parts, phase: Phase) -> int:
  """Returns the bytes that one micro-batch keeps for the backward pass.

  The bytes of all devices are counted, the parameters are not; nothing is
  computed.
  """
  objective = parts.objective_of[phase.kind]
  rows = phase.global_batch // parts.config.train.micro_batches
  part = parts.objective.batch_shapes(phase.length, rows)

  carry = parts.objective.carry_shapes(parts.model, rows)

  def residuals(params: Params, part: Batch, carry: Batch) -> Callable:
    keys = jax.random.split(jax.random.key(0), rows)
    batch = objective.transform(part, keys) | carry
    rngs = {'dropout': keys[0], 'samples': keys[0]}

    def loss_of(params: Params) -> jax.Array:
      outputs = objective.apply(parts.model, params, batch, rngs)
      losses, _ = objective.losses(outputs, batch)
      return sum(total for total, _ in losses.values())

    return jax.vjp(loss_of, params)[1]

  params = parts.shapes.params
  kept = jax.tree.leaves(jax.eval_shape(residuals, params, part, carry))
  of_params = sum(leaf.size * 4 for leaf in jax.tree.leaves(params))
  total = sum(
    leaf.size * jnp.dtype(leaf.dtype).itemsize
    for leaf in kept
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
  )
  return max(total - of_params, 0)


def compile_phases(
  steps: StepPlan, phases: Sequence[Phase], machine: topology.Machine
) -> list[PhaseFigures]:
  """Returns figures of each phase's step, all compiled at once."""
  with sharding.scope(steps.mesh, steps.config.mesh.rules):
    lowered = [steps.lower(phase) for phase in phases]
  # The compiler works on one core and lets the others go on.
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
    compiled = list(threads.map(_compile, lowered))
  return [
    _describe(steps, phase, machine, *result)
    for phase, result in zip(phases, compiled, strict=True)
  ]


def _compile(
  lowered: jax.stages.Lowered,
) -> tuple[jax.stages.Compiled | jax.errors.JaxRuntimeError, float]:
  """Returns the program, or the error if it does not fit, and the seconds."""
  began = time.monotonic()
  try:
    program = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    program = error
  return program, time.monotonic() - began


def _describe(
  steps: StepPlan,
  phase: Phase,
  machine: topology.Machine,
  program: jax.stages.Compiled | jax.errors.JaxRuntimeError,
  seconds: float,
) -> PhaseFigures:
  """Returns the figures of a phase's compiled step."""
  num_devices, micro_batches = steps.mesh.size, steps.config.train.micro_batches
  shares = sharding.batch_parts(steps.mesh)
  flops = steps.flops(phase)
  fits = not isinstance(program, Exception)
  parameters = state.num_bytes(steps.shapes.params)
  optimizer = state.num_bytes(steps.shapes.opt_state)
  memory = {'parameters': parameters, 'optimizer': optimizer}
  result = {
    'steps': phase.steps,
    'length': phase.length,
    'global_batch': phase.global_batch,
    'rows_a_device': phase.global_batch // shares,
    'rows_a_chip': phase.global_batch / machine.num_chips,
    'micro_batches': micro_batches,
    'compile_seconds': round(seconds, 1),
    'model_flops': flops,
    'fits': fits,
    'memory': memory,
  }
  if not fits:
    needed = re.search(r'(?:Used|\() ?([\d.]+)([GM])', str(program))
    unit = {'G': GIB, 'M': 2**20}
    memory['total'] = float(needed[1]) * unit[needed[2]] if needed else None
    memory['usable'] = machine.chip.usable_gib * GIB
    return result
  found = program.memory_analysis()
  arguments = found.argument_size_in_bytes
  unshared = found.output_size_in_bytes - found.alias_size_in_bytes
  memory |= {
    'batch': arguments - parameters - optimizer,
    'temporary': found.temp_size_in_bytes + unshared,
    'program': found.generated_code_size_in_bytes,
  }
  memory['total'] = sum(memory.values())
  memory['usable'] = machine.chip.usable_gib * GIB
  if cost := program.cost_analysis():  # by the TPU's compiler
    result['loop_once'] = {  # which counts a loop once
      'flops': cost['flops'],
      'bytes_accessed': cost['bytes accessed'],
    }
  text = program.as_text()
  collectives = hlo.collectives(text, num_devices)
  sent = sum(collective.sent_bytes for collective in collectives)
  with sharding.scope(steps.mesh, steps.config.mesh.rules):
    kept = steps.kept(phase) * micro_batches
  # Read once and written once: gradients, residuals of the backward pass,
  # parameters and the optimiser's state.
  moved = 2 * (2 * parameters + optimizer + kept / num_devices)
  is_gpu = machine.devices[0].platform == 'gpu'
  if is_gpu:  # the compiled program tells more
    moves = traffic.measure(text)
    moved = moves.bytes
    result['traffic'] = moves._asdict()
    result['fits'] = memory['total'] <= memory['usable']
  bounds = {
    'compute': flops / (1e12 * machine.peak_tflops * num_devices),
    'memory': moved / (machine.chip.memory_gbps * 1e9),
    'interconnect': sent / (machine.chip.links_gbps * 1e9),
  }
  return result | {
    'collective_bytes': hlo.total_bytes(collectives),
    'sent_bytes': round(sent),
    'least_seconds': bounds,
    'best_mfu': bounds['compute'] / max(bounds.values()),
    'estimate': {'missing': NO_CLOCK}
    if is_gpu
    else _estimate(text, bounds, machine),
  }


def _estimate(
  text: str, bounds: Mapping[str, float], machine: topology.Machine
) -> dict[str, Json]:
  """Returns the compiler's estimate of a step, or the reason it is missing.

  `seconds` and `mfu` are without the links, whose time is `links_seconds`.
  """
  try:
    found = cycles.estimate(text, machine.devices[0].num_cores)
  except cycles.NoEstimateError as error:
    return {'missing': str(error)}
  seconds = found.cycles / (machine.chip.clock_ghz * 1e9)
  return {
    'cycles': found.cycles,
    'seconds': seconds,
    'mfu': bounds['compute'] / seconds,
    'links_seconds': bounds['interconnect'],
    'by_kind': found.by_kind,
    'bounded': found.bounded,
    'left_out': found.left_out,
  }


def remedies(
  config: ml_collections.ConfigDict, num_devices: int
) -> list[FlatConfig]:
  """Returns at most six single overrides to try, the cheapest first.

  More micro-batches cost next to nothing, rematerialisation a third more
  compute, sharded parameters more traffic.
  """
  micro = config.train.micro_batches
  tries = [{'train.micro_batches': micro * factor} for factor in (2, 4, 8)]
  if 'remat' in config.model and not config.model.remat:
    tries.append({'model.remat': True})
  if config.mesh.fsdp == 1:
    sizes = sorted({min(8, num_devices), num_devices} - {1})
    tries += [{'mesh.data': -1, 'mesh.fsdp': size} for size in sizes]
  return tries


def find_remedies(
  config: ml_collections.ConfigDict,
  machine: topology.Machine,
  phases: Sequence[PhaseFigures],
  num_words: int,
) -> list[dict[str, Json]]:
  """Tries `remedies` on the phase that exceeds the memory most."""
  excess = [0 if p['fits'] else p['memory']['total'] or 0 for p in phases]
  worst = excess.index(max(excess))
  tried = []
  for override in remedies(config, len(machine.devices)):
    changed = settings.with_overrides(config, override)
    try:
      steps = plan(changed, machine, num_words)
    except ValueError:  # a batch or a parameter that does not divide
      continue
    say(f'does not fit; trying {printing.flags(override)}')
    (phase,) = compile_phases(steps, steps.phases[worst : worst + 1], machine)
    figures = {key: phase[key] for key in ('length', 'fits')}
    total = phase['memory']['total']
    tried.append({'override': override, **figures, 'total': total})
  return tried
