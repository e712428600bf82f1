"""Families of tables of words: shared checks, words in order, neighbours."""

import types

import numpy as np
import pytest

from data.vocabulary import words
from train.architectures import families, word_tables
from train.run import settings

CONFIGS = {'word2vec_novels': 'sgd', 'glove_novels': 'adagrad'}


@pytest.mark.parametrize('name', CONFIGS)
@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'objective.min_count': 0}, 'objective.min_count=0: expected 1 or more'),
    ({'objective.updates': 0}, 'objective.updates=0: expected 1 or more'),
    ({'objective.classes': -1}, 'objective.classes=-1: expected 0 or more'),
    ({'optim.name': 'adamw'}, "optim.name='adamw': expected '{optimizer}'"),
    ({'model.dtype': 'bfloat16'}, "model.dtype='bfloat16': expected 'float32'"),
    ({'train.micro_batches': 2}, 'train.micro_batches=2: expected 1'),
    (
      {'train.phases': ((1, 64, 100, 'continue'),)},
      'global batch of 100, expected a multiple of objective.updates=',
    ),
    (
      {'data.tokenizer': 'train:wordpiece:6000'},
      "data.tokenizer='train:wordpiece:6000': expected train:words:N",
    ),
  ],
)
def test_wrong_keys_are_refused(name, overrides, message):
  config = settings.load_config(name)
  with pytest.raises(
    ValueError, match=message.replace('{optimizer}', CONFIGS[name])
  ):
    families.check_config(settings.with_overrides(config, overrides))


def test_neighbours_are_those_of_the_cosine(capsys):
  found = [f'w{i}' for i in range(8)]
  angles = np.array([0, 0.1, 0.3, 1, 1.2, 2, 2.5, 3])
  vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  vectors *= np.arange(1, 9)[:, None]
  show = word_tables.printer(lambda *_: (found, vectors))
  show(None, None, types.SimpleNamespace(), 64)
  text = ''.join(capsys.readouterr())
  assert 'w3: w2, w1, w0' in text  # of the more frequent half


def test_words_fall_by_count_and_files_agree(tmp_path, monkeypatch):
  del tmp_path
  pieces = [*words.SPECIALS, 'a', 'b', 'c']
  counts = np.array([9] * len(words.SPECIALS) + [2, 5, 1])
  store = types.SimpleNamespace(
    tokenizer=types.SimpleNamespace(pieces=pieces), folder='store'
  )
  monkeypatch.setattr(
    word_tables.sampled_words,
    'word_counts',
    lambda store, least: np.where(
      (np.arange(len(counts)) >= len(words.SPECIALS)) & (counts >= least),
      counts,
      0,
    ),
  )
  found, order = word_tables.learnt_words(store, 2)
  assert found == ['b', 'a']
  assert [pieces[i] for i in order] == found
