"""Whether a config fits a TPU slice, by the TPU's compiler."""

import concurrent.futures
import importlib.metadata
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import ml_collections
from etils import epath

from data.store import build
from data.vocabulary import tokenization
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.engine import sharding, state
from train.engine.memory import GIB, batch_shapes, gib
from train.host import console, device, files
from train.host.console import say
from train.pretrain import assemble, plan
from train.pretrain.assemble import Parts
from train.run import settings, training_phases
from train.run.training_phases import Phase
from train.slices import hlo, topology


def preflight(
  config: ml_collections.ConfigDict, name: str, *, mfu: float = 0.4
) -> dict[str, Any]:
  """Compiles the training step of every phase of pre-training for a slice.

  The run's hours follow from `mfu`, model FLOPs utilisation. The report has the
  verdict `fits`; where it is False, `remedies` are the single overrides that
  were tried. Bad input raises ValueError before any compilation.
  """
  tpu = topology.find_slice(name)
  parts = plan_parts(config, tpu)
  phases = compile_phases(parts, parts.phases, tpu)
  report = {
    'topology': name,
    'layout': 'x'.join(map(str, tpu.layout)),
    'chips': tpu.num_chips,
    'hosts': tpu.num_hosts,
    'devices': len(tpu.devices),
    'mesh': dict(parts.mesh.shape),
    'parameters': parts.num_parameters,
    'parameter_bytes': state.num_bytes(parts.shapes.params),
    'phases': phases,
    'fits': all(phase['fits'] for phase in phases),
    'jax': jax.__version__,
    'libtpu': importlib.metadata.version('libtpu'),
  }
  if not report['fits']:
    return report | {'remedies': find_remedies(config, tpu, phases)}
  hours = sum(
    phase['steps'] * phase['model_flops'] / min(mfu, phase['best_mfu'])
    for phase in phases
  ) / (_peak(tpu) * len(tpu.devices) * 3600)
  return report | {
    'mfu': mfu,
    'hours': hours,
    'chip_hours': hours * tpu.num_chips,
  }


def _peak(tpu: topology.Slice) -> float:
  return 1e12 * device.peak_of(tpu.devices[0].device_kind)


def plan_parts(config: ml_collections.ConfigDict, tpu: topology.Slice) -> Parts:
  """Plans the run of a config on a slice, and checks the config."""
  mesh = sharding.make_mesh(config.mesh, tpu.devices)
  families.check(config)
  if config.train.num_epochs is not None:
    raise ValueError(
      f'train.num_epochs={config.train.num_epochs} needs the text to count'
      ' steps; pass train.steps instead'
    )
  phases = training_phases.resolve_phases(config, {})
  plan.check_batches(config, phases, mesh)
  folder, tokenizer = config.data.folder, config.data.tokenizer
  if folder and epath.Path(folder, 'store.json').exists():
    tokenizer = folder
  size = build.trained_size(tokenizer)  # None if it is trained already
  size = size or Vocabulary.of(tokenization.load(tokenizer)).size
  return assemble.build_parts(config, phases, Vocabulary.of_size(size), mesh)


def compile_phases(
  parts: Parts, phases: Sequence[Phase], tpu: topology.Slice
) -> list[dict[str, Any]]:
  """Returns figures of each phase's step, all compiled at once."""
  with sharding.scope(parts.mesh, parts.config.mesh.rules):
    lowered = []
    for phase in phases:
      shapes = parts.architecture.batch_shapes(phase.length, phase.global_batch)
      batch = batch_shapes(shapes, parts.mesh)
      lowered.append(parts.train_step(phase.length).lower(parts.shapes, batch))
  # The compiler works on one core and lets the others go on.
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
    compiled = list(threads.map(_compile, lowered))
  return [
    _describe(parts, phase, tpu, *result)
    for phase, result in zip(phases, compiled, strict=True)
  ]


def _compile(lowered: Any) -> tuple[Any, float]:
  """Returns the program, or the error that it does not fit, and seconds."""
  began = time.monotonic()
  try:
    program = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    program = error
  return program, time.monotonic() - began


def _describe(
  parts: Parts, phase: Phase, tpu: topology.Slice, program: Any, seconds: float
) -> dict[str, Any]:
  """Returns the figures of a phase's compiled step."""
  num_devices, micro_batches = parts.mesh.size, parts.config.train.micro_batches
  shares = sharding.batch_parts(parts.mesh)
  flops = parts.step_flops(phase)
  fits = not isinstance(program, Exception)
  parameters = state.num_bytes(parts.shapes.params)
  optimizer = state.num_bytes(parts.shapes.opt_state)
  memory = {'parameters': parameters, 'optimizer': optimizer}
  result = {
    'steps': phase.steps,
    'length': phase.length,
    'global_batch': phase.global_batch,
    'rows_a_device': phase.global_batch // shares,
    'rows_a_chip': phase.global_batch / tpu.num_chips,
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
    memory['usable'] = tpu.generation.usable_gib * GIB
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
  memory['usable'] = tpu.generation.usable_gib * GIB
  cost = program.cost_analysis()
  collectives = hlo.collectives(program.as_text(), num_devices)
  sent = sum(collective.sent_bytes for collective in collectives)
  kept = plan.residual_bytes(parts, phase) * micro_batches
  # Read once and written once: gradients, residuals of the backward pass,
  # parameters and the optimiser's state.
  moved = 2 * (2 * parameters + optimizer + kept / num_devices)
  bounds = {
    'compute': flops / (_peak(tpu) * num_devices),
    'memory': moved / (tpu.generation.memory_gbps * 1e9),
    'interconnect': sent / (tpu.generation.links_gbps * 1e9),
  }
  return result | {
    'collective_bytes': hlo.total_bytes(collectives),
    'sent_bytes': round(sent),
    'loop_once': {  # by the compiler, which counts a loop once
      'flops': cost['flops'],
      'bytes_accessed': cost['bytes accessed'],
    },
    'least_seconds': bounds,
    'best_mfu': bounds['compute'] / max(bounds.values()),
  }


def remedies(
  config: ml_collections.ConfigDict, num_devices: int
) -> list[dict[str, Any]]:
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
  tpu: topology.Slice,
  phases: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
  """Tries `remedies` on the phase that exceeds the memory most."""
  excess = [0 if p['fits'] else p['memory']['total'] or 0 for p in phases]
  worst = excess.index(max(excess))
  tried = []
  for override in remedies(config, len(tpu.devices)):
    changed = settings.with_overrides(config, override)
    try:
      parts = plan_parts(changed, tpu)
    except ValueError:  # a batch or a parameter that does not divide
      continue
    say(f'does not fit; trying {_flags(override)}')
    (phase,) = compile_phases(parts, parts.phases[worst : worst + 1], tpu)
    figures = {key: phase[key] for key in ('length', 'fits')}
    total = phase['memory']['total']
    tried.append({'override': override, **figures, 'total': total})
  return tried


def print_report(report: Mapping[str, Any], price: float | None) -> None:
  """Prints a report of `preflight`; `price` is the price of a chip-hour."""
  name = report['topology']
  rows = {
    'slice': f'{name}: {report["chips"]} chips ({report["layout"]}),'
    f' {report["devices"]} devices, hosts: {report["hosts"]}',
    'mesh': ' x '.join(f'{axis} {n}' for axis, n in report['mesh'].items()),
    'parameters': f'{report["parameters"]:,}',
  }
  title = f'Preflight (jax {report["jax"]}, libtpu {report["libtpu"]})'
  console.table([*rows.items()], title)
  for phase in report['phases']:
    _print_phase(phase)
  for tried in report.get('remedies', ()):
    say(
      f'  {_flags(tried["override"])}: {_verdict(tried)} at length'
      f' {tried["length"]} ({gib(tried["total"])})'
    )
  if not report['fits']:
    good = any(tried['fits'] for tried in report['remedies'])
    hint = 'one of those that fit' if good else 'a larger slice'
    say(f'\nVerdict: does NOT fit {name}; take {hint}.')
    return
  cost = (
    '' if price is None else f', {price * report["chip_hours"]:,.0f} to pay'
  )
  say(
    f'\nVerdict: fits {name}. At an MFU of {report["mfu"]:.0%}, or the best'
    f' possible where that is less: {report["hours"]:,.1f} hours,'
    f' {report["chip_hours"]:,.0f} chip-hours{cost}, without evaluation.'
  )


def _verdict(figures: Mapping[str, Any]) -> str:
  return 'fits' if figures['fits'] else 'does NOT fit'


def _print_phase(phase: Mapping[str, Any]) -> None:
  memory = dict(phase['memory'])
  total, usable = memory.pop('total'), memory.pop('usable')
  rows = {
    'batch': f'{phase["global_batch"]:,} x {phase["length"]} tokens,'
    f' {phase["rows_a_device"]} rows a device, {phase["rows_a_chip"]:g} a chip,'
    f' {phase["micro_batches"]} micro-batches',
    'memory': ', '.join(f'{kind} {gib(n)}' for kind, n in memory.items()),
    'in all': f'{gib(total)} of {gib(usable)} a device: {_verdict(phase)}',
    'step': f'{phase["model_flops"] / 1e12:,.4g} model TFLOP, compiled in'
    f' {phase["compile_seconds"]:.0f} s',
  }
  if phase['fits']:
    collectives = [
      f'{kind} {total / 1e6:,.1f} MB'
      for kind, total in phase['collective_bytes'].items()
    ]
    bounds = [
      f'{bound} {seconds * 1e3:,.2f} ms'
      for bound, seconds in phase['least_seconds'].items()
    ]
    rows['collectives'] = ', '.join(collectives) or 'none'
    rows['at least'] = (
      f'{", ".join(bounds)}; so at best an MFU of {phase["best_mfu"]:.0%}'
    )
  title = f'{phase["steps"]:,} steps at length {phase["length"]}'
  console.table([*rows.items()], title)


def _flags(override: Mapping[str, Any]) -> str:
  return ' '.join(f'--config.{key}={value}' for key, value in override.items())


def add_to_table(path: epath.PathLike, name: str, report: Mapping) -> None:
  """Adds or replaces a report in a table's JSON file and its Markdown."""
  path = epath.Path(path)
  rows = json.loads(path.read_text()) if path.exists() else {}
  rows[f'{name} {report["topology"]}'] = report
  files.write_atomically(path, json.dumps(rows, indent=1) + '\n')
  lines = [
    '| config | slice | chips | length | rows a chip | memory of a device, GiB'
    ' | collectives, MB | bounds: compute, memory, links, ms | best MFU'
    ' | hours (chip-hours) at 40 % MFU |',
    '|---|---|---|---|---|---|---|---|---|---|',
  ]
  for key, row in rows.items():
    lines += [_markdown(key.split()[0], row, phase) for phase in row['phases']]
  files.write_atomically(path.with_suffix('.md'), '\n'.join(lines) + '\n')


def _markdown(name: str, row: Mapping, phase: Mapping) -> str:
  memory = phase['memory']
  collectives = bounds = mfu = ''
  if phase['fits']:
    collectives = f'{sum(phase["collective_bytes"].values()) / 1e6:.0f}'
    bounds = ', '.join(
      f'{seconds * 1e3:.1f}' for seconds in phase['least_seconds'].values()
    )
    mfu = f'{phase["best_mfu"]:.0%}'
  if row['fits']:
    hours = f'{row["hours"]:,.1f} ({row["chip_hours"]:,.0f})'
  else:
    good = [_flags(t['override']) for t in row['remedies'] if t['fits']]
    hours = f'does not fit; fits with {", or ".join(good) or "none tried"}'
  cells = [
    name,
    row['topology'],
    row['chips'],
    phase['length'],
    f'{phase["rows_a_chip"]:g}',
    f'{(memory["total"] or 0) / GIB:.2f} of {memory["usable"] / GIB:.2f}',
    *(collectives, bounds, mfu, hours),
  ]
  return '| ' + ' | '.join(map(str, cells)) + ' |'
