"""The cache of pieces' vectors: all tokens of words, each word's own."""

import numpy as np
import pytest
from small_elmo import small_elmo
from small_gpt import small_trained

from models.pretrained import elmo as pretrained
from train.vectors.request import Choice, Request
from train.vectors.vector_cache import VectorCache

SENTENCES = [
  'An object that can be called with arguments .'.split(),
  ['object'],
  ('Each <|endoftext|> argument is assigned ; ' * 14).split(),  # 64 positions
  ['object'],
]


def test_every_token_of_a_text(tmp_path):
  weights = small_trained('gpt2')
  cache = VectorCache(weights.weights, unit='piece')
  found = cache.vectors(SENTENCES, tmp_path)
  counts = cache.model.count_pieces(SENTENCES)
  assert max(max(each) for each in counts) > 1
  assert sum(counts[2]) > weights.model.max_length
  for sentence, start, count in zip(
    SENTENCES, found.starts, counts, strict=True
  ):
    rows = found.layers[start : start + sum(count)]
    ids = sum(weights.tokenizer.encode_words([sentence])[0], [])
    table = weights.params['embeddings']['tokens']['embedding']
    np.testing.assert_array_equal(rows[:, 0], table[np.array(ids)].astype('f2'))
    request = Request('word', 'last', choice=Choice('all'), split=list)
    (last,) = weights.vectors([sentence], request)
    ends = np.cumsum(count) - 1
    np.testing.assert_allclose(
      rows[ends, 1:].swapaxes(0, 1), last.array[1:], rtol=1e-3, atol=1e-3
    )
  assert found.starts[1] == found.starts[3]
  assert len(found.layers) == sum(map(sum, counts[:3]))
  # Of a text without symbols, the same tokens as of the running text.
  (expected,) = weights.vectors(
    [' '.join(SENTENCES[0])], Request('token', choice=Choice('all'))
  )
  np.testing.assert_allclose(
    found.layers[: sum(counts[0]), 1:].swapaxes(0, 1),
    expected.array[1:],
    rtol=1e-3,
    atol=1e-3,
  )


def test_layers_of_a_bert_are_those_of_transformers(
  torch, small_bert, tmp_path
):
  """Each word's pieces behind [CLS]; layer 0 is without positions."""
  transformers = pytest.importorskip('transformers')
  tokenizer = transformers.BertTokenizerFast.from_pretrained(small_bert)
  model = transformers.BertModel.from_pretrained(small_bert).eval()
  cache = VectorCache(small_bert, unit='piece')
  sentences = [['The', '\u200b', 'yield', 'unbelievable', '.'], ['The']]
  found = cache.vectors(sentences, tmp_path)
  for words, start, counts in zip(
    sentences,
    found.starts,
    cache.model.count_pieces(sentences),
    strict=True,
  ):
    encoded = tokenizer(words, is_split_into_words=True, return_tensors='pt')
    of_words = encoded.word_ids()[1:-1]
    assert counts == [of_words.count(word) for word in range(len(words))]
    with torch.no_grad():
      layers = model(**encoded, output_hidden_states=True).hidden_states
      lexical = model.embeddings.word_embeddings(encoded['input_ids'])
      lexical = model.embeddings.LayerNorm(lexical)
    expected = torch.stack([lexical, *layers[1:]], 2)[0, 1:-1].numpy()
    rows = found.layers[start : start + len(expected)]
    np.testing.assert_allclose(rows, expected, rtol=1e-3, atol=1e-3)


def test_words_are_the_pieces_of_an_elmo(tmp_path):
  pretrained.write_folder(tmp_path / 'elmo', *small_elmo())
  cache = VectorCache(tmp_path / 'elmo', unit='piece')
  assert cache.model.count_pieces([['a', 'cat'], []]) == [[1, 1], []]
  # The vectors of words serve both.
  assert cache.digest == VectorCache(tmp_path / 'elmo').digest
  found = cache.vectors([['a', 'cat']], tmp_path / 'cache')
  assert found.layers.shape == (2, 3, 12)
