"""Inputs and answers of language models, checked before JAX is imported."""

import argparse
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from etils import epath

from data.ngrams import smoothing
from data.ngrams.model import Model
from data.store import folders
from data.text import text_files
from train.host import files
from train.host.files import Json

# The mask of a prompt: of most vocabularies, and of RoBERTa's.
MASKS = ('[MASK]', '<mask>')
# Treatment of a prompt that exceeds the model's positions.
OVERFLOWS = ('refuse', 'slide')
_ARPA = r'\.arpa(\.gz)?$'
# The longest texts of each bin of --by_length; one more has the longer ones.
LENGTHS = (5, 10, 20, 40, 80)


class Completion(NamedTuple):
  """A continuation: text up to the stop, ids with the stop's.

  `finish` is 'stop' (an end-of-text token or a stop string) or 'length'.
  """

  text: str
  tokens: list[int]
  finish: str


def read_prompts(path: str) -> list[dict[str, Json]]:
  """Reads JSONL of `prompt` and any other fields; '-': standard input."""
  return parse_records(
    text_files.read_text(path),
    path,
    lambda record: (
      isinstance(record.get('prompt'), str)
      and not record.keys() & set(Completion._fields)
    ),
    '{"prompt": text}, and none of the fields that will be written,'
    f' {", ".join(Completion._fields)}',
  )


def read_choices(path: str) -> list[dict[str, Json]]:
  """Reads JSONL of questions: context, choices, and the label if known."""

  def is_question(record: dict[str, Json]) -> bool:
    choices, label = record.get('choices'), record.get('label')
    return (
      isinstance(record.get('context'), str)
      and isinstance(choices, list)
      and len(choices) > 1
      and all(isinstance(choice, str) for choice in choices)
      and (label is None or label in range(len(choices)))
    )

  return parse_records(
    text_files.read_text(path),
    path,
    is_question,
    '{"context": text, "choices": [two or more texts], "label": number of the'
    ' right one, from 0, or absent}',
  )


def parse_records(
  text: str,
  name: str | os.PathLike,
  is_right: Callable[[dict[str, Any]], bool],
  expected: str,
) -> list[dict[str, Any]]:
  """Parses lines of JSON objects that `is_right` accepts; skips blank ones."""
  return [
    record for _, record in number_records(text, name, is_right, expected)
  ]


def number_records(
  text: str,
  name: str | os.PathLike,
  is_right: Callable[[dict[str, Any]], bool],
  expected: str,
) -> list[tuple[int, dict[str, Any]]]:
  """Returns (number of the line, record) for each of `parse_records`."""
  found = []
  # JSON's strings may hold the other line ends of Unicode.
  for number, line in enumerate(text.split('\n'), start=1):
    if not line.strip():
      continue
    try:
      record = text_files.loads(line)
    except ValueError as error:
      raise ValueError(f'{name}, line {number}: not JSON ({error})') from None
    if not (isinstance(record, dict) and is_right(record)):
      raise ValueError(f'{name}, line {number}: expected {expected}')
    found.append((number, record))
  if not found:
    raise ValueError(f'{name}: is empty; expected {expected} on each line')
  return found


def parse_bins(text: str | None) -> tuple[int, ...]:
  """Returns the bins of --bins, as in 5,10,20: the longest of each."""
  if text is None:
    return LENGTHS
  parts = text.split(',')
  bins = [int(part) for part in parts if part.strip().isdecimal()]
  if len(bins) < len(parts) or bins != sorted({*bins} - {0}):
    raise ValueError(
      f'--bins={text}: expected growing lengths of 1 or more, as in --bins=5,10'
    )
  return tuple(bins)


def read_masked(path: str) -> list[str]:
  """Returns the lines of a file that are not blank; '-': standard input."""
  lines = text_files.read_text(path).split('\n')
  prompts = [line for line in lines if line.strip()]
  if not prompts:
    raise ValueError(
      f'{path}: is empty, expected a text with {MASKS[0]} a line'
    )
  return prompts


def read_pairs(path: str) -> list[tuple[str, str]]:
  """Returns the pairs of texts of a file, two a line; '-': standard input."""
  pairs = []
  for number, line in enumerate(text_files.read_text(path).split('\n'), 1):
    if line.strip():
      texts = line.rstrip('\r').split('\t')
      if len(texts) != 2:
        raise ValueError(
          f'{path}, line {number}: found {len(texts)} texts, expected 2 with a'
          ' tab between'
        )
      pairs.append((texts[0], texts[1]))
  if not pairs:
    raise ValueError(f'{path}: is empty, expected two texts a line')
  return pairs


def check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
  """Checks that no text of a pair is empty."""
  for number, pair in enumerate(pairs, start=1):
    if not all(text.strip() for text in pair):
      raise ValueError(f'pair {number}: a text is empty, found {pair!r}')


def check_masked(prompts: Sequence[str], mask: str | None = None) -> None:
  """Checks that every prompt has the mask of a vocabulary; None: one of any."""
  masks = MASKS if mask is None else (mask,)
  without = [
    f'text {number}: {prompt[:60]!r}'
    for number, prompt in enumerate(prompts, start=1)
    if not any(mask in prompt for mask in masks)
  ]
  if without:
    expected = mask or f'{MASKS[0]}, or {MASKS[1]} of a RoBERTa,'
    raise ValueError(
      '\n  '.join(
        [f'expected {expected} in each text, found none in', *without]
      )
    )


def kenlm_program(folder: str) -> pathlib.Path:
  """Returns the path of KenLM's lmplz; checks that it exists."""
  program = pathlib.Path(folder) / 'lmplz'
  if not program.exists():
    raise FileNotFoundError(
      f'no lmplz in --kenlm={folder}: build KenLM and name its folder of'
      ' programs, or leave --kenlm out'
    )
  return program


def is_arpa(path: str) -> bool:
  """Returns whether a path is named as a file of n-grams."""
  return bool(re.search(_ARPA, path))


def ngram_source(path: str) -> str:
  """Returns whether a path is a 'store', 'workdir', 'arpa' or 'files'."""
  folder = epath.Path(path)
  if is_arpa(path):
    files.check_readable(path)
    return 'arpa'
  if folder.is_dir() and folders.is_store(folder):
    return 'store'
  if folder.is_dir() and (folder / 'config.json').exists():
    return 'workdir'
  text_files.find_running(path)
  return 'files'


# Options of python -m train.ngram -> the kinds of text they are for.
_NGRAM_OPTIONS = {
  **dict.fromkeys(('order', 'smoothing'), ('files', 'store', 'workdir')),
  'min_count': ('files',),
  'test': ('files', 'arpa'),
  **dict.fromkeys(
    ('beside', 'tokens', 'mix', 'kenlm', 'arpa'), ('store', 'workdir')
  ),
}


def check_ngram_options(kind: str, options: argparse.Namespace) -> None:
  """Checks that the options of train.ngram fit a kind of text."""
  for name, kinds in _NGRAM_OPTIONS.items():
    if getattr(options, name) is not None and kind not in kinds:
      raise ValueError(
        f'--{name} is of {" and ".join(kinds)}, but {options.text} is of kind'
        f' {kind}'
      )
  if kind == 'arpa' and options.test is None:
    raise ValueError(f'{options.text}: name the text to score by --test FILES')
  if options.mix is not None and not 0 <= options.mix <= 1:
    raise ValueError(f'--mix={options.mix:g}: expected a number in [0, 1]')
  for name, reason, others in (
    ('arpa', 'reads n-grams', ('kenlm', 'out', 'order', 'smoothing')),
    ('kenlm', 'estimates modified Kneser-Ney', ('smoothing',)),
  ):
    given = [f'--{other}' for other in others if getattr(options, other)]
    if getattr(options, name) and given:
      raise ValueError(f'--{name} {reason}: leave {" and ".join(given)} out')
  if options.out and not is_arpa(options.out):
    raise ValueError(
      f'--out={options.out}: expected a name that ends in .arpa or .arpa.gz'
    )


def parse_smoothing(text: str | None, order: int) -> Callable[..., Model]:
  """Returns (counts, words, order) -> model for NAME[:NUMBER,...].

  None stands for the first method, modified Kneser-Ney.
  """
  text = text or next(iter(smoothing.METHODS))
  name, _, numbers = text.partition(':')
  if name not in smoothing.METHODS:
    raise ValueError(
      f'--smoothing={text}: expected one of {", ".join(smoothing.METHODS)}'
    )
  try:
    values = [float(part) for part in numbers.split(',') if numbers]
  except ValueError:
    raise ValueError(
      f'--smoothing={text}: expected numbers behind the colon'
    ) from None
  takes = {'jelinek_mercer': order, 'kneser_ney': 1, 'add_k': 1}.get(name, 0)
  if values and len(values) != takes:
    raise ValueError(
      f'--smoothing={text}: expected {takes or "no"} numbers, found'
      f' {len(values)}'
    )
  method = smoothing.METHODS[name]
  if name == 'jelinek_mercer' and values:
    return lambda counts, words, n: method(counts, words, n, values[:n])
  return lambda counts, words, n: method(counts, words, n, *values)
