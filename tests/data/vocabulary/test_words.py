"""Whole words: how they are found, counted, kept and extended."""

import collections
import gzip
import itertools
import json
import random
import types

import numpy as np
import pytest

from data import prepare
from data.examples import word_streams
from data.store import build, corpus, pool, vocabularies
from data.text import documents, manual, sources
from data.vocabulary import characters, tokenization, words
from data.vocabulary.words import SPECIALS, Words

HARD = (
  '',
  ' \t\n ',
  'Hello, World! don\'t "quote" (me) [at] {all} <tag> a_b~c^d`e $5 50%',
  'e\u0301le\u0300ve naïve हिन्दी ไทย עִבְרִית 你好。再见!! 한국어',
  "x' 's ''s it's' rock'n'roll ’tis e-mail-- --a a--b -a- 1.2.3, .5 5. 1,a",
  'a\x1cb\x1dc\x1ed\x1fe\x85f\xa0g\u2028h\u3000i\u200bj\ufeffk',
  '<S> </S> <UNK> x<S> </S>.',
)


@pytest.mark.parametrize(
  'text,expected',
  [
    ("I don't think it's he'll've", "I don 't think it 's he 'll 've"),
    ('DON’T we’re dogs’', 'DON ’T we ’re dogs ’'),
    ("O'Brien 'tis the '90s", "O ' Brien ' tis the ' 90s"),
    ('a well-known e-mail, 3.14-inch', 'a well-known e-mail , 3.14-inch'),
    ('$1,000,000.50 in 3.5m (v1.2)', '$ 1,000,000.50 in 3.5m ( v1.2 )'),
    ('Wait... -- "No."', 'Wait ... -- " No . "'),
    ("one--two, 1990's ?!?", "one -- two , 1990 's ? ! ?"),
    ('Ünïté e\u0301t हिन्दी, слово!', 'Ünïté e\u0301t हिन्दी , слово !'),
    ('[x]; f(a_b)', '[ x ] ; f ( a_b )'),
  ],
)
def test_marks_and_clitics_are_words(text, expected):
  assert words.split_words(text, 'marks') == expected.split(' ')
  assert words.split_words(expected, 'spaces') == expected.split(' ')
  joined = words.split_words(text, 'marks')
  assert ''.join(joined) == ''.join(text.split())


@pytest.mark.parametrize('split', words.SPLITS)
def test_ids_are_those_of_the_split_words(split):
  rng = random.Random(0)
  letters = [*"aB9é你.,-'’s_ \n", '\u0301', '\x1c', '\x85', "'s", '--']
  texts = [*HARD, *(''.join(rng.choices(letters, k=30)) for _ in range(300))]
  found = [words.split_words(text, split) for text in texts]
  ours = words.train_words(texts, 50, split)
  assert set(ours.pieces) == {*SPECIALS, *itertools.chain(*found)}
  ids = {piece: i for i, piece in enumerate(ours.pieces)}
  ids['<S>'] = ids['</S>'] = ours.unk_id
  expected = [[ids[word] for word in each] for each in found]
  assert ours.encode_batch(texts) == expected
  assert pool.Encoder(ours).encode_texts(texts) == expected
  assert ours.decode(expected[-1]) == ' '.join(found[-1])
  with pytest.raises(ValueError, match="split 'all': .*'marks' or 'spaces'"):
    words.split_words('a', 'all')


@pytest.mark.parametrize('split', words.SPLITS)
def test_spans_are_the_words_of_the_text(split):
  rng = random.Random(1)
  letters = [*"aB9é你😀.,-'’s_ \n", '\u0301', '\x1c', '\x85', '\u200b', "'s"]
  texts = [*HARD, *(''.join(rng.choices(letters, k=40)) for _ in range(300))]
  for text in texts:
    found = words.split_with_spans(text, split)
    assert [word for word, _, _ in found] == words.split_words(text, split)
    assert all(text[begin:end] == word for word, begin, end in found)
    ends = [0, *(end for _, _, end in found)]
    begins = [*(begin for _, begin, _ in found), len(text)]
    for end, begin in zip(ends, begins, strict=True):
      assert end <= begin and not text[end:begin].strip()


def test_white_space_is_that_of_python():
  points = (*range(0x3100), 0xFEFF, 0x1F600)
  text = ''.join(f'a{chr(p)}b ' for p in points)
  expected = text.split()
  assert words.split_words(text, 'spaces') == expected
  ours = words.train_words([text], 9, 'spaces')
  assert ours.decode(ours.encode_batch([text])[0]).split(' ') == expected
  assert ''.join(words.split_words(text, 'marks')) == ''.join(expected)


def test_types_stand_by_falling_count_then_code_point():
  texts = ['b a b é', 'c a b <S> </S> <UNK> <UNK> <UNK>', 'z <S> B']
  ours = words.train_words(texts, 5, 'spaces')
  assert ours.pieces == (*SPECIALS, 'b', 'a', 'B', 'c', 'z', 'é')
  assert (ours.softmax_size, ours.vocab_size) == (5, 9)
  assert (ours.begin_id, ours.end_id, ours.unk_id) == (0, 1, 2)
  # What reads like a boundary is none.
  assert ours.encode_batch(['<S> b </S> <UNK> new']) == [[2, 3, 2, 2, 2]]
  assert words.train_words(texts, 1000, 'spaces').softmax_size == 9
  with pytest.raises(ValueError, match='no text'):
    words.train_words(['<S> \n'], 5, 'spaces')


def test_an_extended_vocabulary_keeps_its_first_words(tmp_path):
  ours = words.train_words(['b b b a a c c d'], 5, 'marks')
  other = words.extend_words(ours, ['x d x. b', 'y x'])
  assert other.pieces == (*SPECIALS, 'b', 'a', 'x', '.', 'd', 'y')
  assert other.fingerprint == ours.fingerprint
  different = (
    words.train_words(['b b b a a c c d'], 6, 'marks'),
    words.train_words(['b b b a a c c d'], 5, 'spaces'),
    words.train_words(['b b b e e c c d'], 5, 'marks'),
  )
  assert ours.fingerprint not in {each.fingerprint for each in different}
  ours.save(tmp_path / 'ours')
  other.save(tmp_path / 'other')
  for folder in tmp_path.iterdir():
    assert tokenization.request_key(str(folder)) == ours.fingerprint


def test_rarest_types_are_dropped_beyond_the_most(monkeypatch):
  monkeypatch.setattr(words, 'MAX_TYPES', 6)
  texts = ['a a a b b c'] * 9 + [f'rare{i} d d' for i in range(9)]
  ours = words.train_words(texts, 5, 'spaces')
  assert ours.pieces == (*SPECIALS, 'a', 'b', 'd')
  assert words.extend_words(ours, ['q q r']).pieces == (
    *ours.pieces[:5],
    'q',
  )


def test_characters_are_those_of_the_types(monkeypatch):
  pieces = (*SPECIALS, 'a', 'é' * 30, 'x' * 48, 'x' * 49)
  expected, num_cut = characters.encode_words(pieces)
  monkeypatch.setattr(words, '_BLOCK', 3)
  ours = Words(pieces, 4, 'spaces')
  assert ours.characters.dtype == np.int16 and ours.num_cut == num_cut == 2
  np.testing.assert_array_equal(ours.characters, expected)
  assert ours.characters is ours.characters
  assert ours.characters[0, 1] == characters.SENTENCE_BEGIN_ID


# --- Files


def test_saved_and_loaded(tmp_path):
  ours = words.train_words(['b\u200bc a. a é\ufeff'], 6, 'marks')
  ours.save(tmp_path / 'store')
  for path in (tmp_path / 'store', tmp_path / 'store' / 'words.txt'):
    assert tokenization.load(path) == ours
    assert tokenization.load(path).fingerprint == ours.fingerprint
  with pytest.raises(ValueError, match='only WordPiece is cased'):
    tokenization.load(tmp_path / 'store', cased=True)


@pytest.mark.parametrize('name', ['words.txt', 'vocab.txt', 'any.name'])
def test_published_vocabularies_go_by_any_name(name, tmp_path):
  file = tmp_path / name
  file.write_bytes('\ufeff<S>\r\n</S>\r\n<UNK>\r\nthe\r\né\r\n\r\n'.encode())
  ours = tokenization.load(file)
  assert ours == Words((*SPECIALS, 'the', 'é'), 5, 'spaces')
  if name != 'any.name':
    assert tokenization.load(tmp_path) == ours
  # Beside a tokenizer of ours, whose settings are not about this file.
  words.train_words(['a b'], 4, 'marks').save(tmp_path)
  if name != 'words.txt':
    assert tokenization.load(file) == ours


def test_the_vocabulary_of_the_released_program(sesame_data):
  file = sesame_data / 'fixtures/elmo/train/vocab.txt'
  ours = tokenization.load(file)
  assert list(ours.pieces) == file.read_text().split()
  assert (ours.softmax_size, ours.split) == (ours.vocab_size, 'spaces')
  file = sesame_data / 'fixtures/elmo/data/vocab_test.txt'
  with pytest.raises(ValueError, match=r"line 1: found '</S>', expected '<S>'"):
    tokenization.load(file)


GOOD = b'<S>\n</S>\n<UNK>\na\nb\nc\n'


@pytest.mark.parametrize(
  'content,settings,message',
  [
    (GOOD + b'd\nx\xff\n', {}, r'words\.txt, line 8: not UTF-8 at byte 24'),
    (GOOD + b'd\nb\n', {}, r"words\.txt, line 8: 'b' stands on line 5"),
    (GOOD + b'\nd\n', {}, r'words\.txt, line 7: empty'),
    (b'<S>\n<UNK>\n</S>\na\n', {}, r"txt, line 2: found '<UNK>', .* '</S>'"),
    (b'<S>\n</S>\na\nb\n', {}, r"txt, line 3: found 'a', expected '<UNK>'"),
    (b'the\n', {}, r"words\.txt, line 1: found 'the', expected '<S>'"),
    (b'<S>\n', {}, r"words\.txt, line 2: found the end, expected '</S>'"),
    (b'', {}, r"words\.txt, line 1: found the end, expected '<S>'"),
    (GOOD, {'softmax_size': 7}, r'softmax_size is 7, expected 4 to 6'),
    (GOOD, {'softmax_size': 3}, r'softmax_size is 3, expected 4 to 6'),
    (GOOD, {'softmax_size': '4'}, r"settings\.json: softmax_size is '4'"),
    (GOOD, {'split': 'no'}, r"settings\.json: split is 'no', expected 'marks'"),
  ],
)
def test_damaged_files_are_refused(content, settings, message, tmp_path):
  (tmp_path / 'words.txt').write_bytes(content)
  settings = {'type': 'words', 'softmax_size': 4, 'split': 'marks'} | settings
  (tmp_path / 'tokenizer_settings.json').write_text(json.dumps(settings))
  for path in (tmp_path, tmp_path / 'words.txt'):
    with pytest.raises(ValueError, match=message) as caught:
      tokenization.load(path)
    assert str(tmp_path) in str(caught.value)


def test_specifications():
  parse = tokenization.parse_training
  assert parse('train:words:30') == tokenization.Training('words', 30)
  found = parse('train:words:30:spaces')
  assert (found.size, found.split, found.white_space) == (
    30,
    'spaces',
    'ignored',
  )
  for wrong in ('words:9:cased', 'words:x', 'words', 'bpe:9:spaces'):
    with pytest.raises(ValueError, match=r'train:words:N\[:spaces\]'):
      parse(f'train:{wrong}')


# --- Stores


def sentences_of(store):
  return [
    store.tokenizer.decode(store.tokens[start:stop])
    for start, stop in itertools.pairwise(store.sentences.tolist())
  ]


@pytest.fixture(scope='module')
def manual_store(tmp_path_factory):
  """Of the topics alone: the library's modules take seconds to parse."""
  out = tmp_path_factory.mktemp('stores') / 'manual'
  topics = *manual._topics(), f'Of a {"long" * 20} word.'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(manual, 'documents', lambda: (topics, collections.Counter()))
    build.build_store('manual', 'train:words:2000', out, progress=False)
    yield corpus.open_store(out)


def test_store_of_the_manual(manual_store):
  store = manual_store
  texts = itertools.chain.from_iterable(
    pool.find_sentences(piece.text, piece.sentence_per_line)
    for piece in sources.open_source('manual').pieces()
  )
  expected = [words.split_words(text, 'marks') for text in texts]
  assert sentences_of(store) == [' '.join(each) for each in expected]
  counts = collections.Counter(itertools.chain.from_iterable(expected))
  ranked = sorted(counts, key=lambda word: (-counts[word], word))
  assert store.tokenizer.pieces == (*SPECIALS, *ranked)
  audit = store.meta['audit']
  assert audit['unknown_rate'] == 0
  assert audit['vocab_size'] == len(ranked) + 3 == len(store.counts)
  assert audit['softmax_size'] == audit['vocab_size_asked'] == 2000
  lacking = store.counts[2000:].sum() / store.counts.sum()
  assert audit['softmax_unknown_rate'] == pytest.approx(lacking)
  assert audit['cut_types'] == store.tokenizer.num_cut > 0
  # The manual is that of the Python at hand: near one word in ten is lacking.
  assert len(audit['warnings']) == (lacking > 0.1)
  # One more target for each sentence.
  examples = word_streams.WordStreamExamples(store, 20, held_out=False)
  targets = word_streams.token_counts(store).sum()
  assert examples.num_windows == -(-targets // 20)


def test_store_of_words_that_are_apart(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(documents, 'PIECE_CHARS', 200)
  monkeypatch.setattr(pool, 'ITEM_CHARACTERS', 500)
  monkeypatch.setattr(
    vocabularies, 'VOCABULARY_BYTES', 500
  )  # no sample is enough
  rng = random.Random(1)
  # Neither capitals nor full stops: only the lines tell sentences.
  known = ["don 't", 'e.g. x', 'you。我', '...', '<S>', '</S> y', '<UNK>']
  lines = [' '.join(rng.choices(known, k=6)) + f' once{i}' for i in range(400)]
  text = tmp_path / 'text.txt.gz'
  text.write_bytes(gzip.compress('\n'.join(lines).encode()))
  out = tmp_path / 'store'
  command = ['--source', str(text), '--out', str(out), '--workers', '2']
  tokenizer = ['--tokenizer', 'train:words:1000:spaces', '--json']
  assert prepare.main([*command, *tokenizer]) == 0
  captured = capsys.readouterr()
  audit = json.loads(captured.out)
  assert 'types cut' in captured.err and 'not predicted' in captured.err
  assert any(
    f'gave {audit["vocab_size"]} vocabulary pieces, 1000' in warning
    for warning in audit['warnings']
  )
  store = corpus.open_store(out)
  unknown = sum(line.split().count(s) for line in lines for s in SPECIALS)
  assert audit['unknown_rate'] == pytest.approx(unknown / store.num_tokens)
  assert sentences_of(store) == [
    line.replace('</S>', '<UNK>').replace('<S>', '<UNK>') for line in lines
  ]
  assert {0, 1}.isdisjoint(store.tokens.tolist())
  # An equal store stands, one of its own vocabulary too.
  asked = dict(source=str(text), folder=out, progress=False)
  for tokenizer in ('train:words:1000:spaces', str(out)):
    assert build.ensure_store(tokenizer=tokenizer, **asked)
  with pytest.raises(ValueError, match=r'tokenizer \(built with .*whole words'):
    build.ensure_store(tokenizer='train:words:1000', **asked)


def test_store_of_another_text_with_the_same_softmax(manual_store, tmp_path):
  text = tmp_path / 'text.txt'
  lines = [f'The function returns Qwertz{i % 7}, Zyx!' for i in range(300)]
  text.write_text('\n\n'.join(lines))
  build.build_store(
    str(text), str(manual_store.folder), tmp_path / 'store', progress=False
  )
  store = corpus.open_store(tmp_path / 'store')
  mine, theirs = store.tokenizer, manual_store.tokenizer
  assert mine.fingerprint == theirs.fingerprint
  assert mine.pieces[:2000] == theirs.pieces[:2000]
  assert mine.pieces[2000] == 'Zyx' and mine.vocab_size == 2008
  assert sentences_of(store)[0] == 'The function returns Qwertz0 , Zyx !'
  audit = store.meta['audit']
  assert audit['unknown_rate'] == 0 and audit['vocab_size_asked'] is None
  assert audit['vocabulary_text'].startswith('8 types of it added')
  # The fingerprint leaves the types beyond the softmax out, the store does not.
  file = store.folder / 'words.txt'
  file.write_text(file.read_text().replace('Zyx\n', 'Zyz\n'))
  with pytest.raises(ValueError, match=r'words\.txt is damaged'):
    corpus.open_store(store.folder)


def test_dropped_types_are_unknown(tmp_path, monkeypatch):
  monkeypatch.setattr(words, 'MAX_TYPES', 6)
  text = tmp_path / 'text.txt'
  text.write_text('\n'.join(f'a b a b a c{i}' for i in range(99)))
  audit = build.build_store(
    str(text), 'train:words:5:spaces', tmp_path / 'store', progress=False
  )
  assert audit['unknown_rate'] == pytest.approx(1 / 6)
  assert audit['vocab_size'] == 5  # all that are as rare go together


def test_text_that_is_none_leaves_nothing(tmp_path, capsys):
  text = tmp_path / 'text.txt'
  # Behind what is looked at before anything is built.
  text.write_bytes(b'a b c .\n' * 200_000 + b'caf\xe9\n')
  out = tmp_path / 'store'
  command = ['--source', str(text), '--out', str(out), '--tokenizer']
  assert prepare.main([*command, 'train:words:9:spaces']) == 1
  found = capsys.readouterr().err
  assert f'error: {text}: not UTF-8 at byte 1,600,003 (0xe9' in found
  assert [path.name for path in tmp_path.iterdir()] == ['text.txt']


def test_counting_reads_pieces_one_by_one():
  """The text is not collected before it is counted."""
  state = types.SimpleNamespace(made=0)

  class Text(str):
    def split(self):
      state.alive = state.made
      state.made = 0
      return super().split()

  def texts():
    for _ in range(50):
      state.made += 1
      yield Text('a b c')

  words.train_words(texts(), 4, 'spaces')
  assert state.alive == 1
