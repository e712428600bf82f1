"""The table of perplexities: the same tokens, mixtures, refusals."""

import json
import math

import numpy as np
import pytest
import word_models
from elmo_store import WORDS, build_words, write_topics

from data.ngrams import smoothing
from data.store import corpus
from train.language import beside, held_out, ngrams
from train.params import opened
from train.run import workdirs


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  folder = tmp_path_factory.mktemp('words')
  text = write_topics(folder, 0, 30)
  return corpus.open_store(build_words(text, folder / 'store'))


@pytest.fixture(scope='module')
def scorers(store):
  return ngrams.of_store(store, (1, 2, 3), smoothing.modified_kneser_ney)


def test_all_score_the_same_tokens(store, scorers):
  models = {
    name: word_models.trained(name, store.tokenizer) for name in ('gpt', 'elmo')
  }
  figures = beside.compare(store, scorers, models, num_tokens=300, mix=0.5)
  texts = held_out.read(store, 300)
  targets = np.concatenate([text.tokens[1:] for text in texts])
  assert figures['scored_tokens'] == len(targets)
  unknown = (targets >= WORDS) | (targets == store.tokenizer.unk_id)
  assert figures['unknown_tokens'] == unknown.sum() > 0
  names = [row['model'] for row in figures['rows']]
  assert names == [
    '1-gram',
    '2-gram',
    '3-gram',
    'gpt gpt',
    'elmo elmo forward',
    'elmo elmo backward',
  ]
  gpt = np.concatenate(held_out.score(models['gpt'], store, texts)[''])
  words = np.where(unknown, 0, targets + 3)
  single = scorers[0].model.levels[0].log_probs[words] * math.log(10)
  by_name = dict(zip(names, figures['rows'], strict=True))
  for name, values in (('gpt gpt', gpt), ('1-gram', single)):
    expected = math.exp(-values.astype(float).mean())
    assert by_name[name]['perplexity'] == pytest.approx(expected, rel=1e-5)
  # A drawn model has nothing to add; half of the n-grams' is left.
  longest = by_name['3-gram']['perplexity']
  assert longest < by_name['1-gram']['perplexity']
  assert longest < by_name['gpt gpt']['mixed_perplexity'] < 2 * longest + 1e-6
  assert by_name['gpt gpt']['ngram_weight'] == 0.5
  assert 'mixed_perplexity' not in by_name['elmo elmo forward']
  shown = beside.shown(figures)
  assert shown['gpt gpt'].endswith('(its weight 0.50)')


def test_the_fitted_weight_is_the_best():
  rng = np.random.default_rng(0)
  first, second = np.log(rng.uniform(0.01, 1, (2, 500)))
  weight = beside.fit_weight(first, second)
  losses = {
    w: -np.log((1 - w) * np.exp(first) + w * np.exp(second)).mean()
    for w in (weight - 0.01, weight, weight + 0.01)
  }
  assert min(losses, key=losses.get) == weight
  # A half's weight is fitted on the other: no peeking.
  figures = beside._mixed(first, second, None)
  halves = [
    beside.fit_weight(first[s], second[s])
    for s in (slice(250), slice(250, 500))
  ]
  assert figures['ngram_weight'] == pytest.approx(np.mean(halves))


def test_what_cannot_be_compared_is_refused(store, tmp_path, monkeypatch):
  found = word_models.draw('gpt', store.tokenizer)._replace(folder=tmp_path)
  monkeypatch.setattr(opened, 'open_weights', lambda *_: found)
  same, models = beside.open_text(str(store.folder), ['run', 'a/run@9', 'run'])
  assert [*models] == ['run', 'run@9'] and same.meta == store.meta
  assert models['run'].folder == tmp_path
  _, models = beside.open_text(str(store.folder), ['a/run', 'b/run'])
  assert [*models] == ['a/run', 'b/run']
  (tmp_path / workdirs.STORE_FILE).write_text(json.dumps({'digest': 'another'}))
  with pytest.raises(ValueError, match=r'run: was trained .*data.folder='):
    beside.open_text(str(store.folder), ['run'])
  other = build_words(
    write_topics(tmp_path, 0, 10), tmp_path / 'other', 'train:words:50'
  )
  with pytest.raises(ValueError, match='run: its vocabulary is .*300.*50 are'):
    beside.open_text(str(other), ['run'])
