"""The letters of trained vocabularies: as many as the text asks for."""

import collections
import json
import random

import numpy as np
import pytest

from data import prepare
from data.vocabulary import bpe_training, tokenization, word_counts


def train(texts, spec):
  return tokenization.train(texts, tokenization.parse_training(spec))


def unknown(tokenizer, texts):
  """The share of unknown tokens, and of characters that these stand for."""
  ids = np.concatenate([np.array(x) for x in tokenizer.encode_batch(texts)])
  count = np.count_nonzero(ids == tokenizer.unk_id)
  return count / len(ids), count / sum(map(len, texts))


@pytest.fixture(scope='module')
def reviews(sesame_data):
  """Half of the Chinese reviews to train on, and half of the others."""

  def read(name, step):
    lines = (sesame_data / f'chnsenticorp/{name}.tsv').read_text('utf-8')
    rows = lines.split('\n')[1:-1:step]
    return [row.split('\t', 1)[1] for row in rows]

  return read('train', 2), read('dev', 2) + read('test', 2)


@pytest.fixture(scope='module')
def published(sesame_data):
  return tokenization.load(
    sesame_data / 'fixtures/vocab/bert-base-chinese-vocab.txt'
  )


@pytest.mark.slow
def test_chinese_is_as_well_known_as_to_the_published_vocabulary(
  reviews, published
):
  texts, held_out = reviews
  ours = train(texts, 'train:wordpiece:21128')
  assert unknown(ours, texts)[0] == 0
  assert unknown(ours, held_out)[0] < unknown(published, held_out)[0] < 0.003
  letters = [piece for piece in ours.pieces if len(piece) == 1]
  assert len(letters) > 3500
  # Where there is less room, the most frequent ones take three quarters.
  small = train(texts, 'train:wordpiece:2000')
  assert small.vocab_size == 2000
  assert sum(len(piece) == 1 for piece in small.pieces) > 1400
  assert unknown(small, held_out)[0] < 0.03


def test_chinese_of_gpts_kind(reviews, tmp_path):
  texts, held_out = (part[::4] for part in reviews)
  ours = train(texts, 'train:bpe:8000')
  assert ours.vocab_size == 8000 and len(ours.merges) > 1900
  assert unknown(ours, texts)[1] < 1 - word_counts.COVERAGE
  assert unknown(ours, held_out)[1] < 0.01
  ours.save(tmp_path)
  assert tokenization.load(tmp_path).fingerprint == ours.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize('language', ['ja', 'ar'])
def test_other_scripts_lose_no_character(language, sesame_data):
  path = sesame_data / f'tatoeba/{language}-en.{language}'
  texts = path.read_text('utf-8').split('\n')
  texts += (sesame_data / 'wikitext-2/wiki.valid.tokens').read_text()[:50_000]
  for spec in ('train:wordpiece:6000', 'train:bpe:6000'):
    assert unknown(train(texts, spec), texts)[1] < 1 - word_counts.COVERAGE


@pytest.mark.parametrize(
  ('spec', 'digest'),
  [
    ('train:wordpiece:3000', 'b3eced5b3200a9f0'),
    ('train:wordpiece:500', '5edfe0f42fec1d2b'),
    ('train:bpe:1500', '574ad276c21449f3'),
  ],
)
def test_english_vocabularies_are_as_they_were(spec, digest, sesame_data):
  """Of stores that were built when a vocabulary had 1,000 letters at most."""
  path = sesame_data / 'wikitext-2/wiki.valid.tokens'
  ours = train([path.read_text('utf-8')], spec)
  assert ours.fingerprint.startswith(digest)


def test_letters_are_chosen_by_what_they_cover():
  counts = collections.Counter({chr(0x4E00 + i): 2000 - i for i in range(2000)})
  counts |= {'a': 10**6, 'b': 10**6}
  by_count = word_counts.by_frequency(counts)
  assert by_count[:3] == ['a', 'b', '\u4e00']

  def choose(usual, size, pieces=1):
    return word_counts.choose_letters(
      by_count[:usual], counts, lambda _: pieces, size
    )

  # 1,000 letters leave an eighth of the text out.
  chosen = choose(1000, 10_000)
  assert chosen == sorted(by_count[: len(chosen)])
  covered = sum(map(counts.get, chosen))
  assert covered >= 0.9995 * counts.total()
  assert covered - counts[by_count[len(chosen) - 1]] < 0.9995 * counts.total()
  # As many as fit into three quarters; but the usual ones always.
  assert choose(100, 1000) == sorted(by_count[:750])
  assert choose(100, 1000, pieces=2) == sorted(by_count[:375])
  assert choose(900, 1000) == sorted(by_count[:900])
  assert choose(2002, 1000) == sorted(by_count)
  # Two letters are nearly all of a text.
  counts |= {'a': 10**10}
  assert choose(2, 10_000) == ['a', 'b']


def test_the_rarest_words_are_forgotten_alone():
  texts = ['a a b b c'.split(), 'd d e'.split()]
  assert word_counts.count_words(texts, 3) == dict(a=2, b=2, d=2)


def test_letters_of_forgotten_words_count(monkeypatch):
  """Clauses without spaces are rarely the same twice."""
  forgotten = collections.Counter()
  texts = ([f'{chr(0x4E00 + i)}{chr(0x5E00 + i)}', 'ab'] for i in range(999))
  words = word_counts.count_words(texts, 100, forgotten)
  assert len(words) <= 100 and words['ab'] == 999
  total = forgotten + word_counts.count_letters(words)
  assert total['a'] == 999 and total['\u4e00'] == total['\u5e00'] == 1
  assert len(total) == 2 + 2 * 999
  clauses = [
    ''.join(chr(0x4E00 + (7 * i * i + j) % 1500) for j in range(5))
    for i in range(1500)
  ]
  for kind in ('wordpiece', 'bpe'):
    module = tokenization.wordpiece
    if kind == 'bpe':
      module = bpe_training
    monkeypatch.setattr(module, 'MAX_WORDS', 50)
    ours = train([*clauses, 'ab ab'], f'train:{kind}:20000')
    assert unknown(ours, clauses)[1] == 0


def test_the_vocabulary_is_blamed_where_it_is_too_small(tmp_path, capsys):
  text = ''.join(map(chr, range(0x4E00, 0x4E00 + 500)))
  lines = [text[i : i + 20] + '\u3002' for i in range(0, 500, 20)] * 3
  path = tmp_path / 'text.txt'
  path.write_text('\n'.join(lines), 'utf-8')

  def warnings(size):
    command = ['--source', str(path), '--out', str(tmp_path / str(size))]
    command += ['--tokenizer', f'train:wordpiece:{size}', '--json']
    assert prepare.main(command) == 0
    return json.loads(capsys.readouterr().out)['warnings']

  (line,) = (line for line in warnings(200) if 'unknown' in line)
  assert '200 pieces are too few for the characters of this text' in line
  found = warnings(5000)
  assert not any('unknown' in line for line in found)
  assert any('it has no other characters' in line for line in found)


def test_counts_of_languages_are_weighted():
  """By hand: the smallest weight is 1, and counts stay whole numbers."""
  texts = [(0, 'a b a'), (0, 'a c'), (1, 'x a'), (2, ''), (3, 'y')]
  asked = []

  def weigh(language, num_words):
    asked.append((language, num_words))
    return {0: 0.5, 1: 1, 3: 4}[language]

  found = word_counts.count_texts(texts, str.split, 100, None, weigh)
  assert asked == [(0, 5), (1, 2), (3, 1)]
  assert found == {'a': 3 + 2, 'b': 1, 'c': 1, 'x': 2, 'y': 8}
  lost = collections.Counter()
  found = word_counts.count_texts(texts, str.split, 2, lost, weigh)
  assert len(found) == 2 and found['y'] == 8
  # Of nothing lost, a letter counts as often as its words do.
  total = lost + word_counts.count_letters(found)
  assert total['y'] == 8 and total['x'] == 2 and total['b'] == 1
  plain = word_counts.count_texts(['a b', 'a'], str.split, 9)
  assert plain == {'a': 2, 'b': 1}


def test_a_vocabulary_of_languages_shares_its_pieces():
  """The weight of a small language decides how many pieces are its own."""
  rng = random.Random(0)
  large, small = (
    [
      ''.join(chr(first + rng.randrange(8)) for _ in range(rng.randint(2, 6)))
      for _ in range(count)
    ]
    for first, count in ((ord('a'), 9000), (0x430, 900))
  )
  texts = [(0, ' '.join(large)), (1, ' '.join(small))]
  found = []
  for exponent in (1.0, 0.7, 0.3):
    for kind in ('wordpiece', 'bytebpe'):
      ours = tokenization.train(
        texts,
        tokenization.parse_training(f'train:{kind}:600'),
        lambda _, count, e=exponent: count ** (e - 1),
      )
      (ids,) = ours.encode_batch([texts[1][1]])
      found.append(len(ids))
  # A text of the small language has the fewer pieces, the more it weighs.
  assert found[0] > found[2] > found[4]
  assert found[1] > found[3] > found[5]
