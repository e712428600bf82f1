"""The comparison with n-grams, KenLM played by programs of our own."""

import collections
import math
import sys

import numpy as np
import pytest
import runs
from gpt_store import small_gpt_config, small_stores

from data.store import corpus
from train.language import ngrams, scoring
from train.params import trained

# Add-one unigrams, as log10, in an 'ARPA' file of lines 'word value'.
LMPLZ = """
import collections, math, sys
assert sys.argv[1:3] == ['-o', '1'], sys.argv
counts = collections.Counter(sys.stdin.read().split())
total = sum(counts.values()) + 500
for word in map(str, range(500)):
  print(word, math.log10((counts[word] + 1) / total))
"""
QUERY = """
import sys
assert sys.argv[1:4] == ['-n', '-v', 'word'], sys.argv
table = dict(line.split() for line in open(sys.argv[4]))
for word in sys.stdin.read().split():
  sys.stdout.write(f'{word}=7 1 {table[word]}' + chr(9))
"""


@pytest.fixture
def kenlm(tmp_path):
  for name, program in (('lmplz', LMPLZ), ('query', QUERY)):
    path = tmp_path / 'bin' / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!{sys.executable}\n{program}')
    path.chmod(0o755)
  return tmp_path / 'bin'


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  folder = tmp_path_factory.mktemp('ngram')
  config = small_gpt_config('gpt', small_stores(folder))
  runs.train(config, folder / 'run')
  return config, folder / 'run'


def test_all_predict_the_same_tokens(finished, kenlm):
  config, workdir = finished
  figures = ngrams.compare(workdir, order=1, kenlm=str(kenlm))
  store = corpus.open_store(config.data.folder)
  held_out = [
    store.tokens[store.sentences[first] : store.sentences[last]].tolist()
    for document in np.flatnonzero(store.held_out)
    for first, last in [store.documents[document : document + 2]]
  ]
  assert figures['documents'] == len(held_out) > 1
  targets = [token for tokens in held_out for token in tokens[1:]]
  assert figures['scored_tokens'] == len(targets)
  counts = collections.Counter(dict(enumerate(store.counts.tolist())))
  size = store.tokenizer.vocab_size
  for name, more in (('ngram', 500), ('unigram', size)):
    total = counts.total() + more
    nats = -sum(math.log((counts[token] + 1) / total) for token in targets)
    assert figures[f'{name}_perplexity'] == pytest.approx(
      math.exp(nats / len(targets)), rel=1e-5
    )
  found = trained.load(workdir, expected=('gpt',))
  nats = -sum(
    scoring.score_tokens(
      found.model, found.params, tokens, context=64, stride=32
    ).sum()
    for tokens in held_out
  )
  assert figures['model_perplexity'] == pytest.approx(
    math.exp(nats / len(targets)), rel=1e-5
  )


def test_what_is_missing_or_fails_is_named(finished, kenlm):
  _, workdir = finished
  (kenlm / 'lmplz').write_text('#!/bin/sh\necho no memory >&2\nexit 3\n')
  with pytest.raises(ChildProcessError, match=r'lmplz failed \(3\):\nno mem'):
    ngrams.compare(workdir, order=1, kenlm=str(kenlm))
  (kenlm / 'query').unlink()
  with pytest.raises(FileNotFoundError, match='no query in --kenlm='):
    ngrams.compare(workdir, order=1, kenlm=str(kenlm))
