"""Commands on text whose standard error takes no more lines."""

import io
import sys

import pytest

from data import phrases, prepare


class Full(io.StringIO):
  """Standard error on a disk that is full."""

  def write(self, text):
    raise OSError(28, 'No space left on device')


@pytest.mark.parametrize('stream', [Full(), None], ids=['full', 'closed'])
def test_a_store_and_a_text_are_written_without_a_log(
  stream, tmp_path, monkeypatch
):
  text = tmp_path / 'text.txt'
  lines = [f'Document number {i} says some words.' for i in range(40)]
  text.write_text('\n\n'.join(lines))
  monkeypatch.setattr(sys, 'stderr', stream)
  arguments = ['--source', str(text), '--tokenizer', 'train:wordpiece:60']
  assert prepare.main([*arguments, '--out', str(tmp_path / 'store')]) == 0
  assert (tmp_path / 'store/store.json').exists()
  assert phrases.main([str(text), str(tmp_path / 'joined.txt')]) == 0
  assert (tmp_path / 'joined.txt').read_text().count('Document') == 40
  assert sys.stderr is stream
