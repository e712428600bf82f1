"""A toy family of models and a toy objective, added to a copy of the tree."""

import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from launch import environment

ROOT = pathlib.Path(__file__).parents[3]

# models/toy.py: the mean of all embeddings so far tells the next token.
MODEL = """
import jax.numpy as jnp
from flax import linen as nn

from models import layers


class Toy(nn.Module):
  vocab_size: int
  embed_dim: int
  max_length: int

  @nn.compact
  def __call__(self, tokens, token_mask, positions, *, train):
    del train
    table = layers.TokenTable(
      self.vocab_size,
      self.embed_dim,
      table_init=nn.initializers.normal(0.1),
      dtype=jnp.float32,
      name='tokens',
    )
    sums = jnp.cumsum(table(tokens) * token_mask[..., None], axis=1)
    means = sums / (1 + positions[..., None])
    logits = layers.mask_padding(table.attend(means), self.vocab_size)
    return {'lm_logits': logits}
"""

# train/architectures/toy.py: what else is known of the family.
FAMILY = '''
import jax.numpy as jnp

from models import toy
from train.architectures import gpt


def build_model(model_config, vocab_size):
  return toy.Toy(vocab_size, model_config.embed_dim, model_config.max_length)


class Confident(gpt.NextTokens):
  """The next token, and how sure of it the model is: a new metric."""

  loss_names = ('sure',)
  metric_names = ('lm_accuracy', 'margin')
  perplexities = {}

  def losses(self, outputs, batch):
    found, metrics = super().losses(outputs, batch)
    weights = batch['loss_weights']
    margin = outputs['lm_logits'].max(-1) - outputs['lm_logits'].mean(-1)
    metrics['margin'] = (jnp.sum(margin * weights), weights.sum())
    return {'sure': found['lm']}, metrics

  def weights(self, batch):
    return {'sure': super().weights(batch)['lm']}


ARCHITECTURE = gpt.GPT._replace(
  build_model=build_model,
  adjust_init=lambda model, params, init_config: params,
  print_samples=lambda model, params, store, length: None,
  objectives={'lm': gpt.NextTokens, 'confident': Confident},
)
'''

# configs/toy_tiny.py
CONFIG = """
from configs import gpt_tiny


def get_config(arg=''):
  config = gpt_tiny.get_config(arg).unlock()
  config.model.name = 'toy'
  config.model.embed_dim = 16
  config.train.phases = ((2, 16, 8, 'continue'),)
  config.train.log_every = 1
  config.eval.max_windows = 16
  return config.lock()
"""


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
  """The packages with a toy family: three new files, and one row of a table."""
  root = tmp_path_factory.mktemp('tree')
  for package in ('configs', 'data', 'models', 'train'):
    shutil.copytree(
      ROOT / package,
      root / package,
      ignore=shutil.ignore_patterns('__pycache__'),
    )
  (root / 'models' / 'toy.py').write_text(MODEL)
  (root / 'train' / 'architectures' / 'toy.py').write_text(FAMILY)
  (root / 'configs' / 'toy_tiny.py').write_text(CONFIG)
  table = root / 'train' / 'architectures' / 'families.py'
  text = table.read_text()
  row = "  'toy': ('train.architectures.toy:ARCHITECTURE', ('score',)),\n"
  assert text.count("  'bert': (\n") == 1
  table.write_text(text.replace("  'bert': (\n", f"{row}  'bert': (\n"))
  return root


# Trains with the one objective, with the other by train.main; prints what of
# that run's metrics is drawn.
PROGRAM = """
import sys
from train import main
from train.pretrain import job
from train.run import curves, metrics, settings, training
folder, workdir = sys.argv[1:]
config = settings.with_overrides(
  settings.load_config('toy_tiny'), {'data.folder': folder})
training.train(job.make(config, workdir + '/lm'), workdir + '/lm')
workdir += '/confident'
sys.argv[1:] = [
  '--config', 'toy_tiny', '--config.data.folder=' + folder,
  '--config.train.objective=confident', '--workdir=' + workdir]
main.main()
names = {name for _, name, _ in metrics.read_metrics(workdir)}
print('PANELS', curves.panels(names))
"""


def test_a_toy_family_and_a_toy_objective_train(tree, small_store, tmp_path):
  variables = environment()
  path = os.pathsep.join([str(tree), variables['PYTHONPATH']])
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, str(small_store), str(tmp_path)],
    cwd=tree,
    env=variables | {'PYTHONPATH': path},
    capture_output=True,
    text=True,
    timeout=400,
  )
  assert done.returncode == 0, done.stderr
  names = {}
  for objective in ('lm', 'confident'):
    workdir = tmp_path / objective
    results = json.loads((workdir / 'results.json').read_text())
    assert results['steps'] == 2
    with (workdir / 'metrics.csv').open() as file:
      names[objective] = {row['metric'] for row in csv.DictReader(file)}
  assert {'train/lm_loss', 'eval/perplexity'} <= names['lm']
  assert {'train/sure_loss', 'eval/sure_loss'} <= names['confident']
  assert {'train/margin', 'eval/margin'} <= names['confident']
  drawn = done.stdout.rpartition('PANELS')[2]
  assert 'eval/margin' in drawn and 'eval/sure_loss' in drawn
