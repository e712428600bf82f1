"""Which tokenizer is loaded, trained or refused."""

import numpy as np
import pytest
import transformers

from data.vocabulary import (
  bpe,
  bpe_training,
  byte_bpe,
  tokenization,
  wordpiece,
)


def test_what_train_may_say():
  parse = tokenization.parse_training
  assert parse('runs/store') is None
  assert parse('train:wordpiece:99') == tokenization.Training('wordpiece', 99)
  assert parse('train:wordpiece:99:cased').cased
  assert parse('train:bytebpe:300').white_space == 'kept'
  for wrong in ('train:bpe', 'train:bpe:9:cased', 'train:unigram:9', 'train:'):
    with pytest.raises(ValueError, match='expected train:wordpiece:N'):
      parse(wrong)
  for kind, least in tokenization.LEAST_SIZES.items():
    assert parse(f'train:{kind}:{least}').size == least
    with pytest.raises(ValueError, match=f'expected {least} pieces or more'):
      parse(f'train:{kind}:{least - 1}')


def test_inherited_ids(tmp_path):
  file = tmp_path / 'vocab.txt'
  pieces = [*wordpiece.SPECIALS, 'the', 'cat', '##s']
  file.write_text('\n'.join(pieces))
  base = tokenization.load(file)
  file.write_text('\n'.join([*pieces, 'covid', '##x']))
  larger = tokenization.load(file)
  found = tokenization.inherited_ids(larger, base)
  assert found.dtype == np.int32
  assert found.tolist() == [*range(8), -1, -1]
  assert tokenization.inherited_ids(base, base).tolist() == list(range(8))
  cased = tokenization.load(file, cased=True)
  for one, other, message in (
    (base, larger, 'the one has 10 pieces, the other only 8'),
    (cased, base, '`cased` is False in the one, True in the other'),
    (
      wordpiece._from_pieces([*pieces[:6], 'dog', '##s'], False),
      base,
      "piece 6 is 'cat' in the one, 'dog' in the other",
    ),
    (bpe_training.train_byte_bpe(TEXTS, 300), base, 'the other byte-level BPE'),
  ):
    with pytest.raises(ValueError, match=message):
      tokenization.inherited_ids(one, other)


def test_inherited_ids_of_gpt():
  """Its three symbols stay last."""
  old = ['<unk>', 'a', 'b', 'a</w>', 'b</w>']
  base = bpe.make_bpe(old, (), bpe.BASIC)
  larger = bpe.make_bpe([*old, 'ab</w>'], (('a', 'b</w>'),), bpe.BASIC)
  found = tokenization.inherited_ids(larger, base)
  assert found.tolist() == [*range(5), -1, 5, 6, 7]
  assert [base.pieces[i] for i in found if i >= 0] == list(base.pieces)
  for i, old_id in enumerate(found):
    assert old_id < 0 or larger.pieces[i] == base.pieces[old_id]


def test_inherited_ids_of_gpt2():
  letters = byte_bpe.byte_letters()
  base = byte_bpe.make_byte_bpe([*letters, byte_bpe.END_OF_TEXT], ())
  token = transformers.AddedToken('covid')
  larger = byte_bpe.make_byte_bpe(base.pieces, (), [token])
  assert tokenization.inherited_ids(larger, base).tolist() == [*range(257), -1]
  assert larger.encode_batch(['covid'])[0] == [257]


TEXTS = (
  'Hello, World! COVID and covids [ENT] b[ENT]c  <pad>x 北京 Café [unused7]',
  'ab' * 60 + ' é́ 😀 a\x01b \n New York,New yorks ',
)


def test_missing_vocabulary(tmp_path):
  with pytest.raises(FileNotFoundError, match='no vocabulary: .*: there is'):
    tokenization.load(tmp_path / 'vocab.txt')
  with pytest.raises(FileNotFoundError, match='holds no vocab.txt'):
    tokenization.load(tmp_path)
