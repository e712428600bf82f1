"""Token stores of GPT's and GPT-2's kind: cut without loss, and self-contained.

A document's sentences, one after the other, have the ids of the whole document;
GPT-2's decode to its text as it was read.
"""

import gzip
import json
import random
import shutil

import numpy as np
import pytest

from data import prepare
from data.store import build, corpus, pool
from data.text import documents, manual, sentences, sources
from data.vocabulary import bpe, tokenization

ODD = ' ', '  ', '\n', '\n\n', '\n \n', ' \n\n  ', '\t', '\t\t', '\r\n', '\x0c'
ODD += (
  '\u3000\u3000',
  '\n\u3000\u3000',
  '\xa0',
  '\x1c',
  ' \x1d ',
  '\x85',
  '\u2028',
)
WORDS = (
  'The', 'dog.', 'sat!', 'He', "it's", 'U.S.', '1,000', '"No."', '...', 'é',
  'x你好。再见！', '?', "don't", '<|endoftext|>', '😀', 'said', 'Mr.', '-',
)  # fmt: skip


def odd_text(rng, length):
  parts = []
  while len(parts) < length:
    parts += rng.choices(WORDS, k=rng.randint(1, 5))
    parts += rng.choices(ODD, k=rng.choice((1, 1, 1, 2, 3)))
  start = rng.choice(('', '', '\n', '  \n', '\n\n \n'))
  return (
    start
    + ''.join(part + (' ' if part in WORDS else '') for part in parts)
    + rng.choice(('', '\n', '\n\n', '  ', ' \n '))
  )


@pytest.fixture(scope='module')
def gpt2(sesame_data):
  return tokenization.load(sesame_data / 'fixtures/vocab/gpt2')


@pytest.fixture(scope='module')
def gpt(sesame_data):
  return tokenization.load(sesame_data / 'fixtures/vocab/gpt')


@pytest.fixture(params=['gpt', 'gpt2'])
def ours(request):
  return request.getfixturevalue(request.param)


@pytest.fixture(scope='module', params=['bpe', 'bytebpe'])
def small(request):
  """Of either kind; published vocabularies take half a second to open."""
  rng = random.Random(5)
  return tokenization.train(
    [odd_text(rng, 500)],
    tokenization.parse_training(f'train:{request.param}:400'),
  )


def test_where_white_space_may_be_cut(gpt2):
  """By brute force: before the last one of a run of any white space."""
  rng = random.Random(1)
  space = sentences.PLACES['kept'][1]
  wrong = 0
  for _ in range(400):
    text = ''.join(
      rng.choice((rng.choice(WORDS), rng.choice(ODD), rng.choice(' \n\t')))
      for _ in range(12)
    )
    places = {match.start() for match in space.finditer(text)}
    cuts = range(1, len(text))
    whole = gpt2.encode_batch([text])[0]
    parts = gpt2.encode_batch(
      [part for at in cuts for part in (text[:at], text[at:])]
    )
    for at, left, right in zip(cuts, parts[::2], parts[1::2], strict=True):
      if at in places:
        assert left + right == whole, (text, at)
      elif text[at].isspace() or text[at - 1].isspace():
        wrong += left + right != whole
  assert wrong > 500  # elsewhere in white space it matters


def test_what_gpt2_calls_white_space():
  from tokenizers import pre_tokenizers

  split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
  space = sentences.PLACES['kept'][1]
  for point in (*range(0x3100), 0xFEFF, 0x1F600):
    text = f'.{chr(point)}{chr(point)}.'
    if 0x20 != point:
      assert bool(space.search(text)) == (len(split(text)) == 4), hex(point)


def test_sentences_joined_are_the_text(ours):
  rng = random.Random(2)
  counts = 0
  for _ in range(200):
    text = ours.repair(odd_text(rng, 40))
    text = text.strip() if ours.white_space == 'newlines' else text
    found = sentences.split_sentences(text)
    cut = sentences.cut_text(text, found, ours.white_space)
    assert ''.join(cut) == text
    counts += len(cut)
    parts = pool.Encoder(ours).encode_texts(cut)
    assert sum(parts, []) == ours.encode_batch([text])[0], text
    lines = sentences.cut_text(
      text, sentences.split_lines(text), ours.white_space
    )
    assert ''.join(lines) == text
    assert sum(pool.Encoder(ours).encode_texts(lines), []) == sum(parts, [])
  assert counts > 1000


def ids_of_documents(store):
  """The ids of each document; of few ones, head and tail are apart."""
  offsets = store.sentences[store.documents]
  return [
    store.tokens[start:stop].tolist()
    for start, stop in zip(offsets[:-1], offsets[1:], strict=True)
  ]


def check(store, ours, texts):
  texts = [text for text in texts if text.strip()]
  found = ids_of_documents(store)
  if len(found) != len(texts):
    assert len(texts) < 20
    found, texts = [sum(found, [])], [texts]
  else:
    texts = [[text] for text in texts]
  for ids, group in zip(found, texts, strict=True):
    assert ids == sum(ours.encode_batch(group), [])
    if ours.white_space == 'kept':
      assert ours.decode(ids) == ''.join(group)
  assert store.counts.shape == (ours.vocab_size,)
  assert store.tokenizer.fingerprint == ours.fingerprint
  audit = store.meta['audit']
  assert audit['unknown_rate'] == 0 or ours.unk_id == 0
  assert audit['tokenizer'] == ours.description


def make_store(source, ours, tmp_path, **options):
  ours.save(tmp_path / 'tokenizer')
  options = {'workers': 1, 'progress': False} | options
  build.build_store(
    str(source), str(tmp_path / 'tokenizer'), tmp_path / 'store', **options
  )
  return corpus.open_store(tmp_path / 'store')


@pytest.mark.parametrize('form', ['files', 'one_file', 'jsonl', 'lines'])
def test_stores_of_odd_white_space(form, small, tmp_path, monkeypatch):
  monkeypatch.setattr(documents, 'PIECE_CHARS', 150)
  monkeypatch.setattr(pool, 'ITEM_CHARACTERS', 500)
  rng = random.Random(3)
  texts = [odd_text(rng, rng.randint(3, 120)) for _ in range(40)]
  options = {}
  if form == 'files':
    source = tmp_path / 'texts'
    source.mkdir()
    for number, text in enumerate(texts):
      with gzip.open(source / f'{number:03}.txt.gz', 'wb') as file:
        file.write(text.encode())
    options['document_break'] = 'file'
  elif form == 'one_file':
    source = tmp_path / 'text.txt'
    texts = ['=== heading\n' + text.rstrip(' ') + '\n' for text in texts]
    texts = [text.replace('\r\n', '\n').replace('\r', '\n') for text in texts]
    source.write_bytes(''.join(texts).replace('\n', '\r\n').encode())
    options['document_break'] = '==='
  elif form == 'jsonl':
    source = tmp_path / 'text.jsonl'
    records = [json.dumps({'text': text}) for text in texts]
    source.write_text('\n'.join([*records, json.dumps({'text': ' \n'})]))
  else:
    source = tmp_path / 'lines.txt'
    texts = [
      '\n'.join(f'The dog no. {n}  sat on {i}.' for i in range(9)) + '\n'
      for n in range(40)
    ]
    source.write_text('\n'.join(texts))
    # Blank lines divide: each opens the document behind it.
    texts = [texts[0], *('\n' + text for text in texts[1:])]
  texts = [text.replace('\r\n', '\n').replace('\r', '\n') for text in texts]
  check(make_store(source, small, tmp_path, **options), small, texts)


@pytest.mark.slow
def test_store_of_a_novel_and_the_pool(
  gpt2, sesame_data, tmp_path, monkeypatch
):
  novel = sorted((sesame_data / 'novels').iterdir())[7]
  text = novel.read_bytes().decode('utf-8-sig').replace('\r\n', '\n')
  monkeypatch.setattr(pool, 'ITEM_CHARACTERS', 50_000)
  monkeypatch.setattr(documents, 'PIECE_CHARS', 40_000)
  store = make_store(novel, gpt2, tmp_path, workers=2)
  check(store, gpt2, [text])
  lengths = np.diff(store.sentences)
  assert store.num_sentences > len(text) / 200 and np.median(lengths) < 60


def test_store_of_a_novel_for_gpt(gpt, sesame_data, tmp_path):
  novel = sorted((sesame_data / 'novels').iterdir())[7]
  text = novel.read_bytes().decode('utf-8-sig').replace('\r\n', '\n')[:150_000]
  (tmp_path / 'novel.txt').write_text(text)
  store = make_store(tmp_path / 'novel.txt', gpt, tmp_path)
  check(store, gpt, [text])
  newlines = np.count_nonzero(store.tokens == gpt.pieces.index('\n</w>'))
  lines = [line for line in text.split('\n') if line.strip()]
  assert newlines == len(lines) - 1
  assert store.meta['audit']['unknown_rate'] < 1e-3


def test_manual_for_gpt2(gpt2, tmp_path, monkeypatch):
  rng = random.Random(4)
  texts = tuple(odd_text(rng, 50) for _ in range(30))
  texts = tuple(' '.join(text.splitlines()) for text in texts)
  monkeypatch.setattr(manual, 'documents', lambda: (texts, {}))
  check(make_store('manual', gpt2, tmp_path), gpt2, texts)


def test_pieces_stay_bounded_without_white_space(monkeypatch):
  monkeypatch.setattr(documents, 'PIECE_CHARS', 100)
  text = 'x' * 1050 + '\n\u3000' + 'y' * 99 + ' \n\n' * 100
  for kind in ('newlines', 'kept'):
    pieces = list(documents.cut([text], kind))
    assert ''.join(pieces) == text and max(map(len, pieces)) <= 100


def test_white_space_at_a_cut_is_no_blank_line(tmp_path, monkeypatch):
  """An indented line that two blocks share does not end its document."""
  monkeypatch.setattr(documents, 'PIECE_CHARS', 40)
  text = '\n'.join('\u3000\u3000' + '文' * 10 + '。' for _ in range(50))
  (tmp_path / 'text.txt').write_text(f'{text}\n\n{text}\n')
  source = sources.open_source(
    str(tmp_path / 'text.txt'), document_break='blank_line'
  )
  for kind in ('ignored', 'newlines', 'kept'):
    pieces = list(source.pieces(kind))
    assert sum(piece.ends_document for piece in pieces) == 2
    joined = ''.join(piece.text for piece in pieces)
    assert kind != 'kept' or joined == f'{text}\n\n{text}\n'


@pytest.mark.parametrize('kind', ['bpe', 'bytebpe'])
def test_trained_on_the_way(kind, tmp_path, capsys):
  text = tmp_path / 'text.txt'
  text.write_text(''.join(f'Line {i}: the cat.\n\n' for i in range(300)))
  out = tmp_path / 'store'
  command = ['--source', str(text), '--out', str(out), '--tokenizer']
  assert prepare.main([*command, f'train:{kind}:300', '--json']) == 0
  audit = json.loads(capsys.readouterr().out)
  assert audit['unknown_rate'] == 0 and audit['vocab_size_asked'] == 300
  assert not any('next-sentence' in warning for warning in audit['warnings'])
  store = corpus.open_store(out)
  check(store, store.tokenizer, [text.read_text()])
  # Self-contained: moved, it opens; a run with the same words finds it.
  asked = dict(source=str(text), folder=out, progress=False)
  assert build.ensure_store(tokenizer=f'train:{kind}:300', **asked)
  assert build.ensure_store(tokenizer=str(out), **asked)
  with pytest.raises(ValueError, match=r'tokenizer \(built with .*BPE'):
    build.ensure_store(tokenizer=f'train:{kind}:301', **asked)
  shutil.move(out, tmp_path / 'moved')
  assert corpus.open_store(tmp_path / 'moved').num_tokens == store.num_tokens
  merges = tmp_path / 'moved' / 'vocab.bpe'
  lines = merges.read_text().split('\n')
  lines[1], lines[2] = lines[2], lines[1]
  merges.write_text('\n'.join(lines))
  with pytest.raises(ValueError, match='fingerprint'):
    corpus.open_store(tmp_path / 'moved')


@pytest.mark.slow
@pytest.mark.parametrize('tokenizer', ['train:bpe:300', 'published'])
def test_stores_with_and_without_spacy_differ(
  tokenizer, sesame_data, tmp_path, monkeypatch, capsys
):
  if tokenizer == 'published':
    tokenizer = str(sesame_data / 'fixtures/vocab/gpt')
  text = tmp_path / 'text.txt'
  text.write_text("Isn't it?\n" * 300)

  def ensure(name):
    return build.ensure_store(
      str(text), tokenizer, tmp_path / name, workers=1, progress=False
    )

  full = ensure('release')
  assert capsys.readouterr().err == ''
  monkeypatch.setattr(bpe, '_missing_packages', lambda: ['ftfy'])
  basic = ensure('basic')
  assert 'warning: ftfy cannot be found' in capsys.readouterr().err
  assert full.tokenizer.fingerprint != basic.tokenizer.fingerprint
  assert 'without ftfy' in basic.meta['audit']['tokenizer']
  assert '\n</w>' not in {basic.tokenizer.pieces[i] for i in basic.tokens}
  with pytest.raises(ValueError, match='tokenizer .*words by ftfy and spaCy'):
    ensure('release')
  monkeypatch.undo()
  assert ensure('release').num_tokens == full.num_tokens
  with pytest.raises(ValueError, match=r'tokenizer .*without ftfy and spaCy'):
    ensure('basic')
