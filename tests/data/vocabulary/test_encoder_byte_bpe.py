"""Byte-level vocabularies of encoders against those of `transformers`."""

import itertools
import json
import unicodedata

import encoder_folders
import numpy as np
import pytest
import tokenizers
from token_texts import HARD, same_as_theirs
from tokenizers import pre_tokenizers

from data.vocabulary import tokenization, tokenizer_json

KINDS = tuple(encoder_folders.MAKERS)
TEXTS = (
  "The   quick\n    fox isn't [MASK]d, e\u0301 é |||EMAIL_ADDRESS||| <mask> x ",
  ' Ünïcödé 北京 😀 12,5 |||IP_ADDRESS|||[unused1] <|padding|>tail <pad>',
  '',
)


@pytest.fixture(scope='module', params=KINDS)
def made(request, tmp_path_factory):
  """A folder as published, and the tokenizer of `transformers`."""
  folder = tmp_path_factory.mktemp(request.param)
  return folder, encoder_folders.MAKERS[request.param](folder)


@pytest.fixture(scope='module')
def ours(made):
  return tokenization.load(made[0])


def test_ids_of_a_published_size_are_equal(folder, batches, tmp_path):
  """With the merges of GPT-2, of every text and of the hard ones."""
  gpt2 = tokenization.load(folder / 'gpt2')
  vocab = {piece: i for i, piece in enumerate(gpt2.pieces[:-1])}
  for kind, make in encoder_folders.MAKERS.items():
    theirs = make(tmp_path / kind, vocab, gpt2.merges)
    found = tokenization.load(tmp_path / kind)
    assert found.kind == kind
    count = 0
    for texts in [*itertools.islice(batches(), 5), HARD]:
      # A symbol that is spelt is one to theirs, and to ours in a prompt.
      expected = theirs(list(texts), add_special_tokens=False)['input_ids']
      for text, ids in zip(texts, expected, strict=True):
        assert found.encode_prompt(text) == ids, text[:200]
        count += len(ids)
    assert count > 50_000
    for text, ids in zip(HARD, found.encode_batch(HARD), strict=True):
      expected = text
      if kind == 'modernbert':
        expected = unicodedata.normalize('NFC', text)
      assert found.decode(ids) == expected


def test_texts_and_pairs_have_the_ids_of_transformers(made, ours):
  _, theirs = made
  bare = theirs(list(TEXTS), add_special_tokens=False)['input_ids']
  assert [ours.encode_prompt(text) for text in TEXTS] == bare
  a, b = ours.encode_batch(['the quick dog', 'a café'])
  between = [ours.sep_id] * ours.separators
  assert theirs('the quick dog', 'a café')['input_ids'] == [
    ours.cls_id,
    *a,
    *between,
    *b,
    ours.sep_id,
  ]
  names = ('pad', 'unk', 'cls', 'sep', 'mask')
  for name in names:
    assert getattr(ours, f'{name}_id') == getattr(theirs, f'{name}_token_id')
  assert ours.vocab_size == len(theirs)
  assert list(ours.pieces) == theirs.convert_ids_to_tokens(range(len(theirs)))


def test_symbols_in_a_text_are_text_and_in_a_prompt_symbols(ours):
  symbols = tokenizer_json.SYMBOLS[ours.kind]
  text = f'a {" ".join(symbols)} b'
  ids = [ours.pieces.index(symbol) for symbol in symbols]
  (found,) = ours.encode_batch([text])
  assert not {*ids} & {*found} and ours.decode(found) == text
  prompt = f'the  {ours.mask} dog {symbols[3]}'
  before, behind = ours.encode_batch(['the', ' dog '])
  assert ours.encode_prompt(prompt) == [
    *before,
    ours.mask_id,
    *behind,
    ours.sep_id,
  ]


def test_what_is_written_is_read_again(made, ours, tmp_path):
  _, published = made
  ours.save(tmp_path / 'saved')
  again = tokenization.load(tmp_path / 'saved')
  assert again.fingerprint == ours.fingerprint
  assert again.encode_batch(TEXTS) == ours.encode_batch(TEXTS)
  assert again.encode_prompt(TEXTS[0]) == ours.encode_prompt(TEXTS[0])
  theirs = same_as_theirs(ours, tmp_path / 'written', TEXTS[:1])
  for text in (list(TEXTS), (list(TEXTS), list(TEXTS[::-1]))):
    text = text if isinstance(text, tuple) else (text,)
    expected, found = published(*text), theirs(*text)
    assert found['input_ids'] == expected['input_ids']
  assert theirs.mask_token_id == ours.mask_id
  assert theirs.get_vocab() == published.get_vocab()


def test_spans_are_places_in_the_text(ours):
  text = " A cafe\u0301 isn't  far 😀 |||EMAIL_ADDRESS||| !"
  ((ids, spans),) = ours.encode_with_spans([text])
  assert [ids] == ours.encode_batch([text])
  found = [text[start:end] for start, end in spans]
  assert not any(part != part.strip() for part in found)
  # A character of several pieces is the span of each.
  covered = {place for start, end in spans for place in range(start, end)}
  assert {place for place, c in enumerate(text) if c != ' '} <= covered
  assert 'e\u0301' in {text[start:end][-2:] for start, end in spans}


def test_a_span_is_that_of_transformers(made, ours):
  """But for the space before a word, which ModernBERT's spans hold."""
  _, theirs = made
  for text in encoder_folders.TEXT:
    ((ids, spans),) = ours.encode_with_spans([text])
    encoded = theirs(
      text, add_special_tokens=False, return_offsets_mapping=True
    )
    assert encoded['input_ids'] == ids
    for ours_, (start, end) in zip(
      spans, encoded['offset_mapping'], strict=True
    ):
      start += len(text[start:end]) - len(text[start:end].lstrip(' '))
      assert ours_ == (start, end)


def test_words_begin_with_a_space_as_in_the_published_fine_tunings(made, ours):
  folder, _ = made
  theirs = tokenizers.Tokenizer.from_file(str(folder / 'tokenizer.json'))
  theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
  words = ['The', 'quick', 'isn', "'t", '', 'café', '|||EMAIL_ADDRESS|||x']
  (found,) = ours.encode_words([words])
  encoded = theirs.encode_batch(words, add_special_tokens=False)
  assert found == [encoding.ids for encoding in encoded]


def test_continuations_are_letters_and_digits_without_a_space(ours):
  inside = ours.continuations()
  assert inside.dtype == bool and inside.shape == (ours.vocab_size,)
  for text, expected in (('sitting', True), (' the', False), ("'t", False)):
    ids = ours.encode_batch([text])[0]
    assert inside[ids[0]] == expected, text
  assert inside[ours.encode_batch(['é'])[0]].all()
  symbols = tokenizer_json.SYMBOLS[ours.kind]
  assert not inside[[ours.pieces.index(symbol) for symbol in symbols]].any()
  assert np.array_equal(inside, ours.continuations())


def test_a_space_may_be_set_before_each_text(made, tmp_path):
  """As in folders that were saved for tagged words."""
  folder, theirs = made
  theirs.save_pretrained(tmp_path)
  change(tmp_path, 'tokenizer.json', pre_tokenizer=('add_prefix_space', True))
  change(tmp_path, 'tokenizer_config.json', add_prefix_space=True)
  spaced = tokenization.load(tmp_path)
  plain = tokenization.load(folder)
  texts = ['the dog', ' the dog']
  assert spaced.encode_batch(texts) == [plain.encode_batch(texts)[1]] * 2
  ((_, spans),) = spaced.encode_with_spans(texts[:1])
  assert spans[0] == (0, 3)
  assert spaced.fingerprint != plain.fingerprint
  again = same_as_theirs(spaced, tmp_path / 'written', texts)
  assert again('the dog')['input_ids'] == again(' the dog')['input_ids']
  change(
    tmp_path,
    'tokenizer_config.json',
    add_prefix_space=False,
    tokenizer_class='PreTrainedTokenizerFast',
  )
  with pytest.raises(ValueError, match='add_prefix_space is False, but True'):
    tokenization.load(tmp_path)


def change(folder, name, **changes):
  """Changes keys of a file; of (key, value) a key of the section."""
  table = json.loads((folder / name).read_text())
  for key, value in changes.items():
    if isinstance(value, tuple):
      table[key][value[0]] = value[1]
    else:
      table[key] = value
  (folder / name).write_text(json.dumps(table))


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'normalizer': {'type': 'NFKC'}}, 'normalizer'),
    ({'normalizer': {'type': 'Lowercase'}}, 'normalizer'),
    ({'pre_tokenizer': ('use_regex', False)}, 'pre_tokenizer.use_regex is fal'),
    ({'pre_tokenizer': ('add_prefix_space', 1)}, 'add_prefix_space is 1, exp'),
    ({'model': ('ignore_merges', True)}, 'model.ignore_merges is true'),
    ({'model': ('byte_fallback', True)}, 'model.byte_fallback is true'),
    ({'model': ('dropout', 0.1)}, 'model.dropout is 0.1'),
    (
      {'post_processor': {'type': 'BertProcessing', 'sep': ['x', 1]}},
      'expected .* round a text or nothing',
    ),
  ],
)
def test_another_tokenizer_is_refused(made, changes, message, tmp_path):
  made[1].save_pretrained(tmp_path)
  change(tmp_path, 'tokenizer.json', **changes)
  with pytest.raises(ValueError, match=message):
    tokenization.load(tmp_path)


def test_another_pair_is_refused(tmp_path):
  encoder_folders.modernbert(tmp_path)
  file = tmp_path / 'tokenizer.json'
  table = json.loads(file.read_text())
  del table['post_processor']['pair'][2]  # the first [SEP]
  file.write_text(json.dumps(table))
  with pytest.raises(ValueError, match='post_processor for two texts is'):
    tokenization.load(tmp_path)


def test_robertas_class_makes_the_frame_and_the_space_anew(tmp_path):
  """Other classes take them from tokenizer.json."""
  import transformers

  theirs = encoder_folders.roberta(tmp_path)
  plain = tokenization.load(tmp_path)
  one = {'type': 'BertProcessing', 'sep': ['</s>', 2], 'cls': ['<s>', 0]}
  change(
    tmp_path,
    'tokenizer.json',
    post_processor=one,
    pre_tokenizer=('add_prefix_space', True),
  )
  again = transformers.AutoTokenizer.from_pretrained(tmp_path)
  assert again('the', 'dog') == theirs('the', 'dog')
  assert tokenization.load(tmp_path).fingerprint == plain.fingerprint
  change(
    tmp_path,
    'tokenizer_config.json',
    tokenizer_class='PreTrainedTokenizerFast',
    add_prefix_space=True,
  )
  with pytest.raises(ValueError, match='for two texts is .*expected'):
    tokenization.load(tmp_path)
  template = {'type': 'RobertaProcessing'} | {k: one[k] for k in ('sep', 'cls')}
  change(tmp_path, 'tokenizer.json', post_processor=template)
  assert tokenization.load(tmp_path).prefix_space
  change(
    tmp_path, 'tokenizer_config.json', tokenizer_class='XLMRobertaTokenizer'
  )
  with pytest.raises(ValueError, match="tokenizer_class is 'XLMRobertaTokeniz"):
    tokenization.load(tmp_path)


def test_older_files_of_roberta(tmp_path):
  """A vocabulary and merges alone."""
  encoder_folders.roberta(tmp_path)
  whole = tokenization.load(tmp_path)
  for name in ('tokenizer.json', 'tokenizer_config.json'):
    (tmp_path / name).unlink()
  assert tokenization.load(tmp_path).fingerprint == whole.fingerprint


def test_missing_and_moved_symbols_are_refused(tmp_path):
  encoder_folders.modernbert(tmp_path)
  config, whole = (
    tmp_path / 'tokenizer_config.json',
    tmp_path / 'tokenizer.json',
  )
  change(tmp_path, config.name, mask_token='[BLANK]')
  with pytest.raises(ValueError, match='mask_token is "\\[BLANK\\]", expected'):
    tokenization.load(tmp_path)
  change(tmp_path, config.name, mask_token='[MASK]')
  table = json.loads(whole.read_text())
  table['added_tokens'][-1]['id'] += 1
  whole.write_text(json.dumps(table))
  with pytest.raises(ValueError, match=r"'\[unused2\]' has id"):
    tokenization.load(tmp_path)
  ours = tmp_path / 'ours'
  encoder_folders.modernbert(tmp_path / 'new')
  tokenization.load(tmp_path / 'new').save(ours)
  change(ours, 'tokenizer_settings.json', prefix_space='yes')
  with pytest.raises(ValueError, match='prefix_space is "yes"'):
    tokenization.load(ours)
  change(ours, 'tokenizer_settings.json', prefix_space=False)
  text = (ours / 'encoder.json').read_text().replace('[MASK]', '[BLANK]')
  (ours / 'encoder.json').write_text(text)
  with pytest.raises(ValueError, match=r'no \[MASK\] among its .* an encoder'):
    tokenization.load(ours)


def test_half_a_surrogate_pair_is_no_text(ours):
  for encode in (ours.encode_batch, ours.encode_with_spans):
    with pytest.raises(ValueError, match=r'U\+D83D at character 3'):
      encode(['fine', 'no \ud83d text'])


def test_a_gpt2_with_more_symbols_stays_one(folder, tmp_path):
  import transformers

  theirs = transformers.GPT2Tokenizer(
    vocab=str(folder / 'gpt2/encoder.json'),
    merges=str(folder / 'gpt2/vocab.bpe'),
  )
  theirs.add_tokens([*tokenizer_json.SYMBOLS['modernbert']])
  theirs.save_pretrained(tmp_path)
  found = tokenization.load(tmp_path)
  assert found.description == 'byte-level BPE' and found.vocab_size == 50_262
