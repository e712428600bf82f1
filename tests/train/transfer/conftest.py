import functools

import jax
import pytest
import small_published
import small_tasks
import torch

from data import tokenization
from train import sharding


@pytest.fixture(scope='module')
def one_device():
  """Runs see the first device alone."""
  with pytest.MonkeyPatch.context() as patch:
    make = functools.partial(sharding.make_mesh, devices=jax.devices()[:1])
    patch.setattr(sharding, 'make_mesh', make)
    yield


@pytest.fixture(scope='session')
def own_set(tmp_path_factory):
  """A folder of a small set of sentences of two classes."""
  return small_tasks.write_sentences(tmp_path_factory.mktemp('own') / 'set')


@pytest.fixture(scope='session')
def small_bert(small_store, tmp_path_factory):
  """A folder of published weights of a small BERT, random ones."""
  torch.manual_seed(0)
  folder = tmp_path_factory.mktemp('published') / 'bert'
  small_published.write_bert(
    folder, tokenization.load(small_store), kind='BertModel'
  )
  return folder


@pytest.fixture(scope='session')
def make_config(own_set, small_bert):
  """Returns a function (overrides) -> config of a fine-tuning of seconds."""
  return functools.partial(small_tasks.small_config, own_set, small_bert)
