"""N-grams of stores and files, KenLM played by a program of our own."""

import math
import sys

import numpy as np
import pytest
import runs
from elmo_store import build_words, write_topics
from gpt_store import small_gpt_config, small_stores
from ngram_texts import draw_lines

from data.ngrams import smoothing
from data.store import corpus
from train.language import beside, inputs, ngrams, scoring
from train.vectors.trained_model import TrainedModel

# Add-one unigrams in an ARPA file.
LMPLZ = """
import collections, math, sys
assert sys.argv[1:3] == ['-o', '1'], sys.argv
counts = collections.Counter(sys.stdin.read().split())
total = sum(counts.values()) + len(counts) + 1
rows = {'<unk>': 0, **counts}
print('\\\\data\\\\\\nngram 1=%d\\n\\n\\\\1-grams:' % len(rows))
for word, times in rows.items():
  print('%.7f\\t%s' % (math.log10((times + 1) / total), word))
print('\\n\\\\end\\\\')
"""


@pytest.fixture
def kenlm(tmp_path):
  path = tmp_path / 'bin' / 'lmplz'
  path.parent.mkdir()
  path.write_text(f'#!{sys.executable}\n{LMPLZ}')
  path.chmod(0o755)
  return str(path.parent)


@pytest.fixture(scope='module')
def finished(one_device, tmp_path_factory):
  folder = tmp_path_factory.mktemp('ngram')
  config = small_gpt_config('gpt', small_stores(folder))
  runs.train(config, folder / 'run')
  return config, folder / 'run'


@pytest.mark.slow
def test_a_run_beside_kenlms_model(finished, kenlm):
  config, workdir = finished
  store, models = beside.open_text(str(workdir), [])
  scorers = ngrams.of_store(store, [1], None, kenlm)
  figures = beside.compare(store, scorers, models)
  held_out = [
    store.tokens[store.sentences[first] : store.sentences[last]].tolist()
    for document in np.flatnonzero(store.held_out)
    for first, last in [store.documents[document : document + 2]]
  ]
  assert figures['texts'] == len(held_out) > 1
  targets = [token for tokens in held_out for token in tokens[1:]]
  assert figures['scored_tokens'] == len(targets)
  seen = (store.counts > 0).sum()
  total = store.counts.sum() + seen + 1
  nats = -sum(math.log((store.counts[token] + 1) / total) for token in targets)
  ngram, model = figures['rows']
  assert ngram['perplexity'] == pytest.approx(
    math.exp(nats / len(targets)), rel=1e-5
  )
  found = TrainedModel(workdir)
  nats = -sum(
    scoring.score_tokens(
      found.model, found.params, tokens, context=64, stride=32
    ).sum()
    for tokens in held_out
  )
  assert model['perplexity'] == pytest.approx(
    math.exp(nats / len(targets)), rel=1e-5
  )
  assert model['model'] == 'run gpt'


def test_kenlms_model_comes_back_with_its_unknown_word(kenlm, tmp_path):
  """KenLM keeps <unk>: the unknown word of a store has a name of its own."""
  store = corpus.open_store(
    build_words(
      write_topics(tmp_path, 0, 12), tmp_path / 'words', 'train:words:50'
    )
  )
  (made,) = ngrams.of_store(store, [1], None, kenlm)
  ngrams.write(made.model, tmp_path / 'a.arpa.gz')
  assert (tmp_path / 'a.arpa.gz').read_bytes()[:2] == b'\x1f\x8b'
  (read,) = ngrams.read(tmp_path / 'a.arpa.gz', store)
  text = np.array([3, 0, 4, 0, 0, 5])
  found = read.log_probs(text)
  np.testing.assert_allclose(found, made.log_probs(text), rtol=1e-6)
  assert found[0] > -2  # many words are unknown; <unk> was never seen


def test_what_is_missing_or_fails_is_named(finished, kenlm, tmp_path):
  config, _ = finished
  store = corpus.open_store(config.data.folder)
  (tmp_path / 'bin' / 'lmplz').write_text(
    '#!/bin/sh\necho no memory >&2\nexit 3\n'
  )
  with pytest.raises(ChildProcessError, match=r'lmplz failed \(3\):\nno mem'):
    ngrams.of_store(store, [1], None, kenlm)
  (tmp_path / 'bin' / 'lmplz').unlink()
  with pytest.raises(FileNotFoundError, match='no lmplz in --kenlm='):
    ngrams.of_store(store, [1], None, kenlm)


def test_ngrams_of_a_store_come_back_from_a_file(finished, tmp_path):
  config, _ = finished
  store = corpus.open_store(config.data.folder)
  (scorer,) = ngrams.of_store(store, [3], smoothing.katz)
  ngrams.write(scorer.model, tmp_path / 'a.arpa')
  (found,) = ngrams.read(tmp_path / 'a.arpa', store)
  words = np.random.default_rng(0).integers(3, len(scorer.model.words), 300)
  np.testing.assert_allclose(
    found.log_probs(words), scorer.log_probs(words), rtol=1e-5
  )
  ours = next(iter(smoothing.METHODS))
  (tmp_path / 'text').write_text('\n'.join(draw_lines(20)))
  _, other = ngrams.of_files([tmp_path / 'text'], 2, smoothing.METHODS[ours], 1)
  ngrams.write(other, tmp_path / 'b.arpa')
  with pytest.raises(ValueError, match='b.arpa: knows none of the 500 words'):
    ngrams.read(tmp_path / 'b.arpa', store)


def test_files_are_counted_and_scored(tmp_path):
  text, test = tmp_path / 'text', tmp_path / 'test'
  text.write_text('a b\na c\n')
  test.write_text('a b\n\nd a\n')
  estimate = inputs.parse_smoothing('add_k:0.5', 1)
  figures, model = ngrams.of_files([text], 1, estimate, 1)
  assert figures['train_words'] == 6  # with the ends of texts
  # a 2, the end 2, b 1, c 1, <unk> 0: (count + 0.5) / (6 + 5 x 0.5)
  scores = [2.5, 1.5, 2.5, 0.5, 2.5, 2.5]
  found = ngrams.score_files(model, [test])
  nats = -np.log(np.array(scores) / 8.5)
  assert found['scored_words'] == 6 and found['unknown_words'] == 1
  assert found['perplexity'] == pytest.approx(np.exp(nats.mean()), rel=1e-5)
  known = np.delete(nats, 3)
  assert found['perplexity_of_known'] == pytest.approx(
    np.exp(known.mean()), rel=1e-5
  )
  _, none = ngrams.of_files([text], 2, smoothing.maximum_likelihood, 1)
  found = ngrams.score_files(none, [test])
  assert found['impossible_words'] > 0 and found['perplexity'] == math.inf
  test.write_text('\n')
  with pytest.raises(ValueError, match='test: no words to score'):
    ngrams.score_files(model, [test])
