"""The cache of pieces' vectors: all tokens of words, each word's own."""

import numpy as np
from small_elmo import small_elmo
from small_gpt import small_trained

from models.pretrained import elmo as pretrained
from train.vectors import piece_cache, text_vectors, word_cache
from train.vectors.request import Choice, Request

SENTENCES = [
  'An object that can be called with arguments .'.split(),
  ['object'],
  ('Each <|endoftext|> argument is assigned ; ' * 14).split(),  # 64 positions
  ['object'],
]


def test_every_token_of_a_text(tmp_path):
  weights = small_trained('gpt2')
  source = piece_cache.PieceSource(weights, 'digest')
  found = word_cache.vectors(source, SENTENCES, tmp_path)
  counts = piece_cache.count_pieces(source, SENTENCES)
  assert max(max(each) for each in counts) > 1
  assert sum(counts[2]) > weights.model.max_length
  for sentence, start, count in zip(
    SENTENCES, found.starts, counts, strict=True
  ):
    rows = found.layers[start : start + sum(count)]
    request = Request('word', 'last', choice=Choice('all'), split=list)
    (last,) = text_vectors.embed_texts(weights, [sentence], request)
    ends = np.cumsum(count) - 1
    np.testing.assert_allclose(
      rows[ends].swapaxes(0, 1), last.array, rtol=1e-3, atol=1e-3
    )
  assert found.starts[1] == found.starts[3]
  assert len(found.layers) == sum(map(sum, counts[:3]))
  # Of a text without symbols, the same tokens as of the running text.
  (expected,) = text_vectors.embed_texts(
    weights, [' '.join(SENTENCES[0])], Request('token', choice=Choice('all'))
  )
  np.testing.assert_allclose(
    found.layers[: sum(counts[0])].swapaxes(0, 1),
    expected.array,
    rtol=1e-3,
    atol=1e-3,
  )


def test_words_are_the_pieces_of_an_elmo(tmp_path):
  pretrained.write_folder(tmp_path / 'elmo', *small_elmo())
  source = piece_cache.open_source(tmp_path / 'elmo')
  assert piece_cache.count_pieces(source, [['a', 'cat'], []]) == [[1, 1], []]
  # The vectors of words serve both.
  assert source.digest == word_cache.open_source(tmp_path / 'elmo').digest
  found = word_cache.vectors(source, [['a', 'cat']], tmp_path / 'cache')
  assert found.layers.shape == (2, 3, 12)
