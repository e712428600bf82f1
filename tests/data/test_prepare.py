"""The command that builds a store: its output, audit and errors."""

import json
import os
import pathlib
import time

import pytest

from data import prepare
from data.store import audit as audits
from data.store import corpus
from data.vocabulary import wordpiece


def run(source, out, *more, tokenizer='train:wordpiece:120'):
  return prepare.main([
    '--source', os.fspath(source), '--tokenizer', os.fspath(tokenizer),
    '--out', os.fspath(out), *more,
  ])  # fmt: skip


def write(path, documents):
  path.write_text('\n\n'.join('\n'.join(lines) for lines in documents) + '\n')
  return path


def numbered(count, size):
  return [
    [f'Line {chr(97 + i % 26)} of text {d % 10} ends.' for i in range(size)]
    for d in range(count)
  ]


@pytest.fixture
def vocab(tmp_path):
  pieces = [*wordpiece.SPECIALS, *'abcdefghijklmnopqrstuvwxyz0123456789.']
  pieces += [f'##{letter}' for letter in 'abcdefghijklmnopqrstuvwxyz']
  path = tmp_path / 'vocab.txt'
  path.write_text('\n'.join(pieces) + '\n')
  return path


@pytest.mark.slow
def test_manual_with_json(tmp_path, capsys):
  out = tmp_path / 'store'
  assert run('manual', out, '--json', tokenizer='train:wordpiece:6000') == 0
  captured = capsys.readouterr()
  audit = json.loads(captured.out)
  store = corpus.open_store(out)
  assert audit == store.meta['audit']
  assert 300 < audit['documents'] < 700
  assert audit['words'] > 200_000 and audit['vocab_size'] == 6000
  assert audit['unknown_rate'] < 0.01
  assert 0 < store.held_out.mean() < 0.15
  assert audit['warnings'] == []
  assert 'Tokens a document' in captured.err
  assert f'the store is in {out}\n' in captured.err
  start = time.monotonic()
  assert run('manual', out, tokenizer='train:wordpiece:6000') == 0
  assert time.monotonic() - start < 5
  captured = capsys.readouterr()
  assert captured.out.endswith(f'the store is in {out}\n') and not captured.err


def test_audit_counts_what_is_dropped(tmp_path, vocab, capsys):
  documents = numbered(30, 4)
  documents[3][1] = '\u200b'  # a format character: cleaned away
  documents[5] = ['\u200b']
  text = write(tmp_path / 'text.txt', documents)
  out = tmp_path / 'out'
  command = ['--document_break', 'blank_line', '--json']
  assert run(text, out, *command, tokenizer=vocab) == 0
  audit = json.loads(capsys.readouterr().out)
  assert audit['documents'] == 29
  assert audit['dropped']['sentence without tokens'] == 2
  assert audit['dropped']['document without tokens'] == 1
  # 10 different texts: 30, less one gone and one made different.
  assert audit['duplicate_documents'] == 29 - 11
  assert audit['sentence_lengths']['histogram'].keys() <= {'8-15', '16-31'}
  assert any('median document' in line for line in audit['warnings'])


def test_audit_names_dropped_files(tmp_path, vocab, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('COLUMNS', '100')  # no line is broken
  folder = pathlib.Path('texts')
  folder.mkdir()
  for i in range(3):
    write(folder / f'{i}.txt', numbered(1, 40))
  (folder / 'photo.png').write_bytes(b'\x89PNG\0')
  (folder / 'gone.txt').symlink_to('away.txt')
  assert run(folder, tmp_path / 'out', '--json', tokenizer=vocab) == 0
  captured = capsys.readouterr()
  audit = json.loads(captured.out)
  assert audit['dropped'] == {'binary file': 1, 'link to nothing': 1}
  assert audit['dropped_files'] == {
    'binary file': [f'{folder}/photo.png: NUL at byte 4'],
    'link to nothing': [f'{folder}/gone.txt -> away.txt'],
  }
  assert '1 (texts/photo.png: NUL at byte 4)' in captured.err
  assert '1 (texts/gone.txt -> away.txt)' in captured.err
  # An audit of a store that was built before.
  del audit['dropped_files']
  audits.print_audit(audit)
  capsys.readouterr()
  for i in range(3):
    (folder / f'{i}.txt').unlink()
  error = refused(capsys, folder, tmp_path / 'none', tokenizer=vocab)
  assert 'photo.png: NUL at byte 4' in error and 'gone.txt' in error


def warnings_of(capsys, *arguments, **options):
  assert run(*arguments, '--json', **options) == 0
  return json.loads(capsys.readouterr().out)['warnings']


def test_warnings(tmp_path, vocab, capsys):
  single = write(tmp_path / 'single.txt', numbered(1, 40))
  found = warnings_of(capsys, single, tmp_path / 'a', tokenizer=vocab)
  assert any('a single document' in line for line in found)
  short = write(tmp_path / 'short.txt', numbered(40, 1))
  more = ('--document_break', 'blank_line')
  found = warnings_of(capsys, short, tmp_path / 'b', *more, tokenizer=vocab)
  assert any('40 of 40 documents have one sentence' in line for line in found)
  odd = write(tmp_path / 'odd.txt', [['Ωμέγα ж ω.'] * 9] * 3)
  found = warnings_of(capsys, odd, tmp_path / 'c', tokenizer=vocab)
  assert any('are unknown' in line for line in found)
  found = warnings_of(
    capsys, single, tmp_path / 'd', tokenizer='train:wordpiece:5000'
  )
  assert any('5000 were asked for' in line for line in found)


def refused(capsys, source, out, *more, **options):
  assert run(source, out, *more, **options) != 0
  captured = capsys.readouterr()
  assert captured.out == ''
  lines = captured.err.strip().splitlines()
  assert len(lines) == 1 and lines[0].startswith('error: '), captured.err
  return lines[0]


@pytest.mark.parametrize('case', ['empty', 'missing', 'white', 'invisible'])
def test_no_text(tmp_path, vocab, capsys, case):
  content = {'empty': '', 'white': ' \n\n \n', 'invisible': '\u200b\n' * 9}
  text = tmp_path / f'{case}.txt'
  if case in content:
    text.write_text(content[case])
  error = refused(capsys, text, tmp_path / 'out', tokenizer=vocab)
  assert text.name in error
  assert not (tmp_path / 'out').exists()
  assert not [path for path in tmp_path.iterdir() if path.name[0] == '.']


def test_nothing_to_hold_out(tmp_path, vocab, capsys):
  text = write(tmp_path / 'text.txt', numbered(1, 1))
  error = refused(capsys, text, tmp_path / 'out', tokenizer=vocab)
  assert 'nothing can be held out' in error
  text = write(tmp_path / 'same.txt', numbered(1, 2) * 30)
  more = ('--document_break', 'blank_line', '--held_out', '0.999999')
  error = refused(capsys, text, tmp_path / 'out', *more, tokenizer=vocab)
  assert 'all 30 documents would be held out' in error


@pytest.mark.parametrize('share', ['0', '1', '-0.1', 'nan'])
def test_held_out_share(tmp_path, capsys, share):
  # '=' because argparse takes a leading minus for a flag.
  error = refused(capsys, 'manual', tmp_path / 'out', f'--held_out={share}')
  assert 'above 0 and below 1' in error


@pytest.mark.parametrize(
  'tokenizer',
  ['train:wordpiece', 'train:bpe:100:cased', 'train:wordpiece:many'],
)
def test_tokenizer_spec(tmp_path, capsys, tokenizer):
  error = refused(capsys, 'manual', tmp_path / 'out', tokenizer=tokenizer)
  assert 'expected train:wordpiece:N[:cased], train:bpe:N' in error
  assert list(tmp_path.iterdir()) == []


def test_missing_vocabulary_and_remote_out(tmp_path, capsys):
  missing = tmp_path / 'vocab.txt'
  error = refused(capsys, 'manual', tmp_path / 'out', tokenizer=missing)
  assert 'vocab.txt' in error
  assert 'gs://BUCKET/NAME' in refused(capsys, 'manual', 'gs:/bucket/store')


@pytest.mark.slow
def test_one_line_of_50_mb(tmp_path, vocab):
  text = tmp_path / 'line.txt'
  # Words that are too long for the vocabulary: one token each, so quick.
  with open(text, 'w') as file:
    for _ in range(50):
      file.write(('x' * 499 + ' ') * 2000)
  start = time.monotonic()
  assert run(text, tmp_path / 'out', tokenizer=vocab) == 0
  assert time.monotonic() - start < 60
  store = corpus.open_store(tmp_path / 'out')
  assert store.num_tokens == 100_000
  assert store.held_out.tolist() == [False, True]


def test_vocabulary_of_a_sample(tmp_path, monkeypatch, capsys):
  from data.store import vocabularies

  monkeypatch.setattr(vocabularies, 'VOCABULARY_BYTES', 20_000)
  text = write(tmp_path / 'text.txt', numbered(3000, 4))
  more = ('--document_break', 'blank_line', '--json')
  assert run(text, tmp_path / 'out', *more) == 0
  note = json.loads(capsys.readouterr().out)['vocabulary_text']
  assert 'evenly spaced' in note
