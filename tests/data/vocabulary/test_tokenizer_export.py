"""Tokenizers written for `transformers`."""

import pytest
from token_texts import same_as_theirs

from data.vocabulary import (
  bpe,
  bpe_training,
  tokenization,
  tokenizer_export,
  wordpiece,
)

TEXTS = (
  'Hello, World! COVID and covids [ENT] b[ENT]c  <pad>x 北京 Café [unused7]',
  'ab' * 60 + ' é́ 😀 a\x01b \n New York,New yorks ',
)


@pytest.mark.parametrize('max_word_chars', [100, 200])
@pytest.mark.parametrize('cased', [False, True])
def test_exported_wordpiece(cased, max_word_chars, tmp_path):
  text = ['Élan Élan The The the the élan élan ab ba'] * 3
  ours = wordpiece.train_wordpiece(text, 60, cased=cased)
  ours = wordpiece._from_pieces(ours.pieces, cased, max_word_chars)
  theirs = same_as_theirs(ours, tmp_path, [*TEXTS, text[0]])
  ids = ours.encode_batch(['the élan', 'ab'])
  found = theirs('the élan', 'ab')
  assert found['input_ids'] == [
    ours.cls_id,
    *ids[0],
    ours.sep_id,
    *ids[1],
    ours.sep_id,
  ]
  assert found['token_type_ids'] == [0] * (2 + len(ids[0])) + [1] * (
    1 + len(ids[1])
  )
  assert theirs.decode(ids[0]) == ours.decode(ids[0])
  assert (theirs.mask_token_id, theirs.pad_token_id) == (
    ours.mask_id,
    ours.pad_id,
  )


def test_exported_byte_bpe(tmp_path):
  ours = bpe_training.train_byte_bpe(TEXTS * 3, 300)
  theirs = same_as_theirs(ours, tmp_path, TEXTS)
  assert theirs.eos_token_id == ours.end_of_text_id
  assert theirs.decode(ours.encode_batch(TEXTS)[0]) == TEXTS[0]
  assert theirs('a<|endoftext|>')['input_ids'][-1] == ours.end_of_text_id


def test_exported_gpt(tmp_path):
  trained = bpe_training.train_bpe(TEXTS * 3, 400)
  basic, release = (
    bpe.make_bpe(trained.pieces[:-3], trained.merges, words)
    for words in (bpe.BASIC, bpe.RELEASE)
  )
  theirs = same_as_theirs(basic, tmp_path, TEXTS)
  assert len(theirs) == basic.vocab_size - 3
  (ids,) = basic.encode_batch(['hello, new york'])
  assert theirs.decode(ids) == 'hello , new york'
  # The way of finding words is told to us only.
  tokenizer_export.export(release, tmp_path, max_length=512)
  assert tokenization.load(tmp_path).fingerprint == release.fingerprint


def test_words_are_not_exported(tmp_path):
  words = tokenization.train(
    ['the cat sat'] * 3, tokenization.Training('words', 5)
  )
  with pytest.raises(ValueError, match='has no tokenizer like it'):
    tokenizer_export.export(words, tmp_path, max_length=1)
