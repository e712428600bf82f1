"""WikiText's articles as a source."""

import pytest

from data.text import languages, sources

# Blank lines hold a space, and lines end in one, as in the release.
TEXT = ' \n'.join(
  (
    '',
    ' = First Title =',
    '',
    ' It cost 1 @,@ 000 @-@ dollar notes , said " one " .',
    ' = 3 = is no heading here .',
    '',
    ' = = A section = =',
    '',
    ' The <unk> of it ( sic ) .',
    '',
    ' = Second =',
    '',
    ' = = = Deep = = =',
    '',
    ' More .',
    '',
  )
)
ARTICLES = [
  'It cost 1,000-dollar notes, said "one".\n\n= 3 = is no heading here.\n\n'
  'The <unk> of it (sic).',
  'More.',
]


def test_an_article_is_a_document_without_headings(tmp_path):
  file = tmp_path / 'wiki.train.tokens'
  file.write_text(TEXT)
  source = sources.open_source(f'wikitext:{file}')
  pieces = [*source.pieces()]
  assert [piece.text for piece in pieces] == ARTICLES
  assert all(piece.ends_document for piece in pieces)
  assert not any(piece.sentence_per_line for piece in pieces)
  assert source.bytes_read == source.num_bytes == file.stat().st_size
  other = sources.open_source(str(file))
  assert other.fingerprint != source.fingerprint
  (tmp_path / 'a.txt').write_text('Plain text.')
  both = f'en={tmp_path}/a.txt,en=wikitext:{file}'
  assert languages.paths(both) == [f'{tmp_path}/a.txt', str(file)]
  found = [piece.text for piece in sources.open_source(both).pieces()]
  assert found == ['Plain text.', *ARTICLES]


def test_wrong_files_are_named(tmp_path):
  file = tmp_path / 'wiki.txt'
  file.write_text('\n= = Only a section = =\n\nText.\n')
  message = r"wiki.txt, line 4: found 'Text.', expected ' = Title = ', the head"
  with pytest.raises(ValueError, match=message):
    [*sources.open_source(f'wikitext:{file}').pieces()]
  file.write_text(' = Title = \n')
  with pytest.raises(ValueError, match="wiki.txt' holds no text at all"):
    [*sources.open_source(f'wikitext:{file}').pieces()]
  with pytest.raises(ValueError, match="document_break 'file' does not apply"):
    sources.open_source(f'wikitext:{file}', document_break='file')
  with pytest.raises(FileNotFoundError, match='none.tokens'):
    sources.open_source(f'wikitext:{tmp_path}/none.tokens')


def test_the_training_part_has_600_articles(sesame_data):
  source = sources.open_source(
    f'wikitext:{sesame_data}/wikitext-2/wiki.train.tokens'
  )
  pieces = [*source.pieces()]
  assert sum(piece.ends_document for piece in pieces) == 600
