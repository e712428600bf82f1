"""Probabilities, queries and keys against transformers, a text at a time."""

import functools
import pydoc_data.topics

import attention_cases
import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train.views import attention_weights
from train.views.attention_texts import ShownText

KINDS = {'bert': 'wordpiece', 'gpt': 'bpe', 'gpt2': 'bytebpe'}
TEXTS = (
  ShownText('The yield statement is only used in a generator function.'),
  ShownText('An object: naïve', 'it can be called with\n\narguments'),
)


@pytest.fixture(scope='module')
def make(torch, tmp_path_factory):
  """Returns a function name -> (ours, PyTorch's model), random."""

  @functools.cache
  def make(name):
    tokenizer = tokenization.train(
      list(pydoc_data.topics.topics.values())[:20],
      tokenization.parse_training(f'train:{KINDS[name]}:400'),
    )
    folder = tmp_path_factory.mktemp(name)
    torch.manual_seed(0)
    if name == 'bert':
      model = small_published.write_bert(folder, tokenizer, 'BertModel')
    else:
      model = small_published.write_gpt(folder, tokenizer)
    model.set_attn_implementation('eager')
    return attention_weights.open_model(folder), model.eval()

  return make


@pytest.mark.parametrize('name', KINDS)
def test_attention_is_that_of_transformers(make, torch, name):
  found, model = make(name)
  for ours in attention_weights.attend(found, TEXTS):
    inputs = {'input_ids': torch.tensor([ours.row.ids])}
    if name == 'bert':
      inputs['token_type_ids'] = torch.tensor([ours.row.segments])
    with torch.no_grad():
      theirs = model(**inputs, output_attentions=True).attentions
    theirs = np.stack([layer[0].numpy() for layer in theirs])
    np.testing.assert_allclose(ours.weights_LNTS, theirs, rtol=0, atol=1e-5)
    assert np.ptp(theirs) > 0.05
    of_vectors = attention_cases.softmax(
      ours.query_LTNH, ours.key_LSNH, name != 'bert'
    )
    np.testing.assert_allclose(of_vectors, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize('name', KINDS)
def test_tokens_words_and_segments(make, name):
  found, _ = make(name)
  single, pair = attention_weights.attend(found, TEXTS)
  is_bert = name == 'bert'
  for ours in (single, pair):
    row = ours.row
    first = row.segments.index(1) if 1 in row.segments else len(row.ids)
    parts = found.encode([ours.text.first])
    if ours.text.second is not None:
      spaced = ' ' * (name == 'gpt2') + ours.text.second
      parts += found.encode([spaced])
    plain = [
      i for i, symbol in zip(row.ids, row.symbols, strict=True) if not symbol
    ]
    assert plain == sum(parts, [])
    assert sum(row.symbols) == is_bert * (len(parts) + 1)
    assert first == len(parts[0]) + 2 * is_bert
    assert row.segments == [0] * first + [1] * (len(row.ids) - first)
  words = [
    word
    for word, before, symbol in zip(
      single.words, [None, *single.words], single.row.symbols, strict=False
    )
    if word != before and not symbol
  ]
  text = 'the yield statement is only used in a generator function .'
  assert words == text.split()
  assert len(single.pieces) > len(words)  # some words have several
  shown = ''.join(pair.pieces)
  assert ('\u23ce' in shown) == (not is_bert)


def test_texts_that_are_refused(make):
  found, _ = make('bert')
  for text, message in (
    (
      ShownText('a ' * 63),
      'text 1 has 65 tokens, symbols included, and the model 64',
    ),
    (ShownText('a', '\u200b'), r"text 1 has no token of .*: '.u200b'"),
  ):
    with pytest.raises(ValueError, match=message):
      list(attention_weights.attend(found, [text]))
  (longest,) = attention_weights.attend(found, [ShownText('a ' * 62)])
  assert longest.weights_LNTS.shape == (2, 2, 64, 64)
