"""Documents in plain text."""

import pytest
from text_sources import read, texts_of, write

from data.text import documents, sentences, sources, text_files


def test_pieces_are_bounded_whole_and_cut_well(tmp_path, monkeypatch):
  monkeypatch.setattr(documents, 'PIECE_CHARS', 100)
  lines = [f'Line {i} of text' for i in range(60)]
  paragraphs = '\n\n'.join('\n'.join(lines[i : i + 3]) for i in range(0, 60, 3))
  cases = {
    paragraphs: '\n\n',
    paragraphs.replace('\n\n', '\n \n'): '\n \n',
    '\n'.join(lines): '\n',
    ' '.join(lines): ' ',
    'x' * 350: 'x',
  }
  path = tmp_path / 'a.txt'
  for text, end in cases.items():
    expected = None
    for size in (7, 64, 1 << 20):
      monkeypatch.setattr(text_files, 'CHUNK_BYTES', size)
      write(path, text)
      pieces = list(sources.open_source(str(path)).pieces())
      texts = [piece.text for piece in pieces]
      assert ''.join(texts) == text and len(texts) > 3
      assert max(map(len, texts)) <= 100
      assert all(part.endswith(end) for part in texts[:-1])
      assert [p.ends_document for p in pieces] == [False] * (len(texts) - 1) + [
        True
      ]
      assert expected in (None, texts)
      expected = texts


SENTENCES = 'The cat sat.\nIt slept well!\n\nDr. Who came.\n"Why?" he asked.\n'


WRAPPED = (
  'The quick brown fox jumped over\nthe lazy dog. It slept on and on,\n'
  'and nobody came.\n\nThen it woke.\n'
)


PARAGRAPHS = 'The cat sat. It slept. It woke.\n\nOne sentence.\n\nTwo. Three.\n'


@pytest.mark.parametrize(
  ('text', 'document_break', 'per_line', 'count'),
  [
    (SENTENCES, 'blank_line', True, 2),
    (SENTENCES.replace('\n\n', '\n'), 'file', True, 1),
    (SENTENCES.replace('\n', '\n\n'), 'file', True, 1),
    (SENTENCES + '\nCHAPTER TWO\n', 'file', False, 1),
    (WRAPPED, 'file', False, 1),
    (PARAGRAPHS, 'file', False, 1),
    (PARAGRAPHS.replace('\n\n', '\n'), 'file', False, 1),
    ('我们去北京。\n你来吗？\n\n好！\n他说：“走。”\n', 'blank_line', True, 2),
  ],
)
def test_what_a_document_is(text, document_break, per_line, count, tmp_path):
  source = sources.open_source(str(write(tmp_path / 'a.txt', text)))
  assert source.document_break == document_break
  assert len(texts_of(source)) == count
  assert {p.sentence_per_line for p in source.pieces()} == {per_line}


def test_what_a_document_is_can_be_said(tmp_path):
  path = write(tmp_path / 'a.txt', WRAPPED)
  assert read(path, document_break='blank_line') == [
    WRAPPED.split('\n\n')[0] + '\n',
    '\nThen it woke.\n',
  ]
  path = write(tmp_path / 'a.txt', SENTENCES)
  assert read(path, document_break='file') == [SENTENCES]
  text = 'Preface.\n= A =\nText a.\n\nMore.\n= B =\n = = Sub = =\nText b.'
  path = write(tmp_path / 'a.txt', text)
  source = sources.open_source(str(path), document_break='= [A-Z]')
  assert source.document_break == 'regex:= [A-Z]'
  assert texts_of(source) == [
    'Preface.\n',
    '= A =\nText a.\n\nMore.\n',
    '= B =\n = = Sub = =\nText b.',
  ]


def test_documents_that_cross_pieces(tmp_path, monkeypatch):
  monkeypatch.setattr(documents, 'PIECE_CHARS', 50)
  words = [
    'First one here',
    'x' * 170,
    '\t',
    'Second',
    'y ' * 60,
    '',
    '',
    'End',
  ]
  path = write(tmp_path / 'a.txt', '\n'.join(words))
  for size in (5, 1 << 20):
    monkeypatch.setattr(text_files, 'CHUNK_BYTES', size)
    found = read(path, document_break='blank_line')
    assert [''.join(text.split()) for text in found] == [
      'Firstonehere' + 'x' * 170,
      'Second' + 'y' * 60,
      'End',
    ]


def test_real_texts(sesame_data, tmp_path):
  novel = sorted((sesame_data / 'novels').glob('*.txt'))[3]
  source = sources.open_source(str(novel))
  assert source.document_break == 'file'
  (text,) = texts_of(source)
  assert not any(p.sentence_per_line for p in source.pieces())

  wiki = sesame_data / 'wikitext-2/wiki.valid.tokens'
  assert sources.open_source(str(wiki)).document_break == 'file'
  found = read(wiki, document_break=r'^ = [^=].* = $')
  assert len(found) == 60  # articles, as published
  assert all(text.startswith(' = ') for text in found)

  split = sentences.split_sentences(text)
  assert 2000 < len(split) < 20_000
  path = write(tmp_path / 'bert.txt', '\n'.join(split))
  assert sources.open_source(str(path)).description.endswith('sentence a line')
  # BERT's input format: a blank line after every 50 sentences.
  groups = [split[i : i + 50] for i in range(0, len(split), 50)]
  path = write(tmp_path / 'b.txt', '\n\n'.join(map('\n'.join, groups)))
  source = sources.open_source(str(path))
  assert source.document_break == 'blank_line'
  assert list(map(sentences.split_lines, texts_of(source))) == groups


def test_document_breaks_that_cannot_be(tmp_path):
  path = write(tmp_path / 'a.txt', 'Text.')
  with pytest.raises(ValueError, match='nor a regular expression: .*position'):
    sources.open_source(str(path), document_break='(')
  with pytest.raises(ValueError, match="no line matches document_break 'Chap'"):
    read(path, document_break='Chap')
  records = write(tmp_path / 'a.jsonl', '{"text": "a"}')
  for spec in (str(records), 'manual', 'tfds:any'):
    with pytest.raises(ValueError, match='does not apply'):
      sources.open_source(spec, document_break='file')
