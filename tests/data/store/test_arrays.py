"""The arrays of a store."""

import numpy as np
from text_stores import build_quietly, write_documents

from data.store import corpus
from data.vocabulary import wordpiece


def test_wide_vocabulary_is_uint32(tmp_path, documents):
  pieces = [*wordpiece.SPECIALS, *'abcdefghijklmnop.']
  pieces += [f'##{letter}' for letter in 'abcdefghijklmnop']
  pieces += [f'filler{i}' for i in range(70_000)]
  (tmp_path / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  text = write_documents(tmp_path / 'text.txt', documents)
  build_quietly(text, tmp_path / 'vocab.txt', tmp_path / 'out')
  store = corpus.open_store(tmp_path / 'out')
  assert store.tokens.dtype == np.uint32
  assert store.vocab_size == len(pieces)
