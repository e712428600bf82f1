"""Vocabularies and merges: damaged files are refused by name."""

import json

import pytest
from etils import epath

from data.vocabulary import bpe_files, tokenization


@pytest.mark.slow
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


@pytest.mark.parametrize(
  'content, message',
  [
    ('[' * 100_000, 'lists and objects inside one another'),
    ('{"x": ' * 60 + '1' + '}' * 60, 'lists and objects inside one another'),
    ('{"x": NaN}', 'NaN is no number of JSON'),
    ('{"x": ' + '9' * 5000 + '}', 'Exceeds the limit'),
    ('{"x": 1, "x": 2}', "'x' stands in it twice"),
  ],
)
def test_hostile_json(content, message, tmp_path):
  file = tmp_path / 'encoder.json'
  file.write_text(content)
  with pytest.raises(ValueError, match=message) as caught:
    bpe_files.read_object(epath.Path(file))
  assert str(caught.value).startswith(f'{file}: ')
  assert len(str(caught.value)) < 500


def test_pieces_with_their_ids(tmp_path):
  file = tmp_path / 'vocab.txt'
  file.write_text('[PAD]\t0\n,\t1\na\t2\n')
  assert bpe_files.read_pieces(file) == ['[PAD]', ',', 'a']
  file.write_text('[PAD]\t0\n,\t2\na\t1\n')
  with pytest.raises(ValueError, match=r"vocab.txt, line 2: found ',\\t2'"):
    bpe_files.read_pieces(file)
