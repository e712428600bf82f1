"""GPT-2's tokenizer against that of `transformers`."""

import itertools
import random

import pytest
from token_texts import check_same, check_transformers

from data.vocabulary import tokenization


def test_gpt2_equals_transformers_and_loses_nothing(
  gpt2, folder, batches, texts, tmp_path
):
  import transformers

  theirs = transformers.GPT2Tokenizer(
    vocab=str(folder / 'gpt2/encoder.json'),
    merges=str(folder / 'gpt2/vocab.bpe'),
  )
  theirs.save_pretrained(tmp_path)
  ours = tokenization.load(tmp_path)
  assert ours.fingerprint == gpt2.fingerprint
  count = check_transformers(ours, theirs, batches)
  print(f'GPT-2: {count:,} ids')
  # They recognise the symbol in the text, as we do when asked.
  expected = theirs(texts, add_special_tokens=False)['input_ids']
  check_same(gpt2.encode_batch(texts, special=True), expected, texts)
  for text, ids in zip(texts, gpt2.encode_batch(texts), strict=True):
    assert gpt2.decode(ids) == text


def test_gpt2s_ids_by_word(gpt2, texts):
  sentences = [text.split() for text in texts]
  found = gpt2.encode_words(sentences)
  joined = gpt2.encode_batch([' '.join(words) for words in sentences])
  for words, ids, expected in zip(sentences, found, joined, strict=True):
    assert len(ids) == len(words)
    assert list(itertools.chain.from_iterable(ids)) == expected
  assert gpt2.encode_words([['Hello', 'world', '']]) == [[[15496], [995], []]]


def test_gpt2_ids(gpt2):
  assert gpt2.vocab_size == 50_257 and gpt2.end_of_text_id == 50_256
  assert gpt2.unk_id is None and gpt2.white_space == 'kept'
  assert gpt2.encode_batch(['Hello world']) == [[15496, 995]]
  text = 'a<|endoftext|><|endoftext|> b'
  (ids,) = gpt2.encode_batch([text])
  assert 50_256 not in ids and gpt2.decode(ids) == text
  (asked,) = gpt2.encode_batch([text], special=True)
  assert asked == [64, 50_256, 50_256, 275] and gpt2.decode(asked) == text
  with pytest.raises(ValueError, match=r'U\+D83D at character 3'):
    gpt2.encode_batch(['fine', 'no \ud83d text'])


def test_any_text_comes_back(gpt2):
  rng = random.Random(0)
  points = [*range(0xD800), *range(0xE000, 0x3_1400)]
  samples = [''.join(map(chr, rng.sample(points, 50))) for _ in range(300)]
  for text, ids in zip(samples, gpt2.encode_batch(samples), strict=True):
    assert gpt2.decode(ids) == text
