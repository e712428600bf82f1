"""The published vocabularies of GPT and GPT-2, and texts to compare on."""

import itertools

import pytest
from token_texts import HARD

from data.vocabulary import tokenization


@pytest.fixture(scope='module')
def folder(sesame_data):
  return sesame_data / 'fixtures/vocab'


@pytest.fixture(scope='module')
def gpt(folder):
  return tokenization.load(folder / 'gpt')


@pytest.fixture(scope='module')
def gpt2(folder):
  return tokenization.load(folder / 'gpt2')


@pytest.fixture(scope='module')
def texts(batches):
  """Slices of the data sets, and the hard ones."""
  found = list(itertools.chain.from_iterable(itertools.islice(batches(), 20)))
  assert sum(map(len, found)) > 250_000
  return [*found, *HARD]
