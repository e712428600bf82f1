"""Scorers of sentences: n-grams of files and stores, and what is refused."""

import numpy as np
import pytest
import small_published
from text_stores import build_quietly

from data.ngrams import smoothing, texts
from data.store import corpus
from data.vocabulary import tokenization
from train.language import ngrams, sentence_scorers, sentence_sums

LINES = ['the cat sees a dog', 'a dog sees the cat', 'the dog sleeps'] * 4
ARPA = """\\data\\
ngram 1=4

\\1-grams:
-1\t<s>
-1\t</s>
-2\t<unk>
-0.5\tcat

\\end\\
"""


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  folder = tmp_path_factory.mktemp('store')
  (folder / 'text.txt').write_text('\n'.join(LINES) + '\n')
  build_quietly(
    str(folder / 'text.txt'), 'train:words:7:spaces', folder / 'store'
  )
  return folder / 'store'


def test_n_grams_of_a_store_are_those_of_train_ngram(store):
  sentences = ['the cat sees a dog', 'a dog sleeps', 'the xylophone']
  scorer = sentence_scorers.open_scorer(str(store), sentences, 'sum')
  sums, sizes, way = scorer.score(sentences, scoring='sum')
  opened = corpus.open_store(store)
  words = texts.words_of_store(opened)
  assert len(opened.tokenizer.pieces) > 7  # some types are no words
  (longest,) = ngrams.of_store(opened, [5], smoothing.modified_kneser_ney)
  for sentence, found in zip(sentences, sums, strict=True):
    ids = words.of_token[opened.tokenizer.encode_batch([sentence])[0]]
    starts = np.arange(len(ids)) == 0
    expected = longest.model.log_probs(ids, starts).sum()
    assert found == pytest.approx(expected)
  assert sizes.tolist() == [5, 3, 2]
  assert 'token store' in way and 'no end is scored' in way
  # A score does not depend on the others.
  alone, _, _ = scorer.score(sentences[1:2], scoring='sum')
  np.testing.assert_allclose(alone, sums[1:2])


def test_a_file_is_read_by_its_name(tmp_path):
  (tmp_path / 'x.arpa').write_text(ARPA)
  scorer = sentence_scorers.open_scorer(
    str(tmp_path / 'x.arpa'), ['cat', 'dog'], 'sum'
  )
  sums, sizes, way = scorer.score(['cat', 'dog'], scoring='sum')
  np.testing.assert_allclose(sums, np.log(10) * np.array([-1.5, -3]), rtol=1e-5)
  assert sizes.tolist() == [2, 2] and 'after <s>' in way


def test_a_model_is_checked_before_it_is_scored(store, tmp_path):
  tokenizer = tokenization.train(
    LINES, tokenization.parse_training('train:bytebpe:300')
  )
  small_published.write_gpt(tmp_path, tokenizer)
  scorer = sentence_scorers.open_scorer(str(tmp_path), LINES[:2], 'sum')
  sums, _, way = scorer.score(LINES[:2], scoring='sum')
  assert len(sums) == 2 and 'after the symbol' in way
  assert way == sentence_sums.describe(scorer.found, 'sum', False)
  with pytest.raises(ValueError, match='--scoring=holistic: .* of gpt2, which'):
    sentence_scorers.open_scorer(str(tmp_path), LINES[:2], 'holistic')
  with pytest.raises(ValueError, match="'': has no word of"):
    sentence_scorers.open_scorer(str(store), ['the', ''], 'sum')
  with pytest.raises(FileNotFoundError):
    sentence_scorers.open_scorer(str(tmp_path / 'none'), ['a'], 'sum')
  with pytest.raises(ValueError, match='--scoring=forward: .* holds n-grams'):
    sentence_scorers.open_scorer(str(store), ['the'], 'forward')
