"""New vocabularies of GPT's and GPT-2's kinds."""

import os
import subprocess
import sys

import pytest
from token_texts import HARD

from data.vocabulary import bpe, byte_bpe, tokenization

TRAIN = """
import sys
from data.vocabulary import tokenization
text = open(sys.argv[1], encoding='utf-8').read()[:100_000].split('\\n')
for kind in ('bpe', 'bytebpe'):
  spec = tokenization.parse_training(f'train:{kind}:900')
  ours = tokenization.train(text, spec)
  assert ours.vocab_size == 900
  print(ours.fingerprint)
"""


@pytest.mark.slow
def test_training_is_deterministic(sesame_data):
  source = sesame_data / 'wikitext-2/wiki.valid.tokens'
  found = set()
  for threads in ('1', '2'):
    env = os.environ | {'RAYON_NUM_THREADS': threads, 'PYTHONHASHSEED': threads}
    command = [sys.executable, '-c', TRAIN, str(source)]
    found.add(subprocess.check_output(command, env=env, text=True))
  assert len(found) == 1


@pytest.fixture(scope='module')
def lines(sesame_data):
  path = sesame_data / 'wikitext-2/wiki.valid.tokens'
  return path.read_text('utf-8')[:300_000]


def test_training_gpts_kind(lines, tmp_path):
  ours = tokenization.train([lines], tokenization.Training('bpe', 1500))
  assert ours.pieces[:2] == ('<unk>', '\n</w>')
  assert ours.pieces[-3:] == bpe.SPECIALS and ours.vocab_size == 1500
  assert 'the</w>' in ours.pieces and 'ing</w>' in ours.pieces
  assert all(piece == piece.lower() for piece in ours.pieces)
  (ids,) = ours.encode_batch([lines])
  assert ids.count(0) < 1e-3 * len(ids)
  assert 1 < len(ids) / len(lines.split()) < 2
  lines = lines.split('\n')
  again = tokenization.train(
    ['\n'.join(lines[500:]), '\n'.join(lines[:500])],
    tokenization.Training('bpe', 1500),
  )
  assert again.merges == ours.merges
  ours.save(tmp_path)
  loaded = tokenization.load(tmp_path)
  assert loaded.fingerprint == ours.fingerprint
  assert loaded.encode_batch(lines) == ours.encode_batch(lines)


def test_training_gpt2s_kind(lines, tmp_path):
  ours = tokenization.train([lines], tokenization.Training('bytebpe', 1500))
  assert ours.vocab_size == 1500
  assert ours.end_of_text_id == 1499 and ours.pieces[-1] == byte_bpe.END_OF_TEXT
  assert list(ours.pieces[:256]) == byte_bpe.byte_letters()
  assert 'Ġthe' in ours.pieces
  ours.save(tmp_path)
  loaded = tokenization.load(tmp_path)
  assert loaded.fingerprint == ours.fingerprint
  (ids,) = loaded.encode_batch([lines])
  assert loaded.decode(ids) == lines and len(ids) < len(lines) / 2
  for text in HARD:
    assert loaded.decode(loaded.encode_batch([text])[0]) == text


def test_training_on_too_little():
  small = tokenization.train(
    ['the cat sat on the mat'] * 2, tokenization.Training('bytebpe', 5000)
  )
  assert 257 < small.vocab_size < 300
  assert small.end_of_text_id == small.vocab_size - 1
  small = tokenization.train(
    ['the cat sat on the mat'] * 2, tokenization.Training('bpe', 5000)
  )
  (ids,) = small.encode_batch(['The cat sat on the mat'])
  assert 0 not in ids and small.decode(ids) == 'the cat sat on the mat'
  for kind, size in (('bpe', 49), ('bytebpe', 256)):
    with pytest.raises(ValueError, match=f"'train:{kind}:{size}': expected"):
      tokenization.Training(kind, size)
    with pytest.raises(ValueError, match='no text to train'):
      tokenization.train([''], tokenization.Training(kind, 1000))
