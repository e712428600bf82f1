"""A pre-training's config has the keys that its family reads, and no other."""

import sys

import pytest
import runs
from ml_collections import config_dict

from train.run import settings

SMALL = {
  'data.document_break': '== .*',
  'train.log_every': 2,
  'train.eval_every': 2,
  'train.phases': ((2, 64, 8, 'continue'),),
  'train.num_epochs': None,
  'eval.max_windows': 8,
  'eval.global_batch': 8,
}
FAMILIES = {
  'bert_tiny': 'train:wordpiece:400',
  'gpt_tiny': 'train:bpe:400',
  'gpt_tiny:lstm': 'train:bpe:400',
  'nnlm_tiny': 'train:words:400',
  'elmo_tiny': 'train:words:400',
  'word2vec_novels': 'train:words:400',
  'glove_novels': 'train:words:400',
}
# Read where another key says so.
CONDITIONAL = {
  'init.new_rows',  # with init.weights
  'train.reset_streams',  # where a run goes on with another batch
  'optim.beta1',  # by the optimisers that have means of gradients
  'optim.beta2',
  'optim.epsilon',
  'optim.decay_share',  # with optim.schedule='wsd'
}
# They walk over all keys of a config, of whichever family.
WALKERS = ('ml_collections', 'train/run/settings.py', '/configs/', 'copy.py')


@pytest.fixture
def read(monkeypatch):
  """The (keys of the section, key) that functions of ours have read."""
  seen = set()

  def recording(name):
    get = getattr(config_dict.ConfigDict, name)

    def record(self, key):
      frame = sys._getframe(1)
      while 'ml_collections' in frame.f_code.co_filename:
        frame = frame.f_back
      if not any(part in frame.f_code.co_filename for part in WALKERS):
        seen.add((frozenset(self.keys()), key))
      return get(self, key)

    monkeypatch.setattr(config_dict.ConfigDict, name, record)

  recording('__getattr__')
  recording('__getitem__')
  return seen


@pytest.mark.slow
@pytest.mark.parametrize('name', FAMILIES)
def test_each_key_is_read(name, small_config, read, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  source = small_config().data.source
  config = settings.load_config(name)
  changes = {'data.source': source, 'data.tokenizer': FAMILIES[name]}
  if 'updates' in config.get('objective', ()):
    changes['objective.updates'] = 1
  config = settings.with_overrides(config, SMALL | changes)
  sections = {
    section: frozenset(keys.keys()) for section, keys in config.items()
  }
  read.clear()
  runs.train(config, tmp_path / 'run', fresh=True)
  unread = {
    f'{section}.{key}'
    for section, keys in sections.items()
    for key in keys
    if (keys, key) not in read
  }
  assert unread <= CONDITIONAL
