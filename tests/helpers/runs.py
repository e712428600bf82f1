"""Whole runs, as the command makes them, or step by step, in this process."""

import contextlib
import copy
import functools
from unittest import mock

import jax
import ml_collections
from absl import flags

from data.examples import pipeline
from data.store import corpus
from train.architectures import architecture, families
from train.engine import sharding
from train.pretrain import assemble
from train.pretrain import job as pretraining
from train.run import (
  command,
  curves,
  settings,
  training,
  training_phases,
  workdirs,
)
from train.transfer import finetune

# What was traced for runs of equal configs, by a module's tests.
STEPS = {}


def train(
  config,
  workdir,
  *,
  dry_run=False,
  began=None,
  shared=None,
  draws=False,
  fresh=False,
):
  """Returns the results of a run; None after a dry run.

  Its curves are drawn only if `draws`: that is a quarter of a small run's time.
  Runs of one config are planned each by itself, and share jitted steps, as the
  seeds of a sweep do: tracing is most of the rest. `fresh` ones do not, where
  a test changes what is traced.
  """
  kind = finetune if 'task' in config else pretraining
  kind.check_config(config)
  job = kind.make(config, workdir, **({'shared': shared} if shared else {}))
  if job is None:
    return workdirs.read_results(workdir)
  if not fresh and shared is None:
    sizes = str(jax.tree.map(lambda leaf: leaf.shape, job.shapes))
    key = settings.as_json(config), job.mesh, job.total_steps, sizes
    job.steps = STEPS.setdefault(key, job.steps)
  with contextlib.ExitStack() as stack:
    if not draws:
      patch = mock.patch.object(curves, 'draw_curves')
      stack.enter_context(patch)
    return training.train(job, workdir, dry_run=dry_run, began=began)


def write_config(config, path):
  """Writes the file of a config, as a user would; returns its path."""
  made = 'base.get_config()'
  if 'task' in config:
    name = config.model.name
    model = '' if name in families.ARCHITECTURES else f',model={name}'
    made = f"transfer.get_config('task=own{model}')"
  elif config.model.name in ('word2vec', 'glove'):
    made = f'variants.make_defaults({config.model.name!r})'
  path.write_text(
    'from configs import base, transfer, variants\n\n\n'
    'def get_config():\n'
    f'  config = {made}\n'
    f'  config.update_from_flattened_dict({settings.flatten(config)!r})\n'
    '  return config.lock()\n'
  )
  return path


def parse(config, words):
  """Returns a config with the overrides of a command line."""
  values = flags.FlagValues()
  argv = ['main', *words]
  command.config_flags.DEFINE_config_dict(  # with its parsers
    'config', copy.deepcopy(config), flag_values=values, sys_argv=argv
  )
  values(argv)
  return values.config


def mesh_of(**sizes):
  return sharding.make_mesh(ml_collections.ConfigDict(sizes))


def planned(config, mesh):
  """Returns the job that the loop plans, and step -> host batch."""
  store = corpus.open_store(config.data.folder)
  phases = training_phases.resolve_phases(config, {})
  open_examples = families.objective_of(config).open_examples
  examples = {32: open_examples(config, store, 32, held_out=False)}
  job = assemble.build_parts(
    config, phases, architecture.Vocabulary.of(store.tokenizer), mesh
  )
  return job, functools.partial(pipeline.train_batch, examples, phases, 0)


def one_device():
  return sharding.make_mesh(
    ml_collections.ConfigDict(dict(data=1, fsdp=1, tensor=1)),
    jax.devices()[:1],
  )


def see_one_device(patch):
  """Meshes without a choice of devices are of the first one."""
  make = sharding.make_mesh
  patch.setattr(
    sharding,
    'make_mesh',
    lambda config, devices=None: make(config, devices or jax.devices()[:1]),
  )


def losses_on(config, mesh):
  """Returns the losses of all steps."""
  job, batch_at = planned(config, mesh)
  losses = []
  with sharding.scope(mesh, config.mesh.rules):
    current, step = job.create_state(), job.train_step(32)
    for n in range(sum(phase.steps for phase in job.phases)):
      batch = sharding.put_batch(batch_at(n), mesh)
      current, report = step(current, batch)
      losses.append(float(report['loss']))
  return losses
