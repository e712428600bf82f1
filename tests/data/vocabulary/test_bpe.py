"""GPT's tokenizer against references.

`transformers` 5 has GPT's without ftfy and spaCy whether they are installed or
not: it is the reference of our fallback. The reference of GPT's own words is
the release's rule, written out below in plain Python.
"""

import functools
import itertools
import re

import pytest
from etils import epath
from token_texts import HARD, check_same, check_transformers

from data.vocabulary import bpe, tokenization

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
  print(f'GPT: {count:,} ids')


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


# --- Files


# --- Training
