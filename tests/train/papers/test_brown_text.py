"""Brown's parts, its seldom words, and a corpus that is too short."""

import numpy as np
import pytest
import small_brown

from train.papers import brown_text


@pytest.fixture
def small_parts(monkeypatch):
  small_brown.cut(monkeypatch)


@pytest.mark.usefixtures('small_parts')
def test_the_text_has_three_parts_and_one_symbol_for_seldom_words(tmp_path):
  words = small_brown.write(tmp_path)
  text = brown_text.prepare(brown_text.find(str(tmp_path)), tmp_path)
  pieces = np.array(text.store.tokenizer.pieces)
  assert text.store.counts.sum() == 1_200
  assert len(text.valid) == 400 and len(text.test) == len(words) - 1_600
  kept = {word for word in words if words.count(word) > 3} - {'<S>', '<UNK>'}
  expected = [word if word in kept else '<UNK>' for word in words]
  tokens = np.asarray(text.store.tokens)
  assert pieces[tokens].tolist() == expected[:1_600]
  assert pieces[text.valid].tolist() == expected[1_200:1_600]
  assert pieces[text.test].tolist() == expected[1_600:]
  # The store is used again.
  made = (tmp_path / 'store/store.json').stat().st_mtime_ns
  brown_text.prepare(brown_text.find(str(tmp_path / 'brown')), tmp_path)
  assert (tmp_path / 'store/store.json').stat().st_mtime_ns == made


@pytest.mark.usefixtures('small_parts')
def test_a_short_corpus_is_refused(tmp_path):
  (tmp_path / 'brown.txt').write_text('a b c')
  with pytest.raises(ValueError, match='3 words, expected more than 1,600'):
    brown_text.read(brown_text.find(str(tmp_path)))


def test_the_corpus_is_that_of_the_notes(sesame_data):
  spelt, types = brown_text.read(brown_text.find(str(sesame_data)))
  assert len(spelt) == 1_161_192 and len(types) == 17_904
