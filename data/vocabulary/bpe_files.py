"""Reads, checks and writes the files of vocabularies.

A byte-pair encoding has a JSON object, piece -> id, and merges: lines of two
pieces, the first learnt first, under a line `#version: 0.2` (gpt-2, encoder.py;
finetune-transformer-lm, model/). Other vocabularies have a piece a line.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from data import scratch

VOCAB_FILE = 'encoder.json'
MERGES_FILE = 'vocab.bpe'
WORDS_FILE = 'words.txt'
SETTINGS_FILE = 'tokenizer_settings.json'
WORD_SYMBOLS = ('<S>', '</S>', '<UNK>')  # a vocabulary of words begins so
FEWEST_WORDS = len(WORD_SYMBOLS) + 1
HEADER = '#version: 0.2'
MAX_DEPTH = 50  # a tokenizer.json has 8

Merges = tuple[tuple[str, str], ...]


def read(
  vocab_file: epath.Path,
  merges_file: epath.Path,
  required: Collection[str],
  declared: Collection[str] = (),
) -> tuple[tuple[str, ...], Merges]:
  """Reads a vocabulary's pieces in the order of ids, and its merges in order.

  If `merges_file` is `vocab_file`, it is a tokenizer.json with both. `required`
  pieces must be there. No merge has to make them, `declared` symbols, found in
  the text as they are, or pieces in <> or []. Raises ValueError, with file and
  place, if a file is damaged or the two do not belong together.
  """
  if merges_file == vocab_file:
    model = read_object(vocab_file)['model']
    pieces = in_order(vocab_file, model['vocab'])
    if not isinstance(model.get('merges'), list):
      raise ValueError(f'{vocab_file}: model.merges is no list of pairs')
    name = str(vocab_file)  # once: a path is slow to be written
    lines = [
      (f'{name}, merge {number:,}', merge)
      for number, merge in enumerate(model['merges'], start=1)
    ]
  else:
    pieces = in_order(vocab_file, read_object(vocab_file))
    name = str(merges_file)
    lines = [
      (f'{name}, line {number:,}', line)
      for number, line in enumerate(_lines(merges_file), start=1)
      if number > 1 or not line.startswith('#version')
    ]
  if missing := sorted(set(required).difference(pieces)):
    raise ValueError(
      f'{vocab_file}: no {missing[0]!r} among its {len(pieces):,} pieces; is '
      'it a vocabulary of the other kind (GPT, GPT-2)?'
    )
  merges = _check_merges(lines, vocab_file, frozenset(pieces))
  made = {first + second for first, second in merges}
  for i, piece in enumerate(pieces):
    # A letter, inside a word or at its end; a symbol.
    letter = len(piece.removesuffix('</w>') or piece) == 1
    if letter or piece in made or piece in required or piece in declared:
      continue
    if re.fullmatch(r'<.+>|\[.+\]', piece):
      continue
    raise ValueError(
      f'{vocab_file}: piece {piece!r} (id {i}) is made by none of the '
      f'{len(merges):,} merges of {merges_file}: the file is cut off, the two '
      'do not belong together, or the piece is a symbol that no file beside '
      'them names. Copy all of them again from one place'
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


def _lines(file: epath.Path) -> list[str]:
  # Only newlines end a line: some pieces are other separators of Unicode.
  lines = _text(file).replace('\r\n', '\n').split('\n')
  return lines if lines[-1] else lines[:-1]


def begins_like_words(file: epath.Path) -> bool:
  """Returns whether a file begins with a symbol of a vocabulary of words."""
  with file.open('rb') as stream:
    first = stream.read(16).removeprefix(b'\xef\xbb\xbf').split(b'\n')[0]
  return first.rstrip(b'\r').decode(errors='replace') in WORD_SYMBOLS


def read_pieces(file: epath.Path) -> list[str]:
  """Reads distinct pieces of UTF-8, one a line; line 1 is id 0.

  A tab and the id may follow each piece, as in ERNIE's release.
  """
  pieces = _lines(file)
  while pieces and not pieces[-1]:
    pieces.pop()
  if pieces and pieces[0].endswith('\t0'):
    for number, line in enumerate(pieces):
      piece, _, found = line.rpartition('\t')
      if found != str(number):
        raise ValueError(
          f'{file}, line {number + 1:,}: found {line[:60]!r}, expected a piece,'
          f' a tab and its id, {number}'
        )
      pieces[number] = piece
  if len(set(pieces)) < len(pieces):
    seen: dict[str, int] = {}
    for number, piece in enumerate(pieces, start=1):
      if (first := seen.setdefault(piece, number)) < number:
        raise ValueError(
          f'{file}, line {number:,}: {piece[:60]!r} stands on line {first:,}'
          ' already; each piece has one line, the number of which is its id.'
          f' Other programs read the last one: write [unused line {first}], or'
          f' another piece that no text has, into line {first:,}'
        )
  return pieces


def read_object(file: epath.Path) -> dict[str, Any]:
  """Reads a JSON object that has each key once; else raises ValueError."""

  def unique(items):
    table = dict(items)
    if len(table) < len(items):
      seen = set()
      key = next(k for k, _ in items if k in seen or seen.add(k))
      raise ValueError(f'{key[:80]!r} stands in it twice')
    return table

  def refuse(constant):
    raise ValueError(f'{constant} is no number of JSON')

  text = _text(file)
  try:
    table = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    if _depth(table) > MAX_DEPTH:
      raise RecursionError
    if '\\u' in text:  # it may be half a surrogate pair, which is no text
      json.dumps(table, ensure_ascii=False).encode()
  except json.JSONDecodeError as error:
    raise ValueError(
      f'{file}, line {error.lineno:,}, column {error.colno:,}: not JSON '
      f'({error.msg}). Copy it again'
    ) from None
  except ValueError as error:
    raise ValueError(f'{file}: {error}') from None
  except RecursionError:
    raise ValueError(
      f'{file}: more than {MAX_DEPTH} lists and objects inside one another'
    ) from None
  if not isinstance(table, dict):
    raise ValueError(
      f'{file}: expected a JSON object, found {type(table).__name__}'
    )
  return table


def _depth(value: Any) -> int:
  if not isinstance(value, dict | list):
    return 1
  parts = value.values() if isinstance(value, dict) else value
  # A vocabulary has many thousand parts that are none.
  nested = [part for part in parts if type(part) in (dict, list)]
  return 1 + max(map(_depth, nested), default=len(parts) > 0)


def in_order(file: epath.Path, table: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the pieces of a vocabulary, piece -> id from 0, by their ids."""
  if not isinstance(table, dict) or not table:
    raise ValueError(
      f'{file}: expected a vocabulary, an object piece -> id, found '
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


def _check_merges(
  lines: Iterable[tuple[str, Any]],
  vocab_file: epath.Path,
  pieces: Collection[str],
) -> Merges:
  seen: dict[tuple[str, ...], str] = {}
  for place, line in lines:
    parts = line.split(' ') if isinstance(line, str) else line
    merge = tuple(parts) if isinstance(parts, list) else ()
    if len(merge) != 2 or not all(p and isinstance(p, str) for p in merge):
      raise ValueError(
        f'{place}: expected two pieces with a space between, found '
        f'{str(line)[:60]!r}'
      )
    if merge in seen:
      raise ValueError(f'{place}: {line!r} stands at {seen[merge]} already')
    for piece in (*merge, ''.join(merge)):
      if piece not in pieces:
        raise ValueError(
          f'{place}: {line!r} needs the piece {piece!r}, which {vocab_file} '
          'does not hold: the two do not belong together'
        )
    seen[merge] = place
  return tuple(seen)


def save(
  folder: str | pathlib.Path | epath.Path,
  pieces: Sequence[str],
  merges: Merges,
  settings: Mapping[str, Any],
) -> None:
  """Writes the two files, a piece a line, and the settings beside them."""
  folder = save_settings(folder, settings)
  write(folder / VOCAB_FILE, folder / MERGES_FILE, pieces, merges)


def save_settings(
  folder: str | pathlib.Path | epath.Path, settings: Mapping[str, Any]
) -> epath.Path:
  """Makes a folder, writes a tokenizer's settings into it and returns it."""
  folder = epath.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  scratch.write_bytes(folder / SETTINGS_FILE, json.dumps(settings).encode())
  return folder


def write_pieces(file: epath.Path, pieces: Iterable[str]) -> None:
  """Writes a vocabulary, a piece a line."""
  # Bytes, so that no platform changes the line ends.
  scratch.write_bytes(file, ''.join(f'{piece}\n' for piece in pieces).encode())


def write(
  vocab_file: epath.Path,
  merges_file: epath.Path,
  pieces: Sequence[str],
  merges: Merges,
) -> None:
  """Writes the two files, a piece a line."""
  ids = {piece: i for i, piece in enumerate(pieces)}
  vocab = json.dumps(ids, ensure_ascii=False, indent=0) + '\n'
  lines = [HEADER, *(f'{first} {second}' for first, second in merges), '']
  scratch.write_bytes(vocab_file, vocab.encode())
  scratch.write_bytes(merges_file, '\n'.join(lines).encode())


def fingerprint(*settings: object) -> str:
  """Returns a hex digest of vocabulary, merges and settings."""
  return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
