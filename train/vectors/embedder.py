"""Vectors of whole files of text."""

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax.numpy as jnp
from etils import epath

from models import elmo
from train.host import console
from train.params import opened, trained
from train.vectors import (
  elmo_vectors,
  layer_choice,
  length_batches,
  text_counts,
  text_plan,
  text_vectors,
  vector_files,
)
from train.vectors.text_plan import Request
from train.vectors.vector_files import Vectors

BAR_SECONDS = 0.1  # between changes of the bar, which are not free


def embed_file(
  model: elmo.Elmo,
  params: Any,
  source: epath.PathLike,
  output: str | os.PathLike,
  *,
  split: text_counts.Split = str.split,
  overwrite: bool = False,
  counts: text_counts.Counts | None = None,
  **options: Any,
) -> dict[str, int | float]:
  """Writes an ELMo's vectors of a text's sentences; or nothing, on any error.

  Args:
    model: with a character encoder.
    params: its parameters.
    source: UTF-8, a sentence a line.
    output: the file, see `vector_files`; of a line it holds what
      `embedding.embed_sentences` yields.
    split: finds the words of a line.
    overwrite: replace the file, once the new one is whole.
    counts: of the source, where they are known; else it is read twice.
    **options: of `embedding.embed_numbered`.

  Returns:
    The counts, seconds and words_per_second.

  Raises:
    OSError: if a file cannot be read or written.
    ValueError: if the source or an option makes no sense.
  """
  vector_files.check(output, overwrite=overwrite)
  counts = text_counts.count(source, split) if counts is None else counts
  ordered = vector_files.is_jsonl(output)
  if ordered:
    options = {'window_words': elmo_vectors.ORDERED_WORDS} | options

  def compute(lines: Iterable[str]) -> Iterator[tuple[int, Vectors]]:
    reading: dict[int, list[str]] = {}

    def read() -> Iterator[list[str]]:
      for number, line in enumerate(lines):
        reading[number] = split(line)
        yield reading[number]

    for number, array in elmo_vectors.embed_numbered(
      model, params, read(), **options
    ):
      words = reading.pop(number)
      yield number, Vectors(array, words, len(words))

  return counts._asdict() | _write(
    compute,
    source,
    output,
    num_lines=counts.sentences,
    num_words=counts.words,
    labels='words' if ordered else None,  # as released
  )


def embed_text_file(
  found: trained.Trained,
  source: epath.PathLike,
  output: str | os.PathLike,
  request: Request,
  *,
  overwrite: bool = False,
  num_lines: int | None = None,
  batch_tokens: int | None = None,
) -> dict[str, int | float]:
  """Writes a transformer's vectors of a text's lines; or nothing, on any error.

  Args:
    found: a BERT, GPT or GPT-2.
    source: UTF-8, a sentence or a document a line.
    output: the file, see `vector_files`.
    request: what is wanted of each line.
    overwrite: replace the file, once the new one is whole.
    num_lines: of the source, where known; else it is read twice.
    batch_tokens: see `text_embedding.embed_numbered`.

  Returns:
    lines, those without a token, tokens, seconds and tokens_per_second.

  Raises:
    OSError: if a file cannot be read or written.
    ValueError: if the source or an option makes no sense.
  """
  vector_files.check(output, overwrite=overwrite)
  vector_files.is_jsonl(output)
  num_lines = (
    text_counts.count_lines(source) if num_lines is None else num_lines
  )
  return _write(
    lambda lines: text_vectors.embed_numbered(
      found, lines, request, batch_tokens=batch_tokens
    ),
    source,
    output,
    num_lines=num_lines,
    num_words=None,
    labels=None if request.unit == 'sentence' else f'{request.unit}s',
  )


def _write(
  compute: Callable[[Iterable[str]], Iterator[tuple[int, Vectors]]],
  source: epath.PathLike,
  output: str | os.PathLike,
  *,
  num_lines: int,
  num_words: int | None,
  labels: str | None,
) -> dict[str, int | float]:
  """Writes what is computed of a text's lines, and returns figures.

  Args:
    compute: lines -> (number, vectors), in any order.
    source: the text.
    output: the file.
    num_lines: of the text.
    num_words: of the text; None: they are tokens and not counted yet.
    labels: see `vector_files.create`.
  """
  began = shown = time.monotonic()
  done = num_tokens = empty_lines = 0
  ordered = vector_files.is_jsonl(output)
  with (
    vector_files.create(output, num_lines=num_lines, labels=labels) as file,
    console.ProgressBar(0, num_words or num_lines) as bar,
  ):

    def read() -> Iterator[str]:
      for number, line in enumerate(text_counts.lines(source)):
        if number == num_lines:
          raise _changed(source, f'more lines are read than the {num_lines:,}')
        file.add_line(number, line)
        yield line

    numbered = compute(read())
    if ordered:
      numbered = enumerate(length_batches.in_order(numbered))
    for number, vectors in numbered:
      file.write(number, vectors)
      done += 1
      num_tokens += vectors.num_tokens
      empty_lines += not vectors.num_tokens
      now = time.monotonic()
      if now - shown > BAR_SECONDS or done == num_lines:
        shown = now
        bar.update(
          done if num_words is None else num_tokens,
          f'{num_tokens / (now - began):,.0f}'
          f' {"tokens" if num_words is None else "words"}/s',
        )
    if num_words is None and done != num_lines:
      raise _changed(source, f'{done:,} lines were read, and {num_lines:,}')
    if num_words is not None and (done, num_tokens) != (num_lines, num_words):
      raise _changed(
        source,
        f'{done:,} lines of {num_tokens:,} words were read, and {num_lines:,}'
        f' of {num_words:,}',
      )
  seconds = time.monotonic() - began
  if num_words is not None:
    return {'seconds': seconds, 'words_per_second': num_words / seconds}
  return {
    'lines': num_lines,
    'lines_without_tokens': empty_lines,
    'tokens': num_tokens,
    'seconds': seconds,
    'tokens_per_second': num_tokens / seconds,
  }


def _changed(source: epath.PathLike, what: str) -> ValueError:
  return ValueError(
    f'{source}: {what} before; expected a file that stays the same, and no pipe'
  )


def run_elmo(
  arguments: argparse.Namespace,
  opened_weights: opened.Opened,
  choice: layer_choice.Choice,
) -> dict[str, int | float]:
  """Embeds by an ELMo what the command line names; returns the figures."""
  layer_choice.check(choice, opened_weights.model.num_layers)
  split = text_counts.splitter(arguments.running)
  counts = text_counts.count(arguments.input, split)
  model, params, trained_on = trained.load_elmo(opened_weights)
  if trained_on == 'marks' and not arguments.running:
    console.say(
      'This model was trained on words with the marks by themselves, and those'
      ' of INPUT are taken as white space sets them apart; if it is running'
      ' text, give --running.'
    )
  options = {
    name: value
    for name in ('batch_size', 'batch_tokens')
    if (value := getattr(arguments, name)) is not None
  }
  return embed_file(
    model.clone(dtype=jnp.dtype(arguments.dtype)),
    params,
    arguments.input,
    arguments.output,
    split=split,
    overwrite=arguments.overwrite,
    counts=counts,
    stateful=arguments.stateful,
    **choice._asdict(),
    **options,
  )


def run_text(
  arguments: argparse.Namespace,
  opened_weights: opened.Opened,
  choice: layer_choice.Choice,
) -> dict[str, int | float]:
  """Embeds by a transformer what the command line names; returns figures."""
  request = Request(
    unit=arguments.unit or 'token',
    pool=arguments.pool,
    choice=choice,
    normalize=arguments.normalize,
    window=arguments.window,
    stride=arguments.stride,
    split=text_counts.splitter(arguments.running),
  )
  text_plan.Plan(opened_weights, request)  # checks it
  if arguments.running and request.unit != 'word':
    raise ValueError(
      f'--running finds words, found --unit={request.unit}; expected'
      ' --unit=word'
    )
  num_lines = text_counts.count_lines(arguments.input)
  found = trained.load(opened_weights, expected=trained.TRANSFORMERS)
  model = found.model.clone(dtype=jnp.dtype(arguments.dtype))
  return embed_text_file(
    found._replace(model=model),
    arguments.input,
    arguments.output,
    request,
    overwrite=arguments.overwrite,
    num_lines=num_lines,
    batch_tokens=arguments.batch_tokens,
  )
