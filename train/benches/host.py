"""Benches of the host's work: text, batches, checkpoints, the command."""

import contextlib
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
import psutil
from flax import linen as nn

from configs import base, variants
from data.examples import pairs, pipeline
from data.inputs import batches
from data.scoring import kinds
from data.store import build
from data.tasks import registry
from data.tasks.examples import Example, Task
from data.text import sentences, sources
from data.vocabulary import tokenization
from data.vocabulary.tokenization import WordPiece
from models import bert
from models.pretrained import hugging_face
from train.benches import programs
from train.benches.timing import REPEATS
from train.engine import state
from train.params import opened
from train.run import checkpoint
from train.vectors.vector_cache import CachedVectors, VectorCache

MAX_LENGTH = 384  # of SQuAD (google-research/bert, README)
BATCH_SIZE = 32

T = TypeVar('T')


def _timed(work: Callable[..., T], *arguments: Any) -> tuple[float, T]:
  start = time.perf_counter()
  result = work(*arguments)
  return time.perf_counter() - start, result


def bench_squad_features(data: str, weights: str) -> dict[str, float]:
  """Seconds in which SQuAD 1.1's training set becomes windows of 384 tokens."""
  task = registry.find('squad1')
  seconds, examples = _timed(registry.load, task, data, 'train')
  tokenizer = tokenization.load(pathlib.Path(weights))
  figures = squad_features(task, examples, tokenizer)
  return figures | {'read_seconds': seconds}


def squad_features(
  task: Task, examples: Sequence[Example], tokenizer: WordPiece
) -> dict[str, float]:
  """Returns speeds of making features and batches of 32 from questions."""
  seconds, features = _timed(
    kinds.encode, task, examples, tokenizer, MAX_LENGTH
  )
  made = batches.Batches(
    features, pad_id=tokenizer.pad_id, max_length=MAX_LENGTH
  )
  steps = max(1, len(features) // BATCH_SIZE)
  began = time.perf_counter()
  for step in range(steps):
    made.train_batch(step, pipeline.ALL_ROWS, BATCH_SIZE, 0, steps)
  return {
    'questions': len(examples),
    'features': len(features),
    'tokens': len(features.tokens),
    'seconds': seconds,
    'batch_ms': 1e3 * (time.perf_counter() - began) / steps,
  }


def word_cache(
  sentences: Sequence[Sequence[str]], weights: str
) -> dict[str, float]:
  """Times vectors of words, computed by a language model and read from disk.

  They are computed twice: the first time compiles. They are read as a task
  model's batches of 32 sentences are, in a random order, and copied.
  """
  cache = VectorCache(weights)
  order = np.random.default_rng(0).permutation(len(sentences))
  lengths = np.array([len(words) for words in sentences])

  def read(found: CachedVectors) -> None:
    for first in range(0, len(order), BATCH_SIZE):
      chosen = order[first : first + BATCH_SIZE]
      shape = len(chosen), lengths[chosen].max(), *found.layers.shape[1:]
      batch = np.zeros(shape, found.layers.dtype)
      for i, number in enumerate(chosen):
        start, length = found.starts[number], lengths[number]
        batch[i, :length] = found.layers[start : start + length]

  with tempfile.TemporaryDirectory() as folder:
    cache.vectors(sentences, f'{folder}/first')
    computing, _ = _timed(cache.vectors, sentences, f'{folder}/second')
    opening, found = _timed(cache.vectors, sentences, f'{folder}/second')
    reading, _ = _timed(read, found)
  words = int(lengths.sum())
  return {
    'words': words,
    'computed_words_per_second': words / computing,
    'read_words_per_second': words / (opening + reading),
    'times_as_fast': computing / (opening + reading),
  }


@contextlib.contextmanager
def _peak_memory() -> Iterator[list[int]]:
  """Yields a growing list of resident bytes of this process and children."""
  found, ended, this = [0], threading.Event(), psutil.Process()

  def watch() -> None:
    while not ended.wait(0.05):
      found.append(0)
      for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
          found[-1] += process.memory_info().rss

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  yield found
  ended.set()
  thread.join()


def bench_store(text: str) -> dict[str, float]:
  """Store build: tokens/s of running text and of one sentence a line."""
  make = functools.partial(build.build_store, progress=False)
  with tempfile.TemporaryDirectory() as folder:
    with _peak_memory() as memory:
      vocabulary_seconds, _ = _timed(
        make, text, 'train:wordpiece:8000', f'{folder}/vocab'
      )
      vocabulary = f'{folder}/vocab/vocab.txt'
      seconds, running = _timed(make, text, vocabulary, f'{folder}/a')
    split: list[str] = []
    with open(f'{folder}/lines.txt', 'w') as file:
      for piece in sources.open_source(text).pieces():
        found = sentences.split_sentences(piece.text)
        file.write('\n'.join(found) + '\n' * (1 + piece.ends_document))
        if len(split) < 200_000:
          split += found
    make = functools.partial(make, document_break='blank_line')
    lines_seconds, lines = _timed(
      make, f'{folder}/lines.txt', vocabulary, f'{folder}/b'
    )
    wordpiece = tokenization.load(vocabulary)
    bare_seconds, ids = _timed(wordpiece.encode_batch, split)
  rate = lines['tokens'] / lines_seconds
  bare = sum(map(len, ids)) / bare_seconds
  return {
    'running_tokens_per_second': running['tokens'] / seconds,
    'lines_tokens_per_second': rate,
    'bare_tokenizer_tokens_per_second': bare,
    'lines_share_of_bare': rate / bare,
    'with_vocabulary_seconds': vocabulary_seconds,
    'peak_gigabytes': max(memory) / 1e9,
  }


def bench_batches() -> dict[str, float]:
  """Host batches of 256 of the embedded text: sequences/s by length."""
  figures = {}
  with tempfile.TemporaryDirectory() as folder:
    store = build.ensure_store(
      'manual', 'train:wordpiece:6000', f'{folder}/manual'
    )
    for length, count in ((128, 400), (512, 100)):
      examples = {length: pairs.PairExamples(store, length, held_out=False)}
      phases = ((count + 1, length, 256, 'continue'),)
      make = functools.partial(pipeline.train_batch, examples, phases, 0)
      for name, load in (
        ('plain', pipeline.plain_batches),
        ('tf', pipeline.tf_batches),
      ):
        with load(make, 0, count) as ahead:
          next(ahead)
          seconds, made = _timed(lambda ahead: sum(1 for _ in ahead), ahead)
        figures[f'{name}_{length}_sequences_per_second'] = made * 256 / seconds
  return figures


def bench_save() -> dict[str, float]:
  """Seconds that the loop waits for a save of BERT-Base, beside a step's.

  A step has 8 x 128 tokens; `blocked_share` is for the default save interval.
  """
  overrides = {'model.dtype': 'float32', 'model.scan_layers': False}
  program, current, batch, _ = programs.compiled_step(
    'bert_base', 8, 128, overrides
  )

  def step() -> None:
    nonlocal current
    current, _ = jax.block_until_ready(program(current, batch))

  rows = []
  with (
    tempfile.TemporaryDirectory() as folder,
    checkpoint.Checkpoints(folder, keep=1) as checkpoints,
  ):
    for number in range(REPEATS + 1):
      alone, _ = _timed(step)
      start = time.perf_counter()
      blocked, _ = _timed(checkpoints.save, number, current)
      beside, _ = _timed(step)
      checkpoints.finish()
      rows.append((alone, blocked, beside, time.perf_counter() - start))
  columns = list(zip(*rows[1:], strict=True))  # the first is a warm-up
  alone, blocked, beside, written = map(statistics.median, columns)
  every = base.get_config().train.checkpoint_every
  return {
    'state_gigabytes': state.num_bytes(current) / 1e9,
    'step_seconds': alone,
    'blocked_seconds': blocked,
    'step_while_writing_seconds': beside,
    'written_seconds': written,
    'longest_blocked_seconds': max(columns[1]),
    'steps_between': every,
    'blocked_share': blocked / (blocked + every * alone),
    'two_percent_at_step_seconds': blocked * 0.98 / 0.02 / every,
  }


def bench_load() -> dict[str, float]:
  """Seconds to load a BERT-Base of random weights from safetensors."""
  model = bert.Bert(vocab_size=30_522, **variants.BERT['bert-base'])
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: rng.standard_normal(leaf.shape, np.float32),
    nn.unbox(opened.abstract_params(model)),
  )

  def load(folder: pathlib.Path) -> None:
    jax.block_until_ready(opened.open_weights(folder).load())

  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder) / 'weights'
    hugging_face.write_folder(folder, model, params)
    size = sum(file.stat().st_size for file in folder.iterdir())
    jax.devices()  # the first time they are looked for
    times = [_timed(load, folder)[0] for _ in range(REPEATS)]
  return {
    'gigabytes': size / 1e9,
    'first_seconds': times[0],
    'seconds': statistics.median(times),
  }


def bench_first_step() -> dict[str, float]:
  """Seconds from the command to the first step, without and with a store."""
  figures = {}
  with tempfile.TemporaryDirectory() as folder:
    for label in ('cold_store', 'warm'):
      done = subprocess.run(
        [
          sys.executable,
          '-m',
          'train.main',
          '--config',
          'bert_tiny',
          f'--config.data.folder={folder}/store',
          '--workdir',
          f'{folder}/{label}',
          '--config.train.steps=1',
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {'JAX_PLATFORMS': 'cpu'},
      )
      if done.returncode:
        raise ChildProcessError(f'bert_tiny failed:\n{done.stderr}')
      line = next(
        line for line in done.stderr.splitlines() if 'First step' in line
      )
      figures[f'{label}_seconds'] = float(line.split()[-2])
  return figures
