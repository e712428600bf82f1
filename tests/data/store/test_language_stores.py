"""Stores of several languages."""

import json

import numpy as np
import pytest
from text_stores import build_quietly, contents, make_documents, write_documents

from data import prepare
from data.examples import pairs
from data.store import build, corpus, vocabularies
from data.vocabulary import tokenization

TOKENIZER = 'train:wordpiece:300'


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
  """A folder of texts: 60 documents in aa, 30 in bb, 4 in cc."""
  folder = tmp_path_factory.mktemp('texts')
  for seed, (name, count) in enumerate([('aa', 60), ('bb', 30), ('cc', 4)]):
    documents = make_documents(count, seed, (20, 30))
    write_documents(folder / f'{name}.txt', documents)
  return folder


def spec_of(folder, *names):
  return ','.join(f'{name}={folder}/{name}.txt' for name in names)


@pytest.fixture(scope='module')
def built(texts, tmp_path_factory):
  out = tmp_path_factory.mktemp('out') / 'store'
  audit = build_quietly(spec_of(texts, 'aa', 'bb', 'cc'), TOKENIZER, out)
  return out, audit


def test_languages_are_in_the_store(built):
  out, audit = built
  store = corpus.open_store(out)
  assert store.languages == ('aa', 'bb', 'cc')
  # Fewer than 20 documents are cut in two.
  assert store.language_bounds.tolist() == [0, 60, 90, 98]
  assert len(store.held_out) == audit['documents'] + 4 == 98
  tokens = np.diff(store.sentences[store.documents])
  held_out = [
    store.held_out[first:end]
    for first, end in zip([0, 60, 90], [60, 90, 98], strict=True)
  ]
  assert held_out[2].tolist() == [False, True] * 4
  trained = []
  for (name, row), flags, first in zip(
    audit['languages'].items(), held_out, (0, 60, 90), strict=True
  ):
    sizes = tokens[first : first + len(flags)]
    assert row['documents'] == len(flags)
    assert row['tokens'] == sizes.sum()
    assert row['held_out_tokens'] == sizes[flags].sum()
    assert 0.04 < row['held_out_tokens'] / row['tokens'] < 0.11, name
    trained.append(sizes[~flags].sum())
  shares = np.array(trained) / sum(trained)
  rows = audit['languages'].values()
  np.testing.assert_allclose([row['share'] for row in rows], shares)
  smoothed = shares**0.7 / (shares**0.7).sum()
  np.testing.assert_allclose([row['sampled'] for row in rows], smoothed)
  assert store.counts.sum() == sum(trained)
  assert audit['held_out']['rule'] == (
    'aa, bb: whole documents in the order of their hashes; cc: the last'
    ' sentences of each document'
  )
  for held in (False, True):
    examples = pairs.PairExamples(store, 32, held_out=held)
    assert list(examples.describe_languages()) == ['aa', 'bb', 'cc']


def test_each_language_is_held_out_as_it_would_be_alone(built, texts, tmp_path):
  store = corpus.open_store(built[0])
  build_quietly(texts / 'bb.txt', built[0], tmp_path / 'alone')
  alone = corpus.open_store(tmp_path / 'alone')
  assert np.array_equal(store.held_out[60:90], alone.held_out)
  first, end = store.sentences[store.documents[[60, 90]]]
  assert np.array_equal(store.tokens[first:end], alone.tokens)


def test_a_store_of_one_language_is_as_before(texts, tmp_path):
  """No file and no key more, so that stores of before are what this one is."""
  build_quietly(texts / 'aa.txt', TOKENIZER, tmp_path / 'plain')
  found = contents(tmp_path / 'plain')
  assert corpus.LANGUAGES not in found
  meta = json.loads(found['store.json'])
  assert not {'languages', 'language_exponent'} & (
    meta.keys() | meta['audit'].keys() | meta['request'].keys()
  )
  store = corpus.open_store(tmp_path / 'plain')
  assert store.languages == ('',)
  assert store.language_bounds.tolist() == [0, 60]
  build_quietly(spec_of(texts, 'aa'), TOKENIZER, tmp_path / 'named')
  named = corpus.open_store(tmp_path / 'named')
  assert named.languages == ('aa',)
  assert named.tokenizer.fingerprint == store.tokenizer.fingerprint
  assert np.array_equal(named.tokens, store.tokens)


def test_the_exponent_belongs_to_a_trained_vocabulary(built, texts, tmp_path):
  spec = spec_of(texts, 'aa', 'bb', 'cc')
  assert build_quietly(spec, TOKENIZER, built[0]) == built[1]
  with pytest.raises(ValueError, match=r'language_exponent \(0.7 in the store'):
    build.ensure_store(spec, TOKENIZER, built[0], language_exponent=0.3)
  build.ensure_store(spec, str(built[0]), built[0], language_exponent=0.3)
  # Its documents do not depend on the exponent; what is told of them does.
  given = build_quietly(spec, str(built[0]), tmp_path / 'given')
  equal = build_quietly(
    spec, str(built[0]), tmp_path / 'given', language_exponent=0
  )
  for audit, exponent in ((given, 0.7), (equal, 0)):
    assert audit['language_exponent'] == exponent
  sampled = [row['sampled'] for row in equal['languages'].values()]
  assert sampled == pytest.approx([1 / 3] * 3)
  with pytest.raises(ValueError, match=r"built from 'aa=.*names? or the files"):
    build.ensure_store(spec_of(texts, 'aa', 'bb'), TOKENIZER, built[0])
  with pytest.raises(ValueError, match='language_exponent 1.5: expected'):
    build_quietly(spec, TOKENIZER, tmp_path / 'out', language_exponent=1.5)
  with pytest.raises(ValueError, match='words:100.*3 languages; whole words'):
    build_quietly(spec, 'train:words:100', tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


def test_a_language_without_text_to_hold_out(texts, tmp_path):
  (texts / 'short.txt').write_text('One sentence only.\n')
  with pytest.raises(ValueError, match=r"language 'short': 1 document\(s\) of"):
    build_quietly(spec_of(texts, 'aa', 'short'), TOKENIZER, tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('most', [10**8, 30_000])
def test_words_of_a_vocabulary_have_smoothed_shares(
  texts, tmp_path, monkeypatch, most
):
  """Of all of the text, and of a sample."""
  monkeypatch.setattr(vocabularies, 'VOCABULARY_BYTES', most)
  from data.text import documents

  monkeypatch.setattr(documents, 'PIECE_CHARS', 1_000)
  seen = {}

  def train(texts, training, weigh):
    found = {}
    for language, text in texts:
      found[language] = found.get(language, 0) + len(text.split())
    seen.update(
      {
        language: count * weigh(language, count)
        for language, count in found.items()
      }
    )
    return tokenization.load(tmp_path)

  words = [
    len((texts / f'{name}.txt').read_text().split())
    for name in ('aa', 'bb', 'cc')
  ]
  (tmp_path / 'vocab.txt').write_text(
    '\n'.join([*tokenization.wordpiece.SPECIALS, *'abc']) + '\n'
  )
  monkeypatch.setattr(tokenization, 'train', train)
  build_quietly(spec_of(texts, 'aa', 'bb', 'cc'), TOKENIZER, tmp_path / 'out')
  shares = np.array(list(seen.values())) / sum(seen.values())
  expected = np.array(words, float) ** 0.7
  expected /= expected.sum()
  np.testing.assert_allclose(
    shares, expected, atol=1e-9 if most > 1e6 else 0.02
  )


def test_the_command_takes_a_source_a_language(texts, tmp_path, capsys):
  out = tmp_path / 'store'

  def run(*given):
    sources = [word for source in given for word in ('--source', source)]
    return prepare.main(
      [*sources, '--tokenizer', TOKENIZER, '--out', str(out), '--json']
    )

  one, two = (spec_of(texts, name) for name in ('aa', 'bb'))
  assert run(one, str(texts / 'bb.txt')) == 1
  message = capsys.readouterr().err
  assert 'expected LANGUAGE=SOURCE where --source is given 2 times' in message
  assert run(one, two, one) == 1
  assert "language 'aa' has '" in capsys.readouterr().err
  assert not out.exists()
  assert run(one, two) == 0
  captured = capsys.readouterr()
  assert list(json.loads(captured.out)['languages']) == ['aa', 'bb']
  assert 'language_exponent 0.7' in captured.err
  assert corpus.open_store(out).languages == ('aa', 'bb')
