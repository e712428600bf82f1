"""Compiles a config's training step for TPUs or GPUs, and says what is in it.

python tests/helpers/compile_step.py CONFIG TOPOLOGY OVERRIDES prints JSON: the
collectives of the first phase's step, its operations and their cycles (of a
TPU), its traffic and kernels of ours (of a GPU), shapes of the arrays that it
writes, bytes of a device's arguments, and the shape of every parameter. In a
process of its own: what the compilers are told has to be in the environment
when they are loaded.
"""

import json
import re
import subprocess
import sys

from train.slices import without_hardware

if __name__ == '__main__':
  without_hardware.prepare()

import jax
from jax.sharding import NamedSharding

from train.engine import sharding
from train.run import settings
from train.slices import cycles, fit, hlo, topology, traffic


def compile_apart(name, machine, overrides, timeout=600):
  """Returns what a process of its own prints."""
  done = subprocess.run(
    [sys.executable, __file__, name, machine, json.dumps(overrides)],
    capture_output=True,
    text=True,
    timeout=timeout,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def written_shapes(text):
  """Returns the shapes of all arrays that a compiled program writes, each once.

  Those inside of a fusion are not written.
  """
  lines_of, _ = hlo.computations(text)
  fused = set(re.findall(r' (?:calls|to_apply)=%([\w.\-]+)', text))
  types = [
    line.partition('(%')[0]
    for name in lines_of.keys() - fused
    for line in lines_of[name]
  ]
  shapes = re.findall(r'[a-z]\w*\[([\d,]+)\]', ' '.join(types))
  return sorted({tuple(map(int, shape.split(','))) for shape in shapes})


def main(name, machine, overrides):
  config = settings.load_config(name)
  config = settings.with_overrides(config, json.loads(overrides))
  job = fit.plan_parts(config, topology.find(machine))
  length, rows = job.phases[0][1:3]
  place = NamedSharding(job.mesh, sharding.BATCH)
  batch = {
    key: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
    for key, leaf in job.objective.batch_shapes(length, rows).items()
  }
  with sharding.scope(job.mesh, config.mesh.rules):
    program = job.train_step(length).lower(job.shapes, batch).compile()
  text = program.as_text()
  travelling = hlo.collectives(text, job.mesh.size)
  result = {
    'collectives': [
      each._asdict() | {'bytes': each.bytes} for each in travelling
    ],
    'written': written_shapes(text),
    'argument_bytes': program.memory_analysis().argument_size_in_bytes,
    'parameters': {
      jax.tree_util.keystr(path, simple=True, separator='/'): leaf.shape
      for path, leaf in jax.tree_util.tree_leaves_with_path(job.shapes.params)
    },
  }
  if job.mesh.devices.flat[0].platform == 'tpu':
    result['operations'], _ = cycles.find_operations(text)
  else:
    result['traffic'] = traffic.measure(text)._asdict()
    result['kernels'] = re.findall(
      r'custom_call_target="__gpu\$xla.gpu.triton".*?op_name="[^"]*?(\w+)/'
      r'pallas_call',
      text,
    )
    result['started'] = re.findall(r' ([\w\-]+-start)\(', text)
    result['wrapped'] = re.findall(r'async-start\(.*? calls=%([\w\-]+)', text)
  print(json.dumps(result))


if __name__ == '__main__':
  main(*sys.argv[1:])
