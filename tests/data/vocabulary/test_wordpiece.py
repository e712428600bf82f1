"""WordPiece against two references, its training, and bad vocabularies.

The references are `transformers`' BERT tokenizer and the plain Python port of
the release's tokenizer that it carries for Japanese.
"""

import collections
import itertools
import json
import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from data.text import sentences
from data.vocabulary import tokenization, wordpiece

VOCABULARIES = {  # file -> cased
  'bert-base-uncased-vocab.txt': False,
  'bert-base-cased-vocab.txt': True,
  'bert-base-chinese-vocab.txt': False,
  'bert-base-multilingual-cased-vocab.txt': True,
}
HARD = (
  '',
  ' \t\n ',
  'Hello, World! don\'t "quote" (me) [at] {all} <tag> a_b~c^d`e $5 50%',
  'Café naïve ÅNGSTRÖM Straße İstanbul ŁÓDŹ',
  'e\u0301le\u0300ve A\u030angstrom \u0301alone',  # combining marks
  '我们去北京。你好 world中文mix 㐀 𠀀 豈 力加勝北区',
  'ひらがな カタカナ 한국어 조선말 ᄒᆞᆫ',
  'emoji 😀 👩‍👩‍👧 🇩🇪 ❤️ a😀b',
  'ctrl\x01\x02\x7f\x9f bell\x07 del nul-free \ufffd x',
  'zero\u200bwidth \u200d join \ufeffbom soft\xadhyphen \u2060word',
  'spaces\u00a0\u2003\u3000\u1680end line\u2028sep par\u2029sep',
  'vertical\x0btab form\x0cfeed next\x85line',
  'русский Ёлка ελληνικά Σίσυφος עִבְרִית العَرَبِيَّة हिन्दी ไทย',
  '“curly” ‘quotes’ — dash … ellipsis · • © ® ™ € ½ ² ﬁ Ⅷ',
  'ALLCAPS CamelCase iPhone x86 3.14 1,000,000 a.b.c U.S.A. e-mail@x.org',
  'http://example.org/a?b=c&d=%20 C:\\path\\file #tag @user',
  'unaffable runningly antidisestablishmentarianism zzzzqqqq',
  'a' * 99 + ' ' + 'ab' * 50,
)


def python_reference(vocab_file, cased, max_chars):
  """The release's tokenizer in plain Python: text -> pieces."""
  from transformers.models.bert_japanese import (
    tokenization_bert_japanese as release,
  )

  # Pieces end at newlines only.
  vocab = vocab_file.read_bytes().decode().split('\n')
  basic = release.BasicTokenizer(do_lower_case=not cased, never_split=[])
  pieces = release.WordpieceTokenizer(
    dict.fromkeys(vocab), '[UNK]', max_input_chars_per_word=max_chars
  )
  return lambda text: [
    piece for word in basic.tokenize(text) for piece in pieces.tokenize(word)
  ]


@pytest.fixture(scope='module')
def texts(sesame_data):
  """About 1.5 MB of real text of every kind."""

  def head(path, size=200_000):
    with open(sesame_data / path, encoding='utf-8-sig') as file:
      return file.read(size)

  novels = sorted((sesame_data / 'novels').glob('*.txt'))
  found = sentences.split_sentences(head(novels[10]))
  found += head('wikitext-2/wiki.valid.tokens').split('\n')
  for name, space in (('panx/dev-zh.tsv', ''), ('panx/dev-en.tsv', ' ')):
    words, sentence = head(name).split('\n'), []
    for line in words:
      if line.strip():
        sentence.append(line.split('\t')[0])
      else:
        found.append(space.join(sentence))
        sentence = []
  squad = json.loads((sesame_data / 'squad/dev-v2.0.json').read_text())
  for article in squad['data'][:6]:
    found += [paragraph['context'] for paragraph in article['paragraphs']]
  assert sum(map(len, found)) > 500_000
  return found


@pytest.mark.parametrize('name', VOCABULARIES)
def test_ids_and_spans_equal_transformers(name, batches, sesame_data, tmp_path):
  """Of the tokenizer.json that they write, and of the vocabulary alone."""
  import transformers

  file = sesame_data / 'fixtures/vocab' / name
  theirs = transformers.BertTokenizer(
    vocab=str(file), do_lower_case=not VOCABULARIES[name]
  )
  theirs.save_pretrained(tmp_path)
  ours = tokenization.load(tmp_path)
  # They strip a piece that is white space, U+2028 of the Chinese vocabulary.
  pieces = [piece.strip() for piece in tokenization.load(file).pieces]
  assert [piece.strip() for piece in ours.pieces] == pieces
  assert ours.cased == VOCABULARIES[name] and ours.max_word_chars == 100
  count = 0
  for texts in itertools.chain(batches(), [HARD]):
    expected = theirs(
      list(texts),
      add_special_tokens=False,
      split_special_tokens=True,
      return_offsets_mapping=True,
    )
    found = ours.encode_with_spans(texts)
    for text, (ids, spans), wanted, places, alone in zip(
      texts,
      found,
      expected['input_ids'],
      expected['offset_mapping'],
      ours.encode_batch(texts),
      strict=True,
    ):
      assert ids == alone == wanted, text[:200]
      assert spans == [tuple(place) for place in places], text[:200]
      count += len(ids)
  assert count > 90_000
  print(f'{name}: {count:,} ids and spans')


def test_spans_of_wordpiece_are_the_pieces(texts, sesame_data):
  ours = tokenization.load(
    sesame_data / 'fixtures/vocab/bert-base-uncased-vocab.txt'
  )
  normalize = ours.tokenizer.normalizer.normalize_str
  compared = cut = 0
  samples = [*texts[::9], *HARD]
  for text, (ids, spans) in zip(
    samples, ours.encode_with_spans(samples), strict=True
  ):
    for i, (start, end) in zip(ids, spans, strict=True):
      if i != ours.unk_id:
        piece = ours.pieces[i].removeprefix('##')
        found = normalize(text[start:end]).strip()
        # A syllable of Hangul is several letters, each of which has all of it.
        assert piece in found, (text, start, end)
        compared += 1
        cut += found != piece
  assert compared > 15_000 and cut < compared / 500


@pytest.mark.parametrize('name', VOCABULARIES)
def test_ids_by_word(name, texts, sesame_data):
  ours = tokenization.load(sesame_data / 'fixtures/vocab' / name)
  sentences_ = [text.split() for text in [*texts[::20], *HARD]]
  found = ours.encode_words(sentences_)
  joined = ours.encode_batch([' '.join(words) for words in sentences_])
  for words, ids, expected in zip(sentences_, found, joined, strict=True):
    assert len(ids) == len(words)
    assert list(itertools.chain.from_iterable(ids)) == expected
  assert ours.encode_words([['\x01', 'x'], []])[0][0] == []


@pytest.mark.parametrize('name', VOCABULARIES)
def test_ids_equal_the_release_in_python(name, texts, sesame_data):
  file = sesame_data / 'fixtures/vocab' / name
  ours = tokenization.load(file)
  reference = python_reference(file, VOCABULARIES[name], 200)
  samples = [*texts[::7], *HARD]
  if VOCABULARIES[name]:
    # The port composes accents first (NFC); the release keeps cased text as is.
    samples = [
      text for text in samples if unicodedata.is_normalized('NFC', text)
    ]
  assert len(samples) > 1000
  for text, ids in zip(samples, ours.encode_batch(samples), strict=True):
    assert [ours.pieces[i] for i in ids] == reference(text), repr(text)


def test_ids_of_eleven_languages_equal_both_references(sesame_data):
  """All of PUD, 1,000 sentences a language, with the published vocabulary."""
  import transformers

  name = 'bert-base-multilingual-cased-vocab.txt'
  file = sesame_data / 'fixtures/vocab' / name
  ours = tokenization.load(file)
  assert ours.vocab_size == 119_547 and ours.cased
  theirs = transformers.BertTokenizer(vocab=str(file), do_lower_case=False)
  release = python_reference(file, True, 200)
  count = 0
  for path in sorted((sesame_data / 'pud').glob('*.conllu')):
    lines = path.read_text('utf-8').split('\n')
    texts = [line[9:] for line in lines if line.startswith('# text = ')]
    assert len(texts) == 1000
    found = ours.encode_batch(texts)
    assert found == theirs(texts, add_special_tokens=False)['input_ids']
    for text, ids in list(zip(texts, found, strict=True))[::10]:
      if unicodedata.is_normalized('NFC', text):
        assert [ours.pieces[i] for i in ids] == release(text), text
        count += 1
  assert count > 1000


def test_spaces_stand_round_the_characters_of_the_release(sesame_data):
  """Of these blocks, and of no other: Hangul and kana are letters of words."""
  # google-research/bert, tokenization.py.
  blocks = [
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
  ]
  name = 'bert-base-multilingual-cased-vocab.txt'
  file = sesame_data / 'fixtures/vocab' / name
  ours, release = tokenization.load(file), python_reference(file, True, 200)
  letters = [
    chr(place + offset)
    for block in blocks
    for place in block
    for offset in (-1, 0, 1)
  ]
  letters += [chr(place) for place in range(0x1100, 0x30000, 61)]
  letters += [chr(place) for place in range(0x2B820, 0x2B930, 5)]
  letters = [
    c
    for c in letters
    if unicodedata.is_normalized('NFC', c) and unicodedata.category(c) == 'Lo'
  ]
  texts = [f'wo{letter}rd' for letter in letters]
  found = ours.encode_batch(texts)
  for letter, text, ids in zip(letters, texts, found, strict=True):
    assert [ours.pieces[i] for i in ids] == release(text), hex(ord(letter))
    if any(first <= ord(letter) <= last for first, last in blocks):
      assert len(ids) >= 3
  ids, spans = zip(*ours.encode_with_spans(texts), strict=True)
  assert list(ids) == found
  rare = texts.index('wo\U0002b820rd')
  assert spans[rare] == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_long_words_are_unknown_beyond_200_characters(sesame_data):
  """The release's limit; transformers kept the first release's 100."""
  import transformers

  file = sesame_data / 'fixtures/vocab/bert-base-uncased-vocab.txt'
  ours = tokenization.load(file)
  theirs = transformers.BertTokenizer(vocab=str(file), do_lower_case=True)
  release = python_reference(file, False, 200)
  for length in (99, 100, 101, 150, 199, 200, 201, 300):
    word = ('ab' * length)[:length]
    (ids,) = ours.encode_batch([word])
    assert [ours.pieces[i] for i in ids] == release(word)
    assert (ids == [ours.unk_id]) == (length > 200)
    equal = ids == theirs(word, add_special_tokens=False)['input_ids']
    assert equal == (length <= 100 or length > 200)


def test_special_tokens_in_text_are_text(sesame_data):
  ours = tokenization.load(
    sesame_data / 'fixtures/vocab/bert-base-uncased-vocab.txt'
  )
  (ids,) = ours.encode_batch(['[MASK] [CLS][PAD]'])
  specials = {ours.pad_id, ours.cls_id, ours.sep_id, ours.mask_id}
  assert not specials & set(ids)
  assert [ours.pieces[i] for i in ids][:3] == ['[', 'mask', ']']


@pytest.mark.parametrize('name', VOCABULARIES)
def test_case_is_recognised_and_can_be_overridden(name, sesame_data, tmp_path):
  file = sesame_data / 'fixtures/vocab' / name
  cased = VOCABULARIES[name]
  assert tokenization.load(file).cased == cased
  other = tokenization.load(file, cased=not cased)
  assert other.cased != cased
  assert other.fingerprint != tokenization.load(file).fingerprint
  # What the publisher wrote beside it comes before the guess.
  (tmp_path / 'vocab.txt').write_bytes(file.read_bytes())
  config = {'do_lower_case': cased}
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps(config))
  assert tokenization.load(tmp_path).cased != cased


def test_ids_of_the_published_vocabulary(sesame_data):
  ours = tokenization.load(
    sesame_data / 'fixtures/vocab/bert-base-uncased-vocab.txt'
  )
  assert ours.vocab_size == 30_522
  ids = (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id)
  assert ids == (0, 100, 101, 102, 103)
  continuations = ours.continuations()
  assert continuations.dtype == bool and continuations.shape == (30_522,)
  (found,) = ours.encode_batch(['unaffable'])
  assert continuations[found].tolist() == [False, True, True]
  assert ours.decode(np.array(found)) == 'unaffable'
  assert ours.decode([101, *found, 102]) == '[CLS] unaffable [SEP]'


# --- Files

SMALL = [*wordpiece.SPECIALS, 'the', 'cat', '##s', 'T']


def write_vocab(path, pieces, end='\n'):
  path.write_bytes(''.join(piece + end for piece in pieces).encode())
  return path


def test_line_ends_of_windows_and_byte_order_mark(tmp_path):
  unix = tokenization.load(write_vocab(tmp_path / 'a.txt', SMALL))
  dos = tokenization.load(write_vocab(tmp_path / 'b.txt', SMALL, '\r\n'))
  mark = tokenization.load(
    write_vocab(tmp_path / 'c.txt', ['\ufeff' + SMALL[0], *SMALL[1:]])
  )
  assert unix.pieces == dos.pieces == mark.pieces == tuple(SMALL)
  assert dos.encode_batch(['the cats']) == [[5, 6, 7]]


def test_saved_and_loaded_is_the_same(tmp_path):
  first = tokenization.load(write_vocab(tmp_path / 'a.txt', SMALL), cased=False)
  first.save(tmp_path / 'store')
  again = tokenization.load(tmp_path / 'store')
  assert again.pieces == first.pieces
  assert again.cased is False  # looks cased: the settings beside it count
  assert again.fingerprint == first.fingerprint
  assert again.encode_batch(['The CATS']) == [[5, 6, 7]]
  again.save(tmp_path / 'copy')
  for file in (tmp_path / 'store').iterdir():
    assert (tmp_path / 'copy' / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    ('', 'the vocabulary is empty'),
    ('\n\n', 'the vocabulary is empty'),
    ('\n'.join(p for p in SMALL if p != '[MASK]'), r'no \[MASK\] among its 8'),
    ('\n'.join([*SMALL, 'cat', 'x']), "line 10: 'cat' stands on line 7"),
    (b'[PAD]\n\xff\xfe', 'not UTF-8 at byte 6'),
  ],
)
def test_bad_vocabularies_are_named(content, message, tmp_path):
  file = tmp_path / 'vocab.txt'
  file.write_bytes(content if isinstance(content, bytes) else content.encode())
  with pytest.raises(ValueError, match=message) as error:
    tokenization.load(file)
  assert str(file) in str(error.value)


# --- Training

TRAIN = """
import sys
from data.vocabulary import wordpiece
text = open(sys.argv[1], encoding='utf-8').read().split('\\n')
print(wordpiece.train_wordpiece(text, 3000).fingerprint)
"""


@pytest.mark.slow
def test_training_is_deterministic_on_any_number_of_threads(
  sesame_data, tmp_path
):
  source = sesame_data / 'wikitext-2/wiki.valid.tokens'
  found = set()
  for threads in ('1', '2', '4'):
    env = os.environ | {'RAYON_NUM_THREADS': threads, 'PYTHONHASHSEED': threads}
    command = [sys.executable, '-c', TRAIN, str(source)]
    found.add(subprocess.check_output(command, env=env, text=True))
  assert len(found) == 1


@pytest.fixture(scope='module')
def trained(sesame_data):
  text = (sesame_data / 'wikitext-2/wiki.valid.tokens').read_text('utf-8')
  lines = text.split('\n')
  return lines, wordpiece.train_wordpiece(lines, 3000)


def test_training_gives_a_usable_vocabulary(trained):
  lines, ours = trained
  assert ours.vocab_size == 3000 and not ours.cased
  assert ours.pieces[:5] == wordpiece.SPECIALS
  assert len(set(ours.pieces)) == 3000
  assert all(piece == piece.lower() for piece in ours.pieces[5:])
  assert 'the' in ours.pieces and '##ing' in ours.pieces
  ids = np.concatenate(ours.encode_batch(lines))
  # The alphabet is bounded, so letters seen once may be unknown.
  assert (ids == ours.unk_id).mean() < 1e-3
  words = sum(len(line.split()) for line in lines)
  assert 1.0 < len(ids) / words < 1.6


def test_training_does_not_depend_on_how_the_text_is_cut(trained):
  lines, ours = trained
  again = wordpiece.train_wordpiece(['\n'.join(reversed(lines))], 3000)
  assert again.pieces == ours.pieces


def test_training_cased_keeps_case_and_accents():
  text = ['Élan Élan The The the the élan élan'] * 3
  cased = wordpiece.train_wordpiece(text, 60, cased=True)
  assert cased.cased and {'The', 'the', 'Élan', 'élan'} <= set(cased.pieces)
  uncased = wordpiece.train_wordpiece(text, 60)
  assert 'elan' in uncased.pieces and 'Élan' not in uncased.pieces


def test_training_on_too_little_text_gives_fewer_pieces():
  ours = wordpiece.train_wordpiece(['the cat sat on the mat'] * 2, 5000)
  assert 5 < ours.vocab_size < 60
  (ids,) = ours.encode_batch(['the cat sat on the mat'])
  assert ours.unk_id not in ids and ours.decode(ids) == 'the cat sat on the mat'


def test_training_bounds_alphabet_and_words(monkeypatch):
  # 500 CJK letters and a few Latin words: three quarters of 200 pieces are for
  # letters, and what the words leave over.
  text = ['the cat ' * 10, ''.join(map(chr, range(0x4E00, 0x4E00 + 500)))]
  ours = wordpiece.train_wordpiece(text, 200)
  assert ours.vocab_size == 200
  assert 150 < sum(len(piece) == 1 for piece in ours.pieces) < 190
  assert {'the', 'cat'} <= set(ours.pieces)
  # The rarest words go when there are too many; frequent ones stay.
  monkeypatch.setattr(wordpiece, 'MAX_WORDS', 100)
  rare = (f'word{i} the cat' for i in range(5000))
  counts = wordpiece._count_words(rare, False, collections.Counter())
  assert len(counts) <= 100
  assert counts['the'] == counts['cat'] == 5000


def test_training_without_text():
  with pytest.raises(ValueError, match='no text to train'):
    wordpiece.train_wordpiece(['  ', '\n'], 1000)


def test_words_for_training_are_the_tokenizers_words(trained):
  """Our word pattern is BERT's pre-tokenisation."""
  from tokenizers import pre_tokenizers

  lines, _ = trained
  normalizer = wordpiece._normalizer(cased=False)
  split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
  for text in [*lines[:200], *HARD]:
    text = normalizer.normalize_str(text)
    expected = [word for word, _ in split(text)]
    assert wordpiece._word_pattern().findall(text) == expected
