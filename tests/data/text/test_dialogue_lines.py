"""Files of dialogues as a source."""

import pytest

from data.store import texts
from data.text import languages


def test_folders_of_languages_are_not_listed():
  assert languages.of_dialogues('dialogue:a') == {'': True}
  assert languages.of_dialogues('gs://no-such/*/') == {}


def test_a_dialogue_is_a_document_and_a_turn_a_sentence(tmp_path):
  file = tmp_path / 'talk.txt'
  file.write_text('Q\ta  b?\nR\tc.\n\n\nQ\talone\n\nR\td\nQ\te\tf\nQ\tg\n')
  source = texts.open_source(f'dialogue:{file}')
  pieces = list(source.pieces())
  assert [piece.text for piece in pieces] == ['Q a b?\nR c.', 'R d\nQ e f\nQ g']
  assert all(piece.ends_document for piece in pieces)
  assert all(piece.sentence_per_line for piece in pieces)
  assert source.dropped == {'dialogue of one turn': 1}
  assert source.bytes_read == source.num_bytes == file.stat().st_size
  file.write_text('Q\ta\nR\tb\n')
  assert texts.open_source(f'dialogue:{file}').fingerprint != source.fingerprint


@pytest.mark.parametrize('line', ['Q a', 'A\ta', 'q\ta', 'R\t', 'R\t \t', 'Q'])
def test_wrong_lines_are_named(tmp_path, line):
  file = tmp_path / 'talk.txt'
  file.write_text(f'Q\ta\nR\tb\n\n{line}\n')
  source = texts.open_source(f'dialogue:{file}')
  with pytest.raises(
    ValueError, match='talk.txt, line 4: found .*expected a t'
  ):
    list(source.pieces())
  with pytest.raises(FileNotFoundError):
    texts.open_source(f'dialogue:{tmp_path}/none.txt')
