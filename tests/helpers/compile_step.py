"""Compiles a config's training step for a TPU slice, and says what is in it.

python tests/train/compile_step.py CONFIG SLICE OVERRIDES prints JSON: the
collectives of the first phase's step, bytes of a device's arguments, and the
shape of every parameter. In a process of its own: what the TPU's compiler is
told has to be in the environment when it is loaded.
"""

import json
import os
import subprocess
import sys

if __name__ == '__main__':
  os.environ.update(
    JAX_PLATFORMS='cpu',
    TPU_SKIP_MDS_QUERY='1',
    ALLOW_MULTIPLE_LIBTPU_LOAD='1',
    TPU_WORKER_HOSTNAMES='localhost',
    TPU_ACCELERATOR_TYPE='v5litepod-1',
  )

import jax
from jax.sharding import NamedSharding

from train.engine import sharding
from train.run import settings
from train.slices import fit, hlo, topology


def compile_apart(name, tpu, overrides, timeout=600):
  """Returns what a process of its own prints."""
  done = subprocess.run(
    [sys.executable, __file__, name, tpu, json.dumps(overrides)],
    capture_output=True,
    text=True,
    timeout=timeout,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def main(name, tpu, overrides):
  config = settings.load_config(name)
  config = settings.with_overrides(config, json.loads(overrides))
  job = fit.plan_parts(config, topology.find_slice(tpu))
  _, length, rows, _ = job.phases[0]
  place = NamedSharding(job.mesh, sharding.BATCH)
  batch = {
    key: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
    for key, leaf in job.architecture.batch_shapes(length, rows).items()
  }
  with sharding.scope(job.mesh, config.mesh.rules):
    program = job.train_step(length).lower(job.shapes, batch).compile()
  travelling = hlo.collectives(program.as_text(), job.mesh.size)
  result = {
    'collectives': [
      each._asdict() | {'bytes': each.bytes} for each in travelling
    ],
    'argument_bytes': program.memory_analysis().argument_size_in_bytes,
    'parameters': {
      jax.tree_util.keystr(path, simple=True, separator='/'): leaf.shape
      for path, leaf in jax.tree_util.tree_leaves_with_path(job.shapes.params)
    },
  }
  print(json.dumps(result))


if __name__ == '__main__':
  main(*sys.argv[1:])
