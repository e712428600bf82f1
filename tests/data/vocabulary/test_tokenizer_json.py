"""What stands beside published vocabularies, and what is written for others.

`transformers` writes the folders that we read and reads those that we write.
"""

import json

import pytest
import tokenizers
import transformers
from token_texts import same_as_theirs

from data.vocabulary import (
  bpe_files,
  tokenization,
  tokenizer_export,
  wordpiece,
)

TEXTS = (
  'Hello, World! COVID and covids [ENT] b[ENT]c  <pad>x 北京 Café [unused7]',
  'ab' * 60 + ' é́ 😀 a\x01b \n New York,New yorks ',
)
CLASSES = {
  'bert': 'BertTokenizer',
  'gpt': 'OpenAIGPTTokenizer',
  'gpt2': 'GPT2Tokenizer',
}


@pytest.fixture(scope='module')
def theirs(sesame_data):
  """Returns a function (kind) -> a new tokenizer of `transformers`."""
  folder = sesame_data / 'fixtures/vocab'
  files = {
    'bert': {'vocab': str(folder / 'bert-base-uncased-vocab.txt')},
    'gpt': {
      'vocab': str(folder / 'gpt/encoder_bpe_40000.json'),
      'merges': str(folder / 'gpt/vocab_40000.bpe'),
    },
    'gpt2': {
      'vocab': str(folder / 'gpt2/encoder.json'),
      'merges': str(folder / 'gpt2/vocab.bpe'),
    },
  }
  return lambda kind: getattr(transformers, CLASSES[kind])(**files[kind])


@pytest.fixture(scope='module')
def folders(theirs, tmp_path_factory):
  """Folders as `transformers` saves them: nothing but tokenizer.json."""
  folder = tmp_path_factory.mktemp('published')
  for kind in CLASSES:
    theirs(kind).save_pretrained(folder / kind)
  return folder


@pytest.fixture(scope='module')
def small_gpt2(folders, tmp_path_factory):
  """Such a folder of GPT-2 with its first thousand merges, read in no time."""
  table = json.loads((folders / 'gpt2/tokenizer.json').read_text())['model']
  small = transformers.GPT2Tokenizer(
    vocab={piece: i for piece, i in table['vocab'].items() if i < 1256}
    | {'<|endoftext|>': 1256},
    merges=[tuple(merge) for merge in table['merges'][:1000]],
  )
  folder = tmp_path_factory.mktemp('small') / 'gpt2'
  small.save_pretrained(folder)
  return folder


@pytest.fixture
def edited(folders, small_gpt2, tmp_path):
  """Returns a function (kind, FILE=changes) -> a folder with changed files."""

  def edit(kind, **changes):
    folder = small_gpt2 if kind == 'gpt2' else folders / kind
    for file in folder.iterdir():
      table = json.loads(file.read_text())
      for key, value in changes.get(file.stem, {}).items():
        *path, last = key.split('.')
        place = table
        for name in path:
          place = place[name]
        place[last] = value
      (tmp_path / file.name).write_text(json.dumps(table))
    return tmp_path

  return edit


# --- Added tokens


def add(tokenizer):
  """Adds what users add: words, marks of theirs, some with flags."""
  tokenizer.add_tokens(['covid', 'New York', '[unused7]'])
  tokenizer.add_special_tokens({'additional_special_tokens': ['[ENT]']})
  tokenizer.add_tokens(
    [transformers.AddedToken('York', single_word=True, lstrip=True)]
  )
  tokenizer.add_special_tokens({'pad_token': '[PAD]'})


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['bert', 'gpt2'])
def test_added_tokens_are_found_as_the_publisher_finds_them(
  kind, theirs, folders, tmp_path
):
  reference = theirs(kind)
  add(reference)
  reference.save_pretrained(tmp_path / 'published')
  ours = tokenization.load(tmp_path / 'published')
  expected = reference(list(TEXTS), add_special_tokens=False)
  assert ours.encode_batch(TEXTS) == expected['input_ids']
  assert ours.vocab_size == len(reference)
  # They show words that are matched after lower-casing in lower case.
  names = reference.convert_ids_to_tokens(range(len(reference)))
  assert [p.lower() for p in ours.pieces] == [name.lower() for name in names]
  assert ours.fingerprint != tokenization.load(folders / kind).fingerprint
  # Neither a folder of ours nor an exported one forgets them.
  ours.save(tmp_path / 'saved')
  tokenizer_export.export(ours, tmp_path / 'exported', max_length=512)
  for folder in ('saved', 'exported'):
    again = tokenization.load(tmp_path / folder)
    assert again.fingerprint == ours.fingerprint
    assert again.encode_batch(TEXTS) == expected['input_ids']
  exported = transformers.AutoTokenizer.from_pretrained(tmp_path / 'exported')
  assert (
    exported(list(TEXTS))['input_ids'] == reference(list(TEXTS))['input_ids']
  )


def test_added_tokens_in_older_files(sesame_data, tmp_path):
  vocab = sesame_data / 'fixtures/vocab/bert-base-uncased-vocab.txt'
  (tmp_path / 'vocab.txt').write_bytes(vocab.read_bytes())
  (tmp_path / 'added_tokens.json').write_text('{"[E]": 30523, "covid": 30522}')
  special = {'additional_special_tokens': ['[E]'], 'cls_token': '[CLS]'}
  (tmp_path / 'special_tokens_map.json').write_text(json.dumps(special))
  ours = tokenization.load(tmp_path)
  assert ours.pieces[30_522:] == ('covid', '[E]')
  assert ours.max_word_chars == 200
  # As the tokens of each kind are: words after lower-casing, symbols before.
  assert ours.encode_batch(['A COVID [E] [e]'])[0][:3] == [1037, 30522, 30523]
  assert ours.encode_batch(['[e]']) == [[1031, 1041, 1033]]
  decoder = {
    str(i): {'content': name, 'special': True}
    for i, name in ((101, '[CLS]'), (30_522, '[E]'))
  }
  config = {'do_lower_case': True, 'added_tokens_decoder': decoder}
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps(config))
  ours = tokenization.load(tmp_path)
  assert ours.pieces[30_521:] == ('##～', '[E]')
  assert 101 not in ours.encode_batch(['[CLS] [E]'])[0]


def test_symbols_inside_a_vocabulary(tmp_path):
  """`tokenizers` puts those that it is told of before all others."""
  theirs = tokenizers.ByteLevelBPETokenizer()
  symbols = ['<pad>', 'PAUSE', '<|endoftext|>']
  theirs.train_from_iterator(TEXTS, 300, special_tokens=symbols)
  theirs.save_model(str(tmp_path))
  with pytest.raises(ValueError, match=r"'PAUSE' \(id 1\) is made by none"):
    tokenization.load(tmp_path)
  special = tmp_path / 'special_tokens_map.json'
  special.write_text('{"pad_token": "<pad>", "sep_token": "PAUSE"}')
  older = tokenization.load(tmp_path)
  special.unlink()
  theirs.save(str(tmp_path / 'tokenizer.json'))
  ours = tokenization.load(tmp_path)
  assert older.fingerprint == ours.fingerprint
  texts = [*TEXTS, 'a PAUSE <pad>']
  assert ours.pieces[:3] == tuple(symbols)
  assert ours.encode_batch(texts) == [theirs.encode(t).ids for t in texts]
  assert 1 in ours.encode_batch(texts)[-1]
  ours.save(tmp_path / 'saved')
  again = tokenization.load(tmp_path / 'saved')
  assert again.fingerprint == ours.fingerprint


# --- Settings


@pytest.mark.parametrize(
  ('kind', 'config', 'whole', 'messages'),
  [
    (
      'bert',
      {
        'tokenize_chinese_chars': False,
        'do_basic_tokenize': False,
        'never_split': ['x'],
        'tokenizer_class': 'BertJapaneseTokenizer',
        'mask_token': '<mask>',
      },
      {
        'normalizer.handle_chinese_chars': False,
        'model.continuing_subword_prefix': '@@',
        'pre_tokenizer': {'type': 'Whitespace'},
        'post_processor': {'type': 'RobertaProcessing'},
      },
      [
        'tokenizer_config.json: tokenize_chinese_chars is false, expected true',
        'do_basic_tokenize is false, expected true',
        r'never_split is \["x"\], expected null or \[\]',
        "tokenizer_class is 'BertJapaneseTokenizer', expected BertTokenizer",
        r'mask_token is "<mask>", expected "\[MASK\]"',
        'tokenizer.json: normalizer.handle_chinese_chars is false, expected tr',
        'model.continuing_subword_prefix is "@@", expected "##"',
        'pre_tokenizer.type is "Whitespace", expected "BertPreTokenizer"',
        'post_processor is {"type": "RobertaProcessing"}, expected',
      ],
    ),
    (
      'bert',
      {
        'do_lower_case': False,
        'tokenizer_class': 'PreTrainedTokenizerFast',
      },
      {},
      ['do_lower_case is False .*lowercase is True .*; expected the same in b'],
    ),
    (
      'bert',
      {'strip_accents': 'yes'},
      {'normalizer.lowercase': 1},
      [
        'tokenizer_config.json: strip_accents is "yes", expected true or',
        'tokenizer.json: normalizer: lowercase is 1, expected true or false',
      ],
    ),
    ('bert', {}, {'normalizer': None}, ['normalizer.type is null, expected']),
    (
      'bert',
      {},
      {'added_tokens': [{'id': 30_600, 'content': 'x y'}]},
      ["tokenizer.json: added token 'x y' has id 30600, expected 30522"],
    ),
    (
      'gpt',
      {'unk_token': '[UNK]'},
      {
        'normalizer.lowercase': False,
        'model.fuse_unk': True,
        'added_tokens': [{'id': 40_478, 'content': '<s>'}],
      },
      [
        r'unk_token is "\[UNK\]", expected "<unk>"',
        'normalizer.lowercase is false, expected true',
        'model.fuse_unk is true, expected false',
        "1 added tokens, '<s>': only its own three symbols may follow",
      ],
    ),
    (
      'gpt2',
      {'add_prefix_space': True, 'add_bos_token': True},
      {
        'normalizer': {'type': 'NFC'},
        'pre_tokenizer.add_prefix_space': True,
        'model.dropout': 0.1,
      },
      [
        'add_prefix_space is true, expected false',
        'add_bos_token is true, expected false',
        'normalizer is {"type": "NFC"}, expected null',
        'pre_tokenizer.add_prefix_space is true, expected false',
        'model.dropout is 0.1, expected null or 0',
      ],
    ),
  ],
)
def test_other_settings_are_refused_all_at_once(
  kind, config, whole, messages, edited
):
  folder = edited(kind, tokenizer_config=config, tokenizer=whole)
  with pytest.raises(ValueError, match='settings of a tokenizer that') as error:
    tokenization.load(folder)
  found = str(error.value)
  assert str(folder) in found
  # A line each, and nothing else is complained of.
  assert found.count('\n  ') == len(messages), found
  for message in messages:
    with pytest.raises(ValueError, match=message):
      raise error.value


def test_damaged_files_are_named(edited):
  template = {'type': 'TemplateProcessing', 'pair': []}
  for changes, messages in (
    (
      {
        'normalizer': 'x',
        'added_tokens': [{'id': 3, 'special': 1}, 'y'],
        'model.max_input_chars_per_word': '9',
      },
      [
        'tokenizer.json: normalizer is "x", expected {"type": "BertNorm',
        'model.max_input_chars_per_word is "9", expected a number, 1 to',
        'added token {"id": 3, "special": 1} with id 3 is damaged, expected',
        'added token "y" with id null is damaged, expected a number as its id',
      ],
    ),
    (
      {'post_processor': template},
      ['tokenizer.json: post_processor is {"type": "TemplateProcessing", "p'],
    ),
  ):
    with pytest.raises(ValueError, match='has settings of a') as error:
      tokenization.load(edited('bert', tokenizer=changes))
    for message in messages:
      assert message in str(error.value)
    assert str(error.value).count('\n  ') == len(messages)
  # Of a file that tokenizer.json stands in for, too.
  for decoder in ([], {'x': {'content': 'y'}}, {'3': 'y'}):
    folder = edited('bert', tokenizer_config={'added_tokens_decoder': decoder})
    with pytest.raises(ValueError, match=r'config.json: added token .*damaged'):
      tokenization.load(folder)
  for merges in (None, [5], [['a', 1]]):
    folder = edited('gpt2', tokenizer={'model.merges': merges})
    with pytest.raises(ValueError, match=r'tokenizer.json[:,] (model\.)?merge'):
      tokenization.load(folder)


def test_other_models_and_other_vocabularies(folders, edited, sesame_data):
  folder = edited('bert', tokenizer={'model.type': 'Unigram'})
  with pytest.raises(ValueError, match=r"json: model.type is 'Unigram'"):
    tokenization.load(folder)
  folder = edited('bert')
  vocab = sesame_data / 'fixtures/vocab/bert-base-cased-vocab.txt'
  (folder / 'vocab.txt').write_bytes(vocab.read_bytes())
  with pytest.raises(ValueError, match=r'model.vocab, 30,522.*, 28,996'):
    tokenization.load(folder)
  vocab = json.loads((folders / 'bert/tokenizer.json').read_text())
  del vocab['model']['vocab']['[MASK]']
  folder = edited('bert', tokenizer={'model.vocab': vocab['model']['vocab']})
  (folder / 'vocab.txt').unlink()
  with pytest.raises(ValueError, match=r"'##～' has id 30521; the ids of"):
    tokenization.load(folder)
  merges = [['a', 'b', 'c']]
  folder = edited('gpt2', tokenizer={'model.merges': merges})
  with pytest.raises(ValueError, match=r'json, merge 1: expected two pieces'):
    tokenization.load(folder)


def test_settings_of_older_files(edited):
  """They name no type of a model and write a merge as one string."""
  folder = edited('gpt2')
  table = json.loads((folder / 'tokenizer.json').read_text())
  del table['model']['type'], table['model']['ignore_merges']
  table['model']['merges'] = [' '.join(m) for m in table['model']['merges']]
  table['post_processor'] = {'type': 'ByteLevel', 'trim_offsets': False}
  ours = tokenization.load(folder)
  (folder / 'tokenizer.json').write_text(json.dumps(table))
  assert tokenization.load(folder).fingerprint == ours.fingerprint


def test_case_beside_a_tokenizer_json(edited):
  folder = edited(
    'bert',
    tokenizer_config={'do_lower_case': False},
    tokenizer={'normalizer.lowercase': False},
  )
  assert tokenization.load(folder).cased
  assert not tokenization.load(folder, cased=False).cased


def test_classes_of_bert_follow_their_config(edited, tmp_path):
  """Whatever the normalizer of tokenizer.json says."""
  normalizer = {
    'type': 'BertNormalizer',
    'clean_text': True,
    'handle_chinese_chars': True,
    'strip_accents': None,
    'lowercase': True,
  }
  splitter = {'type': 'BertPreTokenizer'}
  fingerprints = set()
  for lower, accents in ((False, None), (True, False), (False, True)):
    config = {
      'do_lower_case': lower,
      'strip_accents': accents,
      'mask_token': None,
      'tokenizer_class': 'MobileBertTokenizerFast',
    }
    whole = {
      'normalizer': {'type': 'Sequence', 'normalizers': [normalizer]},
      'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [splitter]},
    }
    folder = edited('bert', tokenizer_config=config, tokenizer=whole)
    ours = tokenization.load(folder)
    theirs = transformers.BertTokenizer.from_pretrained(folder)
    expected = theirs(list(TEXTS), add_special_tokens=False)['input_ids']
    assert ours.encode_batch(TEXTS) == expected
    assert (ours.cased, ours.strip_accents) == (not lower, accents)
    fingerprints.add(ours.fingerprint)
    ours.save(tmp_path / 'saved')
    assert tokenization.load(tmp_path / 'saved').fingerprint == ours.fingerprint
    same_as_theirs(ours, tmp_path / 'exported', TEXTS)
  assert len(fingerprints) == 3


# --- Written for others


# --- Larger vocabularies


PIECES = [*wordpiece.SPECIALS, 'a', '##b']


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'type': ['wordpiece']}, 'type'),
    ({'max_word_chars': -1}, 'max_word_chars is -1'),
    ({'max_word_chars': 10**30}, 'max_word_chars is 1'),
    ({'max_word_chars': '9'}, 'max_word_chars is "9"'),
    ({'cased': 'no'}, 'cased is "no"'),
    ({'strip_accents': []}, r'strip_accents is \[\]'),
    ({'added': 5}, 'added'),
    ({'added': ['x']}, 'added'),
    ({'added': [{'content': 5}]}, 'added'),
    ({'added': [{'content': '\ud800'}]}, 'added|surrogate'),
    ({'added': [{'content': ''}]}, 'added'),
  ],
)
def test_hostile_settings(settings, message, tmp_path):
  (tmp_path / 'vocab.txt').write_text('\n'.join(PIECES))
  file = tmp_path / bpe_files.SETTINGS_FILE
  file.write_text(json.dumps({'type': 'wordpiece'} | settings))
  with pytest.raises(ValueError, match=message) as caught:
    tokenization.load(tmp_path)
  assert str(file) in str(caught.value)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'max_input_chars_per_word': -1}, 'max_input_chars_per_word is -1'),
    ({'max_input_chars_per_word': 1 << 70}, 'max_input_chars_per_word is 1'),
    ({'vocab': {**{p: i for i, p in enumerate(PIECES)}, '\ud800': 7}}, 'surr'),
    ({'vocab': [1]}, 'found list'),
    ({'vocab': {'a': True}}, 'id True'),
  ],
)
def test_hostile_models(changes, message, tmp_path):
  vocab = {piece: i for i, piece in enumerate(PIECES)}
  model = {'type': 'WordPiece', 'unk_token': '[UNK]', 'vocab': vocab} | changes
  file = tmp_path / 'tokenizer.json'
  file.write_text(
    json.dumps(
      {
        'model': model,
        'normalizer': {'type': 'BertNormalizer', 'lowercase': True},
        'pre_tokenizer': {'type': 'BertPreTokenizer'},
      }
    )
  )
  with pytest.raises(ValueError, match=message) as caught:
    tokenization.load(tmp_path)
  assert str(tmp_path) in str(caught.value)
