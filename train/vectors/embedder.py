"""Vectors of whole files of text."""

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator

from etils import epath

from models import elmo
from models.layers import Params
from train.architectures import families
from train.host import console
from train.params import opened
from train.vectors import (
  elmo_vectors,
  length_batches,
  text_counts,
  vector_files,
)
from train.vectors.request import Choice, Request, parse_choice
from train.vectors.trained_model import TrainedModel, check_dtype
from train.vectors.vector_files import VectorFile

# Options of one kind of model alone.
ELMO_OPTIONS = ('stateful', 'batch_size')
TEXT_OPTIONS = ('unit', 'pool', 'normalize', 'window', 'stride')


def embed_file(
  model: elmo.Elmo,
  params: Params,
  source: epath.PathLike,
  output: str | os.PathLike,
  *,
  split: Callable[[str], list[str]] = str.split,
  overwrite: bool = False,
  counts: text_counts.Counts | None = None,
  **options: Choice | int,
) -> dict[str, int | float]:
  """Writes an ELMo's vectors of a text's sentences; on any error nothing.

  `source` is UTF-8, a sentence a line; `vector_files` describes `output`, and
  `elmo_vectors.embed_numbered` the `options`. Without `counts`, the source is
  read twice.
  """
  vector_files.check_new(output, overwrite=overwrite)
  counts = text_counts.count(source, split) if counts is None else counts
  ordered = vector_files.is_jsonl(output)
  if ordered:
    options = {'window_words': elmo_vectors.ORDERED_WORDS} | options
  *_, seconds = _write(
    lambda lines: elmo_vectors.embed_numbered(
      model, params, map(split, lines), **options
    ),
    source,
    output,
    counts.sentences,
    labels='words' if ordered else None,  # as released
    num_words=counts.words,
  )
  speed = {'seconds': seconds, 'words_per_second': counts.words / seconds}
  return counts._asdict() | speed


def _write(
  compute: Callable[[Iterable[str]], Iterator[tuple[int, VectorFile]]],
  source: epath.PathLike,
  output: str | os.PathLike,
  num_lines: int,
  *,
  labels: str | None,
  num_words: int | None = None,
) -> tuple[int, int, float]:
  """Writes vectors; returns (tokens, lines without tokens, seconds)."""
  began = shown = time.monotonic()
  done = num_tokens = num_empty = 0
  ordered = vector_files.is_jsonl(output)
  unit = 'tokens' if num_words is None else 'words'
  first_of: dict[str, str] = {}
  with (
    vector_files.create(output, num_lines, labels, first_of) as write,
    console.ProgressBar(0, num_lines) as bar,
  ):

    def read() -> Iterator[str]:
      for number, line in enumerate(text_counts.lines(source)):
        if number == num_lines:
          raise _changed(source, 'more lines', f'{num_lines:,}')
        if not ordered:
          first_of.setdefault(line.strip(), str(number))
        yield line

    numbered = compute(read())
    if ordered:
      numbered = enumerate(length_batches.in_order(numbered))
    for number, vectors in numbered:
      write(number, vectors)
      done += 1
      num_tokens += vectors.num_tokens
      num_empty += not vectors.num_tokens
      now = time.monotonic()
      if now - shown > console.BAR_SECONDS or done == num_lines:
        shown = now
        bar.update(done, f'{num_tokens / (now - began):,.0f} {unit}/s')
    if done != num_lines:
      raise _changed(source, f'{done:,} lines', f'{num_lines:,}')
    if num_words not in (None, num_tokens):
      raise _changed(source, f'{num_tokens:,} words', f'{num_words:,}')
  return num_tokens, num_empty, time.monotonic() - began


def _changed(source: epath.PathLike, now: str, before: str) -> ValueError:
  return ValueError(
    f'{source}: {now} were read, and {before} before; expected a file that'
    ' stays the same, and no pipe'
  )


def run(arguments: argparse.Namespace) -> dict[str, int | float]:
  """Embeds a file as train.embed's arguments say; returns the figures."""
  weights = opened.open_weights(arguments.weights, arguments.tokenizer)
  weights.check_complete()
  family = families.ARCHITECTURES[weights.name]
  of_words = family.reads_words
  if family.whole_words and not of_words:
    raise ValueError(
      f'{weights.folder} holds a {weights.name}, which has a vector for each'
      f' word and none of a text: they are in {weights.folder}/vectors.txt'
    )
  if not of_words and not families.is_for(weights.name, 'embed'):
    raise ValueError(
      f'{weights.folder} holds a model of the kind {weights.name}, which'
      ' has no vectors of texts: expected an elmo,'
      f' {", ".join(families.names_for("embed"))}'
    )
  if of_words and arguments.unit == 'word':
    arguments.unit = None  # the only unit there is
  refused = [
    f'--{option}'
    for option in (TEXT_OPTIONS if of_words else ELMO_OPTIONS)
    if getattr(arguments, option) not in (None, False)
  ]
  if refused:
    raise ValueError(
      f'{weights.folder} holds a {weights.name}, which has no'
      f' {", ".join(refused)}'
    )
  check_dtype(arguments.dtype)
  layers = arguments.layers or ('all' if of_words else 'top')
  choice = parse_choice(layers, arguments.combine, arguments.mix)
  found = TrainedModel(weights, dtype=arguments.dtype)
  embed = _run_words if of_words else _run_tokens
  return embed(arguments, found, choice)


def _run_words(
  arguments: argparse.Namespace, found: TrainedModel, choice: Choice
) -> dict[str, int | float]:
  choice.checked(found.model.num_layers)
  split = text_counts.splitter(arguments.running)
  counts = text_counts.count(arguments.input, split)
  tokenizer = found.tokenizer  # None if no file tells
  trained_on = None if tokenizer is None else tokenizer.split
  if trained_on == 'marks' and not arguments.running:
    console.say(
      'This model was trained on text whose punctuation is split off, and INPUT'
      ' is split at white space only; if it is running text, give --running.'
    )
  sizes = ('batch_size', 'batch_tokens')
  options = {name: getattr(arguments, name) for name in sizes}
  return embed_file(
    *found.prepared(),
    arguments.input,
    arguments.output,
    split=split,
    overwrite=arguments.overwrite,
    counts=counts,
    choice=choice,
    stateful=arguments.stateful,
    **{name: value for name, value in options.items() if value is not None},
  )


def _run_tokens(
  arguments: argparse.Namespace, found: TrainedModel, choice: Choice
) -> dict[str, int | float]:
  request = Request(
    unit=arguments.unit or 'token',
    pool=arguments.pool,
    choice=choice,
    normalize=arguments.normalize,
    window=arguments.window,
    stride=arguments.stride,
    split=text_counts.splitter(arguments.running),
  )
  plan = found.plan(request)  # checks the request
  if arguments.running and request.unit != 'word':
    raise ValueError(
      f'--running finds words, found --unit={request.unit}; expected'
      ' --unit=word'
    )
  if plan.told:
    console.say(plan.told)
  num_lines = text_counts.count_lines(arguments.input)
  _ = found.params  # read before the clock starts
  num_tokens, num_empty, seconds = _write(
    lambda lines: found.numbered_vectors(
      lines, request, batch_tokens=arguments.batch_tokens
    ),
    arguments.input,
    arguments.output,
    num_lines,
    labels=None if request.unit == 'sentence' else f'{request.unit}s',
  )
  return {
    'lines': num_lines,
    'lines_without_tokens': num_empty,
    'tokens': num_tokens,
    'seconds': seconds,
    'tokens_per_second': num_tokens / seconds,
  }
