"""Words and ids of files and of token stores."""

import numpy as np
import pytest

from data.ngrams import texts
from data.ngrams.counts import BEGIN, END, SYMBOLS, UNKNOWN
from data.store import build, corpus

TEXT = 'the cat sat\n\nthe  dog sat down\n'


def test_words_of_files(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text(TEXT + 'a <unk> .')
  words = texts.read_words([path]).words
  assert words == (
    '<unk>',
    '<s>',
    '</s>',
    'sat',
    'the',
    '.',
    'a',
    'cat',
    'dog',
    'down',
  )
  few = texts.read_words([path, path], min_count=3).words
  assert few == ('<unk>', '<s>', '</s>', 'sat', 'the')
  (ids,) = texts.file_blocks([path], {word: i for i, word in enumerate(few)})
  assert ids.tolist() == [
    BEGIN,
    4,
    UNKNOWN,
    3,
    END,
    BEGIN,
    4,
    UNKNOWN,
    3,
    UNKNOWN,
    END,
    BEGIN,
    UNKNOWN,
    UNKNOWN,
    UNKNOWN,
    END,
  ]


def test_symbols_in_a_file_are_named(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('a b\n<s> a </s>\n')
  with pytest.raises(ValueError, match='a.txt, line 2: found <s> or </s>'):
    texts.read_words([path])
  # Those of an opened model's text too.
  ids = {symbol: i for i, symbol in enumerate(SYMBOLS)}
  with pytest.raises(ValueError, match='a.txt, line 2: found <s> or </s>'):
    list(texts.file_blocks([path], ids))
  path.write_text(' \n')
  with pytest.raises(ValueError, match='a.txt: no words to count'):
    texts.read_words([path])


@pytest.mark.parametrize('tokenizer', ['train:words:40', 'train:bytebpe:300'])
def test_words_of_a_store(tmp_path, tokenizer):
  path = tmp_path / 'a.txt'
  path.write_text(
    '\n'.join(f'== {i}\n{i % 7} and {i % 3} or "{i}" é\n' for i in range(40))
  )
  build.build_store(
    str(path), tokenizer, tmp_path / 's', document_break='== .*', progress=False
  )
  store = corpus.open_store(tmp_path / 's')
  found = texts.words_of_store(store)
  assert len(set(found.words)) == len(found.words)
  assert all(word.split() == [word] for word in found.words)
  tokenizer = store.tokenizer
  documents = list(texts.documents(store, held_out=False))
  assert len(documents) == (~store.held_out).sum()
  ids = np.concatenate(list(texts.store_blocks(store, found)))
  assert (ids == BEGIN).sum() == (ids == END).sum() == len(documents)
  inside = ids[(ids != BEGIN) & (ids != END)]
  tokens = np.concatenate(documents)
  predicted = getattr(tokenizer, 'softmax_size', tokenizer.vocab_size)
  known = (tokens < predicted) & (tokens != tokenizer.unk_id)
  np.testing.assert_array_equal(inside[known], tokens[known] + 3)
  assert (inside[~known] == UNKNOWN).all()
  assert hasattr(tokenizer, 'softmax_size') == bool((~known).any())
