"""Small runs of ELMo's task models: their configs, sets and vectors."""

import contextlib
import math
import pathlib
import pydoc_data.topics

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
import runs
import small_elmo
import small_kinds
import small_published
import small_tasks

from data.scoring import scores, submissions
from data.vocabulary import tokenization
from models.pretrained import elmo as pretrained
from train.engine import sharding
from train.host import processes
from train.run import settings, workdirs
from train.transfer import finetune, predictors

# Without buckets, batches are of one length, and one program is compiled.
SMALL = {
  'model.lstm_dim': 4,
  'model.num_layers': 1,
  'model.hidden_dim': 6,
  'model.filters': (),
  'task.word_dim': 5,
  'task.max_length': 16,
  'data.bucket': False,
  'train.platform': 'cpu',
  'train.global_batch': 8,
  'train.steps': 4,
  'train.eval_every': 2,
  'train.log_every': 1,
  'train.peak_tflops': 0.1,
  'eval.global_batch': 12,
}
KNOWN = ('returns', 'raises', 'the', 'list', 'class', 'unheard')


class Maker:
  """Configs of runs of seconds; sets and weights are written once."""

  def __init__(self, folder, bert):
    self.folder = folder
    self._weights = {'bert': bert}
    self._changes = {}

  def weights(self, family):
    """Returns the override that names small published weights."""
    if family not in self._weights:
      self._weights[family] = self.folder / family
      write = {'elmo': write_elmo, 'gpt': write_gpt}[family]
      write(self._weights[family])
    return {'init.weights': str(self._weights[family])}

  def source(self, kind):
    """Returns the folder of the set of a kind."""
    folder = self.folder / kind.replace(' ', '_')
    if kind not in self._changes:
      if kind == 'own sentences':
        small_tasks.write_sentences(folder)
        self._changes[kind] = {'own.kind': 'classification'}
      else:
        self._changes[kind] = small_kinds.write(folder, kind)
    return folder

  def config(self, model, kind, **overrides):
    """Returns the config of a model on the set of a kind."""
    source = self.source(kind)
    changes = dict(self._changes[kind])
    changes.pop('own.test', None)
    changes.pop('task.document_context', None)  # models of words lack it
    name = changes.pop('task.name', 'own')
    config = settings.load_config(f'transfer:task={name},model={model}')
    paths = {
      'data.source': str(source),
      'data.cache': str(self.folder / 'vectors'),
    }
    return settings.with_overrides(
      config, SMALL | paths | changes | overrides
    ).lock()


def write_glove(path, words=KNOWN, dim=4):
  """Writes vectors as GloVe's; returns them by their words."""
  table = np.random.default_rng(5).normal(size=(len(words), dim)).round(3)
  lines = [
    ' '.join([word, *map(str, row)])
    for word, row in zip(words, table, strict=True)
  ]
  path.write_text('\n'.join(lines) + '\n')
  return dict(zip(words, table.astype(np.float32), strict=True))


def write_elmo(folder, factor=0.2):
  """Writes a small ELMo; with a large factor its vectors are chaotic."""
  model, params = small_elmo.small_elmo()
  scaled = jax.tree.map(lambda leaf: leaf * np.float32(factor), params)
  pretrained.write_folder(folder, model, scaled)


def write_gpt(folder):
  """Writes a small GPT-2 and its vocabulary."""
  topics = list(pydoc_data.topics.topics.values())[:20]
  request = tokenization.parse_training('train:bytebpe:400')
  small_published.write_gpt(folder, tokenization.train(topics, request))


def predict_dev(config, workdirs):
  """Returns task, split and predictions of a run's dev set."""
  source = pathlib.Path(config.data.source)
  official = [source / 'eng.testa', source / 'val.csv']
  file = next(
    path for path in [*source.glob('dev.*'), *official] if path.exists()
  )
  return predictors.predict(
    workdirs, lambda task: predictors.read_input(task, file, 'dev')
  )


def check_answers(config, workdir, output):
  """Holds a workdir's answers to dev against its run's; returns them."""
  task, split, found = predict_dev(config, [workdir])
  submissions.write(task, 'dev', split.examples, found, output)
  written = (workdir / 'predictions/dev.jsonl').read_text()
  assert output.read_text() == written
  results = workdirs.read_results(workdir)
  for metric, value in scores.score(task, split.examples, found).items():
    assert value == results['metrics'][f'eval/{task.name}/{metric}']
  return found


def count_calls(patch, module, name):
  """Returns a list that grows with each call of a module's function."""
  calls, function = [], getattr(module, name)

  def counted(*arguments, **named):
    calls.append(name)
    return function(*arguments, **named)

  patch.setattr(module, name, counted)
  return calls


@contextlib.contextmanager
def stopped():
  """A run that is begun here ends after a step, as by SIGTERM."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(processes.Preemption, 'is_due', lambda self: True)
    with pytest.raises(processes.Preempted):
      yield


def begin(config, mesh=None):
  """Returns a job and its state at step 0, by default on one device."""
  job = finetune.plan(config, mesh or runs.one_device(), splits=('train',))
  with sharding.scope(job.mesh, config.mesh.rules):
    return job, job.begin(0)


def losses_on(config, **sizes):
  """Returns loss and norm of the gradient of three steps on a mesh.

  By default on one device.
  """
  sizes = dict.fromkeys(sharding.AXES, 1) | sizes
  devices = jax.devices()[: math.prod(sizes.values())]
  mesh = sharding.make_mesh(ml_collections.ConfigDict(sizes), devices)
  job, state = begin(config, mesh)
  batches = job.tasks[0].splits['train'].batches
  size = config.train.global_batch
  rows = sharding.local_rows(mesh, size)
  losses = []
  with sharding.scope(mesh, config.mesh.rules):
    for step in range(3):
      batch = batches.train_batch(step, rows, size, 0, job.total_steps)
      state, report = job.steps['train'](
        state, sharding.put_batch(batch, mesh), jnp.int32(0)
      )
      losses += [float(report[name]) for name in ('loss', 'grad_norm')]
  return losses
