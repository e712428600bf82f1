"""Inputs and answers of language models, checked before JAX is imported."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from data.text import text_files

MASK = '[MASK]'
# Treatment of a prompt that exceeds the model's positions.
OVERFLOWS = ('refuse', 'slide')
# The longest texts of each bin of --by_length; one more has the longer ones.
LENGTHS = (5, 10, 20, 40, 80)


class Completion(NamedTuple):
  """A continuation: text up to the stop, ids with the stop's.

  `finish` is 'stop' (an end-of-text token or a stop string) or 'length'.
  """

  text: str
  tokens: list[int]
  finish: str


def read_prompts(path: str) -> list[dict[str, Any]]:
  """Reads JSONL of `prompt` and any other fields; '-': standard input."""
  return text_files.parse_records(
    text_files.read_text(path),
    path,
    lambda record: (
      isinstance(record.get('prompt'), str)
      and not record.keys() & set(Completion._fields)
    ),
    '{"prompt": text}, and none of the fields that will be written,'
    f' {", ".join(Completion._fields)}',
  )


def read_choices(path: str) -> list[dict[str, Any]]:
  """Reads JSONL of questions: context, choices, and the label if known."""

  def is_question(record: dict[str, Any]) -> bool:
    choices, label = record.get('choices'), record.get('label')
    return (
      isinstance(record.get('context'), str)
      and isinstance(choices, list)
      and len(choices) > 1
      and all(isinstance(choice, str) for choice in choices)
      and (label is None or label in range(len(choices)))
    )

  return text_files.parse_records(
    text_files.read_text(path),
    path,
    is_question,
    '{"context": text, "choices": [two or more texts], "label": number of the'
    ' right one, from 0, or absent}',
  )


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
    raise ValueError(f'{path}: is empty, expected a text with {MASK} a line')
  return prompts


def check_masked(prompts: Sequence[str]) -> None:
  """Checks that every prompt has a mask."""
  without = [
    f'text {number}: {prompt[:60]!r}'
    for number, prompt in enumerate(prompts, start=1)
    if MASK not in prompt
  ]
  if without:
    raise ValueError(
      '\n  '.join([f'expected {MASK} in each text, found none in', *without])
    )


def kenlm_programs(folder: str) -> list[pathlib.Path]:
  """Returns the paths of KenLM's lmplz and query; checks that they exist."""
  programs = [pathlib.Path(folder) / name for name in ('lmplz', 'query')]
  for program in programs:
    if not program.exists():
      raise FileNotFoundError(
        f'no {program.name} in --kenlm={folder}: build KenLM and name its'
        ' folder of programs'
      )
  return programs
