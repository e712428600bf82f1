"""A digest of what the host and the transforms draw."""

import hashlib

import jax
import numpy as np

from data.examples import pairs, pipeline
from data.store import corpus
from models import dropout
from train.architectures import architecture
from train.engine import sharding, state, steps
from train.host import processes
from train.pretrain import assemble
from train.run import training_phases


def digest(config):
  """Returns the rows that this process reads, and a digest of all rows'."""
  mesh = sharding.make_mesh(config.mesh)
  store = corpus.open_store(config.data.folder)
  phases = training_phases.resolve_phases(config, {})
  examples = {32: pairs.PairExamples(store, 32, held_out=False)}
  job = assemble.build_parts(
    config, phases, architecture.Vocabulary.of(store.tokenizer), mesh
  )
  local = pipeline.train_batch(
    examples, phases, 0, 3, sharding.local_rows(mesh, 16)
  )

  def draw(batch):
    keys = steps.row_keys(0, state.TRAIN_STREAM, 3, np.arange(16))
    shape = (16, 32, 64)
    seeds = dropout.draw_seeds(keys[0], shape[:-2])
    mask = dropout.keep_mask(seeds, shape, 0.1)
    return {
      **job.objective.transform(batch, keys),
      'host': batch,
      'dropout': jax.lax.with_sharding_constraint(
        mask, jax.NamedSharding(mesh, sharding.BATCH)
      ),
    }

  with sharding.scope(mesh, config.mesh.rules):
    drawn = jax.jit(draw)(sharding.put_batch(local, mesh))
  sha = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_leaves_with_path(drawn):
    sha.update(str(path).encode() + processes.to_host(leaf).tobytes())
  return {'rows': len(local['lengths']), 'digest': sha.hexdigest()}
