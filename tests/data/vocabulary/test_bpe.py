"""GPT's and GPT-2's tokenizers against references, and their training.

`transformers` 5 has GPT-2's as released, but GPT's without ftfy and spaCy
whether they are installed or not: it is the reference of our fallback. That of
GPT's words is the release's rule, written out below in plain Python.
"""

import functools
import itertools
import json
import os
import random
import re
import subprocess
import sys

import pytest
from etils import epath

from data.vocabulary import bpe, byte_bpe, tokenization

HARD = (
  '',
  ' ',
  '\n',
  ' \t\r\n \n',
  'Hello, World!  don\'t  "quote" (me) [at] {all} <tag> a_b~c^d`e $5 50%',
  "IT'S we'll they'RE I'm he'd they've o'clock 'tis rock'n'roll",
  'Café naïve ÅNGSTRÖM Straße İstanbul ŁÓDŹ ΣΑΣ',
  'e\u0301le\u0300ve A\u030angstrom \u0301alone',
  '我们去北京。你好 world中文mix 㐀 𠀀 豈 ひらがな 한국어',
  'emoji 😀 👩‍👩‍👧 🇩🇪 ❤️ a😀b',
  'ctrl\x00\x01\x02\x7f\x9f bell\x07 del \ufffd x\x1c\x1d \x1e\x1fy',
  'zero\u200bwidth \u200d join \ufeffbom soft\xadhyphen \u2060word',
  'spaces\u00a0\u2003\u3000\u1680end line\u2028sep par\u2029sep\x85next',
  'tabs\t\tand\x0bvertical\x0cfeeds\r\nof Windows\r\n\r\nand  \n  lines\n\n\n',
  'русский Ёлка ελληνικά עִבְרִית العَرَبِيَّة हिन्दी ไทย',
  '“curly” ‘quotes’ — dash – – ― … ellipsis ´ · • © ™ € ½ ² ﬁ Ⅷ &amp; &lt;',
  '--- !!! ??? ... *** ((( ]]] // \\\\ ++ __ || ;; ,, ~~ -+-+ "\'"',
  'x86 3.14 1,000,000 U.S.A. e-mail@x.org http://e.org/a?b=c C:\\path #t @u',
  'mojibake: cafÃ© â€œquotedâ€\x9d',
  'a' * 1000,
  'ab ' * 400 + 'é' * 1000,
  '<|endoftext|> _start_ </w> <unk> \n</w>',
)


@pytest.fixture(scope='module')
def folder(sesame_data):
  return sesame_data / 'fixtures/vocab'


@pytest.fixture(scope='module')
def gpt(folder):
  return tokenization.load(folder / 'gpt')


@pytest.fixture(scope='module')
def gpt2(folder):
  return tokenization.load(folder / 'gpt2')


@pytest.fixture(scope='module')
def texts(batches):
  """Slices of the data sets, and the hard ones."""
  found = list(itertools.chain.from_iterable(itertools.islice(batches(), 20)))
  assert sum(map(len, found)) > 250_000
  return [*found, *HARD]


def check_transformers(ours, theirs, batches):
  """Ids and spans of all batches are those of a tokenizer of `transformers`."""
  count = 0
  for texts in itertools.chain(batches(), [HARD]):
    expected = theirs(
      list(texts),
      add_special_tokens=False,
      split_special_tokens=True,
      return_offsets_mapping=True,
    )
    for text, (ids, spans), wanted, places, alone in zip(
      texts,
      ours.encode_with_spans(texts),
      expected['input_ids'],
      expected['offset_mapping'],
      ours.encode_batch(texts),
      strict=True,
    ):
      assert ids == alone == wanted, text[:200]
      assert spans == [tuple(place) for place in places], text[:200]
      count += len(ids)
  assert count > 50_000
  return count


def check_same(ours, theirs, texts):
  for text, ids, expected in zip(texts, ours, theirs, strict=True):
    assert ids == expected, repr(text[:200])
  assert sum(map(len, ours)) > 50_000


# --- GPT


def release(gpt):
  """Returns text -> ids by the release's rule, spaCy on the whole text."""
  import ftfy
  from spacy.lang.en import English

  ids = {piece: i for i, piece in enumerate(gpt.pieces)}
  ranks = {merge: rank for rank, merge in enumerate(gpt.merges)}
  words = English()

  @functools.cache
  def encode_word(word):
    if word.strip(' ') == '\n':
      return [ids['\n</w>']]
    symbols = [*word[:-1], word[-1] + '</w>']
    while len(symbols) > 1:
      best = min(
        itertools.pairwise(symbols), key=lambda p: ranks.get(p, len(ranks))
      )
      if best not in ranks:
        break
      merged, i = [], 0
      while i < len(symbols):
        pair = tuple(symbols[i : i + 2]) == best
        merged.append(''.join(best) if pair else symbols[i])
        i += 2 if pair else 1
      symbols = merged
    return [ids.get(symbol, 0) for symbol in symbols]

  def encode(text):
    text = ftfy.fix_text(text)
    for old, new in (*zip('—–―', '---', strict=True), ('…', '...'), ('´', "'")):
      text = text.replace(old, new)
    runs = (''.join(run) for _, run in itertools.groupby(text))
    marks = '-~!";?+,)(/*[]}{|_'
    text = ''.join(f' {run} ' if run[0] in marks else run for run in runs)
    text = re.sub(r'\s+', lambda m: ' \n ' if '\n' in m[0] else ' ', text)
    found = (encode_word(word.text.lower()) for word in words(text.strip()))
    return list(itertools.chain.from_iterable(found))

  return encode


def test_gpt_equals_the_release(gpt, texts):
  texts = [*texts[: -len(HARD) : 2], *HARD]
  check_same(gpt.encode_batch(texts), map(release(gpt), texts), texts)


def test_gpt_without_ftfy_and_spacy_equals_transformers(
  folder, batches, tmp_path
):
  import transformers

  files = folder / 'gpt/encoder_bpe_40000.json', folder / 'gpt/vocab_40000.bpe'
  theirs = transformers.OpenAIGPTTokenizer(
    vocab=str(files[0]), merges=str(files[1])
  )
  theirs.save_pretrained(tmp_path)
  whole = epath.Path(tmp_path / 'tokenizer.json')
  ours = bpe.load_bpe(whole, whole, words=bpe.BASIC)
  assert ours.fingerprint == bpe.load_bpe(*files, words=bpe.BASIC).fingerprint
  count = check_transformers(ours, theirs, batches)
  assert ours.white_space == 'ignored'
  print(f'GPT: {count:,} ids and spans')


def test_gpts_spans(gpt, texts):
  """The text at a span, lower-cased, is the piece where nothing is repaired."""
  samples = [*texts[: -len(HARD) : 4], *HARD]
  compared = changed = 0
  for text, expected, (ids, spans) in zip(
    samples,
    gpt.encode_batch(samples),
    gpt.encode_with_spans(samples),
    strict=True,
  ):
    assert ids == expected, text[:200]
    assert spans == sorted(spans) and len(ids) == len(spans)
    for i, (start, end) in zip(ids, spans, strict=True):
      piece = gpt.pieces[i].removesuffix('</w>')
      found = text[start:end]
      if i == gpt.unk_id:
        continue
      compared += 1
      if piece == '\n':
        assert found.isspace()
      elif found.lower() != piece:
        changed += 1
  assert compared > 20_000 and changed < compared / 50
  text = (
    '  Hi\r\n\r\n\u201cWorld\u201d\u2026 caf\xc3\xa9 &lt; '
    '\ufb01ne\u2014\u0130! '
  )
  ((ids, spans),) = gpt.encode_with_spans([text])
  assert [
    (gpt.pieces[i], text[a:b]) for i, (a, b) in zip(ids, spans, strict=True)
  ] == [
    ('hi</w>', 'Hi'),
    ('\n</w>', '\n\r\n'),
    ('"</w>', '\u201c'),
    ('world</w>', 'World'),
    ('"</w>', '\u201d'),
    ('...</w>', '\u2026'),
    ('caf\xe9</w>', 'caf\xc3\xa9'),
    ('<</w>', '&lt;'),
    ('fine</w>', '\ufb01ne'),
    ('-</w>', '\u2014'),
    ('i', '\u0130'),
    ('<unk>', '\u0130'),
    ('!</w>', '!'),
  ]


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('a\r\x1ab', [('a', 'a'), ('\n', '\r'), ('b', 'b')]),
    ('a\r\x1a\nb', [('a', 'a'), ('\n', '\r\x1a\n'), ('b', 'b')]),
    ('a \x07\n b', [('a', 'a'), ('\n', ' \x07\n '), ('b', 'b')]),
    ('\x1ahello\x1a world\x1a', [('hello', 'hello'), ('world', 'world')]),
  ],
)
def test_gpts_spans_where_control_characters_are_taken_out(text, expected, gpt):
  """They are in the span of what stands round them, and of no other piece."""
  ((ids, spans),) = gpt.encode_with_spans([text])
  assert [ids] == gpt.encode_batch([text])
  assert [
    (gpt.pieces[i].removesuffix('</w>'), text[start:end])
    for i, (start, end) in zip(ids, spans, strict=True)
  ] == expected


def test_gpts_ids_by_word(gpt):
  found = gpt.encode_words([["Don't", 'CAF\xc9', ' '], [], ['x']])
  assert [[gpt.pieces[i] for i in word] for word in found[0]] == [
    ['do</w>', "n't</w>"],
    ['caf\xe9</w>'],
    [],
  ]
  assert found[1:] == [[], gpt.encode_batch([['x']][0])]


def test_gpt_ids(gpt):
  assert gpt.vocab_size == len(gpt.pieces) == 40_481
  assert (gpt.start_id, gpt.delimiter_id, gpt.classify_id) == (
    40_478,
    40_479,
    40_480,
  )
  assert gpt.unk_id == 0 and gpt.white_space == 'newlines'
  text = 'Hello World —\n\n it\'s "here"…'
  (ids,) = gpt.encode_batch([text])
  pieces = 'hello world - \n it \'s " here " ...'.split(' ')
  assert [gpt.pieces[i] for i in ids] == [f'{piece}</w>' for piece in pieces]
  assert gpt.decode(ids) == 'hello world -\nit \'s " here " ...'
  assert gpt.decode([40_478, *ids[:2], 40_480]) == (
    '_start_ hello world _classify_'
  )
  specials = set(range(40_478, 40_481))
  assert not specials & set(gpt.encode_batch(['_start_ _classify_'])[0])


def test_gpt_decoded_and_encoded_again(gpt, sesame_data):
  text = (sorted((sesame_data / 'novels').iterdir())[5]).read_text()[:60_000]
  (ids,) = gpt.encode_batch([text])
  (again,) = gpt.encode_batch([gpt.decode(ids)])
  assert len(ids) > 10_000 and ids.count(0) == 0
  # spaCy finds more words where spaces were put in, so only those may differ.
  once, twice = gpt.decode(ids), gpt.decode(again)
  assert once.replace(' ', '') == twice.replace(' ', '')


def test_missing_packages_are_said_and_recorded(
  gpt, folder, tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(bpe, '_missing_packages', lambda: ['spacy'])
  basic = tokenization.load(folder / 'gpt')
  message = capsys.readouterr().err
  assert (
    message.startswith('warning: spacy cannot be found') and 'gpt' in message
  )
  assert len(message.splitlines()) == 1
  assert basic.fingerprint != gpt.fingerprint
  assert 'without ftfy and spaCy' in basic.description
  basic.save(tmp_path / 'basic')
  gpt.save(tmp_path / 'release')
  # A folder of ours keeps its way of finding words, or refuses.
  release = tokenization.load(tmp_path / 'release')
  assert release.fingerprint == gpt.fingerprint
  assert release.decode([3570]) == 'hello'
  with pytest.raises(ValueError, match=r'spacy cannot.*sesame-lm\[gpt\]'):
    release.encode_batch(['Hello'])
  assert capsys.readouterr().err == ''
  monkeypatch.undo()
  again = tokenization.load(tmp_path / 'basic')
  assert again.fingerprint == basic.fingerprint
  assert again.encode_batch(['A\nb']) == basic.encode_batch(['A\nb'])


# --- GPT-2


def test_gpt2_equals_transformers_and_loses_nothing(
  gpt2, folder, batches, texts, tmp_path
):
  import transformers

  theirs = transformers.GPT2Tokenizer(
    vocab=str(folder / 'gpt2/encoder.json'),
    merges=str(folder / 'gpt2/vocab.bpe'),
  )
  theirs.save_pretrained(tmp_path)
  ours = tokenization.load(tmp_path)
  assert ours.fingerprint == gpt2.fingerprint
  count = check_transformers(ours, theirs, batches)
  print(f'GPT-2: {count:,} ids and spans')
  # They recognise the symbol in the text, as we do when asked.
  expected = theirs(texts, add_special_tokens=False)['input_ids']
  check_same(gpt2.encode_batch(texts, special=True), expected, texts)
  for text, (ids, spans) in zip(
    texts, gpt2.encode_with_spans(texts), strict=True
  ):
    assert gpt2.decode(ids) == text
    # The spans are the text without a gap; a character that is cut has several.
    assert [0, *itertools.accumulate((end for _, end in spans), max)][
      -1
    ] == len(text)
    for (_, end), (start, _) in itertools.pairwise(spans):
      assert start in (end - 1, end)


def test_gpt2s_ids_by_word(gpt2, texts):
  sentences = [text.split() for text in texts]
  found = gpt2.encode_words(sentences)
  joined = gpt2.encode_batch([' '.join(words) for words in sentences])
  for words, ids, expected in zip(sentences, found, joined, strict=True):
    assert len(ids) == len(words)
    assert list(itertools.chain.from_iterable(ids)) == expected
  assert gpt2.encode_words([['Hello', 'world', '']]) == [[[15496], [995], []]]


def test_gpt2_ids(gpt2):
  assert gpt2.vocab_size == 50_257 and gpt2.end_of_text_id == 50_256
  assert gpt2.unk_id is None and gpt2.white_space == 'kept'
  assert gpt2.encode_batch(['Hello world']) == [[15496, 995]]
  text = 'a<|endoftext|><|endoftext|> b'
  (ids,) = gpt2.encode_batch([text])
  assert 50_256 not in ids and gpt2.decode(ids) == text
  (asked,) = gpt2.encode_batch([text], special=True)
  assert asked == [64, 50_256, 50_256, 275] and gpt2.decode(asked) == text
  with pytest.raises(ValueError, match=r'U\+D83D at character 3'):
    gpt2.encode_batch(['fine', 'no \ud83d text'])


def test_any_text_comes_back(gpt2):
  rng = random.Random(0)
  points = [*range(0xD800), *range(0xE000, 0x3_1400)]
  samples = [''.join(map(chr, rng.sample(points, 50))) for _ in range(300)]
  for text, ids in zip(samples, gpt2.encode_batch(samples), strict=True):
    assert gpt2.decode(ids) == text


# --- Files


@pytest.mark.parametrize(
  ('kind', 'names'),
  [
    ('gpt', ('encoder_bpe_40000.json', 'vocab_40000.bpe')),
    ('gpt2', ('encoder.json', 'vocab.bpe')),
  ],
)
def test_saved_and_loaded_is_the_same(kind, names, folder, tmp_path, request):
  ours = request.getfixturevalue(kind)
  for name in names:
    loaded = tokenization.load(folder / kind / name)
    assert loaded.fingerprint == ours.fingerprint
  # The names of other programs, for either kind.
  other = tmp_path / 'other'
  other.mkdir()
  for name, to in zip(names, ('vocab.json', 'merges.txt'), strict=True):
    (other / to).write_bytes((folder / kind / name).read_bytes())
  ours.save(tmp_path / 'saved')
  for place in (other, tmp_path / 'saved'):
    again = tokenization.load(place)
    assert type(again) is type(ours)
    assert again.fingerprint == ours.fingerprint
    assert again.pieces == ours.pieces
  assert tokenization.load(tmp_path / 'saved/vocab.bpe').pieces == ours.pieces
  again.save(tmp_path / 'copy')
  for file in (tmp_path / 'saved').iterdir():
    assert (tmp_path / 'copy' / file.name).read_bytes() == file.read_bytes()


SMALL = ['<unk>', 'a', 'b', 'a</w>', 'b</w>', 'ab</w>']
MERGES = '#version: 0.2\na b</w>\n'


def small(**changes):
  return json.dumps({p: i for i, p in enumerate(SMALL)} | changes, indent=0)


@pytest.mark.parametrize(
  ('vocab', 'merges', 'message'),
  [
    ('{"a": 1,\n"b" 2}', MERGES, r'encoder\S+json, line 2, column 5: not JSON'),
    ('["a"]', MERGES, r'json: expected a JSON object, found list'),
    ('{}', MERGES, 'found nothing in it'),
    ('{"a": 0, "a": 1}', MERGES, "'a' stands in it twice"),
    (small(b=1), MERGES, "pieces 'a' and 'b' both have id 1"),
    (small(b=9), MERGES, "piece 'b' has id 9; the ids of its 6 pieces"),
    (small(b='2'), MERGES, "piece 'b' has id '2'"),
    (b'{"a": 0,\n"\xff": 1}', MERGES, 'line 2: not UTF-8 at byte 10'),
    (small(), MERGES + 'a\n', 'bpe, line 3: expected two pieces'),
    (small(), MERGES + 'a b c\n', 'bpe, line 3: expected two pieces'),
    (small(), MERGES + 'a b</w>\n', 'bpe, line 3: .* stands at .*line 2'),
    (small(), MERGES + 'a b\n', "bpe, line 3: 'a b' needs the piece 'ab'"),
    (small(), '#version: 0.2\n', r"'ab</w>' \(id 5\) is made by none of the 0"),
    (small(_start_=6), MERGES, "'_start_'"),
    ('{"<unk>": 0, "a": 1}', '', 'no piece ends with </w>'),
    ('{"a</w>": 0}', '', "no '<unk>' among its 1 pieces"),
  ],
)
def test_bad_files_are_named(vocab, merges, message, tmp_path):
  vocab = vocab if isinstance(vocab, bytes) else vocab.encode()
  (tmp_path / 'encoder_bpe_40000.json').write_bytes(vocab)
  (tmp_path / 'vocab_40000.bpe').write_text(merges)
  with pytest.raises(ValueError, match=message) as error:
    tokenization.load(tmp_path)
  assert str(tmp_path) in str(error.value)


def test_files_that_are_not_there(tmp_path, folder):
  (tmp_path / 'encoder.json').write_text(small())
  with pytest.raises(FileNotFoundError, match=r'no vocab\.bpe beside'):
    tokenization.load(tmp_path)
  (tmp_path / 'vocab.bpe').write_text(MERGES)
  with pytest.raises(ValueError, match=r'no .* among its 6 pieces; is'):
    tokenization.load(tmp_path)
  (tmp_path / 'tokenizer_settings.json').write_text('[]')
  with pytest.raises(ValueError, match='settings.json: expected a JSON object'):
    tokenization.load(tmp_path)
  with pytest.raises(ValueError, match='only WordPiece is cased'):
    tokenization.load(folder / 'gpt2', cased=True)


def test_small_vocabulary(tmp_path):
  (tmp_path / 'encoder_bpe_40000.json').write_text(small())
  (tmp_path / 'vocab_40000.bpe').write_text(MERGES.replace('\n', '\r\n'))
  ours = tokenization.load(tmp_path)
  # No newline among its pieces: unknown, as any other letter.
  assert ours.encode_batch(['AB abx\nb']) == [[5, 1, 2, 0, 0, 4]]


# --- Training

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
    with pytest.raises(ValueError, match=f'vocab_size is {size}'):
      tokenization.train(['text'], tokenization.Training(kind, size))
    with pytest.raises(ValueError, match='no text to train'):
      tokenization.train([''], tokenization.Training(kind, 1000))


def test_what_train_may_say():
  parse = tokenization.parse_training
  assert parse('runs/store') is None
  assert parse('train:wordpiece:99') == tokenization.Training('wordpiece', 99)
  assert parse('train:wordpiece:99:cased').cased
  assert parse('train:bytebpe:300').white_space == 'kept'
  for wrong in ('train:bpe', 'train:bpe:9:cased', 'train:unigram:9', 'train:'):
    with pytest.raises(ValueError, match='expected train:wordpiece:N'):
      parse(wrong)
