"""Parts of words and their buckets are fastText's, as gensim has them."""

import numpy as np
import pytest
from gensim.models import fasttext_inner

from data.vocabulary.word2vec import ngrams

WORDS = ['the', 'Straße', 'a', '日本語テキスト', 'new_york', 'well-known']


@pytest.mark.parametrize('sizes', [(3, 6), (2, 3), (1, 4)])
def test_parts_are_those_of_gensim(sizes):
  for word in WORDS:
    found = list(ngrams.parts(word, *sizes))
    theirs = fasttext_inner.compute_ngrams(word, *sizes)
    # The release has no frame alone; gensim does.
    assert sorted(found) == sorted(p for p in theirs if p not in ('<', '>'))
  rows, counts = ngrams.number(WORDS, 1000, *sizes)
  each = np.split(rows, np.cumsum(counts)[:-1])
  for word, row in zip(WORDS, each, strict=True):
    expected = [
      fasttext_inner.ft_hash_bytes(part.encode()) % 1000
      for part in ngrams.parts(word, *sizes)
    ]
    np.testing.assert_array_equal(row, expected)
