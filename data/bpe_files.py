"""The two files of a byte-pair encoding, read and checked.

A vocabulary is a JSON object, piece -> id; merges are lines of two pieces, the
first learnt first, under a line `#version: 0.2` (finetune-transformer-lm,
model/; gpt-2, encoder.py).
"""

import hashlib
import json
import pathlib
from collections.abc import Collection, Sequence

from etils import epath

VOCAB_FILE = 'encoder.json'
MERGES_FILE = 'vocab.bpe'
SETTINGS_FILE = 'tokenizer_settings.json'
HEADER = '#version: 0.2'

Merges = tuple[tuple[str, str], ...]


def read(
  vocab_file: epath.Path,
  merges_file: epath.Path,
  required: Collection[str],
) -> tuple[tuple[str, ...], Merges]:
  """Reads a vocabulary and its merges.

  Args:
    vocab_file: JSON, piece -> id.
    merges_file: two pieces a line.
    required: pieces that have to be there, whether a merge makes them or not.

  Returns:
    The pieces in the order of ids, and the merges in their order.

  Raises:
    ValueError: if a file is damaged or the two do not belong together; names
      the file and the line or the piece.
  """
  pieces = _read_vocab(vocab_file)
  if missing := sorted(set(required).difference(pieces)):
    raise ValueError(
      f'{vocab_file}: no {missing[0]!r} among its {len(pieces):,} pieces; is '
      'it a vocabulary of the other kind (GPT, GPT-2)?'
    )
  merges = _read_merges(merges_file, vocab_file, frozenset(pieces))
  made = {first + second for first, second in merges}
  for i, piece in enumerate(pieces):
    if len(piece) == 1 or piece in made or piece in required:
      continue
    if piece.endswith('</w>') and len(piece) == len('</w>') + 1:
      continue
    raise ValueError(
      f'{vocab_file}: piece {piece!r} (id {i}) is made by none of the '
      f'{len(merges):,} merges of {merges_file}: the file is cut off, or the '
      'two do not belong together. Copy both again from one place'
    )
  return pieces, merges


def _text(file: epath.Path) -> str:
  try:
    return file.read_bytes().decode('utf-8-sig')
  except UnicodeDecodeError as error:
    line = error.object.count(b'\n', 0, error.start) + 1
    raise ValueError(
      f'{file}, line {line:,}: not UTF-8 at byte {error.start:,}'
    ) from None


def _read_vocab(file: epath.Path) -> tuple[str, ...]:
  def unique(items):
    table = dict(items)
    if len(table) < len(items):
      seen = set()
      piece = next(k for k, _ in items if k in seen or seen.add(k))
      raise ValueError(f'{file}: piece {piece!r} stands in it twice')
    return table

  try:
    table = json.loads(_text(file), object_pairs_hook=unique)
  except json.JSONDecodeError as error:
    raise ValueError(
      f'{file}, line {error.lineno:,}, column {error.colno:,}: not JSON '
      f'({error.msg}); a vocabulary is a JSON object, piece -> id. Copy it '
      'again'
    ) from None
  if not isinstance(table, dict) or not table:
    raise ValueError(
      f'{file}: expected a JSON object, piece -> id, found '
      f'{"nothing in it" if table in ({}, []) else type(table).__name__}'
    )
  pieces: list[str | None] = [None] * len(table)
  for piece, i in table.items():
    if type(i) is not int or not 0 <= i < len(table):
      raise ValueError(
        f'{file}: piece {piece!r} has id {i!r}; the ids of its {len(table):,} '
        f'pieces should be 0 to {len(table) - 1:,}'
      )
    if pieces[i] is not None:
      raise ValueError(
        f'{file}: pieces {pieces[i]!r} and {piece!r} both have id {i}'
      )
    pieces[i] = piece
  return tuple(pieces)


def _read_merges(
  file: epath.Path, vocab_file: epath.Path, pieces: Collection[str]
) -> Merges:
  # Only newlines end a line: some pieces are other separators of Unicode.
  lines = _text(file).replace('\r\n', '\n').split('\n')
  if lines[-1] == '':
    lines.pop()
  seen: dict[tuple[str, ...], int] = {}
  for number, line in enumerate(lines, start=1):
    if number == 1 and line.startswith('#version'):
      continue
    merge = tuple(line.split(' '))
    if len(merge) != 2 or not all(merge):
      raise ValueError(
        f'{file}, line {number:,}: expected two pieces with a space between, '
        f'found {line[:60]!r}'
      )
    if merge in seen:
      raise ValueError(
        f'{file}, line {number:,}: {line!r} stands on line {seen[merge]:,} '
        'already'
      )
    for piece in (*merge, ''.join(merge)):
      if piece not in pieces:
        raise ValueError(
          f'{file}, line {number:,}: {line!r} needs the piece {piece!r}, which '
          f'{vocab_file} does not hold: the two do not belong together'
        )
    seen[merge] = number
  return tuple(seen)


def save(
  folder: str | pathlib.Path | epath.Path,
  pieces: Sequence[str],
  merges: Merges,
  settings: dict[str, str],
) -> None:
  """Writes the two files, a piece a line, and the settings beside them."""
  folder = epath.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  ids = {piece: i for i, piece in enumerate(pieces)}
  vocab = json.dumps(ids, ensure_ascii=False, indent=0) + '\n'
  lines = [HEADER, *(f'{first} {second}' for first, second in merges), '']
  # Bytes, so that no platform changes the line ends.
  (folder / VOCAB_FILE).write_bytes(vocab.encode())
  (folder / MERGES_FILE).write_bytes('\n'.join(lines).encode())
  (folder / SETTINGS_FILE).write_bytes(json.dumps(settings).encode())


def fingerprint(*settings: object) -> str:
  """Returns a hex digest of vocabulary, merges and settings."""
  return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
