"""Benches of the host's work and of the command."""

# ruff: noqa: E402
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data.inputs import batches
from data.scoring import kinds
from data.tasks import registry
from data.tasks.examples import Example, Task
from data.vocabulary import tokenization
from data.vocabulary.tokenization import WordPiece
from train.benches import ours, timing

MAX_LENGTH = 384  # of SQuAD (google-research/bert, README)


BATCH_SIZE = 32


def bench_squad_features(data: str, weights: str) -> dict[str, Any]:
  """Seconds in which SQuAD 1.1's training set becomes windows of 384 tokens.

  Args:
    data: folder of the labelled sets.
    weights: a folder with a BERT's vocabulary.
  """
  task = registry.find('squad1')
  began = time.perf_counter()
  examples = registry.load(task, data, 'train')
  seconds = time.perf_counter() - began
  tokenizer = tokenization.load(pathlib.Path(weights))
  found = squad_features_seconds(task, examples, tokenizer)
  return found | {'read_seconds': seconds}


def squad_features_seconds(
  task: Task, examples: Sequence[Example], tokenizer: WordPiece
) -> dict[str, Any]:
  """Measures questions on their way to batches, after they are read.

  Args:
    task: of spans, such as SQuAD.
    examples: questions; the 87,599 of SQuAD 1.1's training set for the figure
      that is reported.
    tokenizer: of a BERT.

  Returns:
    `questions`, `features` (windows) and `tokens`; `seconds` in which one
    became the other; `batch_ms`, milliseconds of a batch of 32 in an epoch.
  """
  began = time.perf_counter()
  features = kinds.encode(task, examples, tokenizer, MAX_LENGTH)
  seconds = time.perf_counter() - began
  made = batches.Batches(
    features, pad_id=tokenizer.pad_id, max_length=MAX_LENGTH
  )
  steps = max(1, len(features) // BATCH_SIZE)
  began = time.perf_counter()
  for step in range(steps):
    made.train_batch(step, slice(None), BATCH_SIZE, 0, steps)
  return {
    'questions': len(examples),
    'features': len(features),
    'tokens': len(features.tokens),
    'seconds': seconds,
    'batch_ms': 1e3 * (time.perf_counter() - began) / steps,
  }


class PeakMemory:
  """Measures the peak resident memory of this process tree, in bytes."""

  def __enter__(self) -> 'PeakMemory':
    import psutil

    self.peak, self._ended = 0, threading.Event()
    this = psutil.Process()

    def watch() -> None:
      while not self._ended.wait(0.05):
        total = 0
        for process in (this, *this.children(recursive=True)):
          try:
            total += process.memory_info().rss
          except psutil.NoSuchProcess:
            continue
        self.peak = max(self.peak, total)

    self._thread = threading.Thread(target=watch, daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._ended.set()
    self._thread.join()


# ---- Text to tokens --------------------------------------------------------


def bench_store(text: str) -> dict[str, Any]:
  """Store build: tokens/s on running text and on one sentence a line."""
  from data.store import build, corpus
  from data.text import sentences, sources
  from data.vocabulary import tokenization

  results: dict[str, Any] = {}
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    with PeakMemory() as memory:
      start = time.perf_counter()
      build.build_store(
        text, 'train:wordpiece:8000', folder / 'vocab', progress=False
      )
      vocabulary_seconds = time.perf_counter() - start
      vocabulary = folder / 'vocab' / 'vocab.txt'
      start = time.perf_counter()
      build.build_store(text, str(vocabulary), folder / 'a', progress=False)
      running_seconds = time.perf_counter() - start
    lines = folder / 'lines.txt'
    split: list[str] = []
    with lines.open('w') as file:
      for piece in sources.open_source(text).pieces():
        found = sentences.split_sentences(piece.text)
        file.write('\n'.join(found) + '\n')
        if piece.ends_document:
          file.write('\n')
        if len(split) < 200_000:
          split += found
    start = time.perf_counter()
    build.build_store(
      str(lines),
      str(vocabulary),
      folder / 'b',
      document_break='blank_line',
      progress=False,
    )
    lines_seconds = time.perf_counter() - start
    tokens = {
      name: corpus.open_store(folder / name).num_tokens for name in ('a', 'b')
    }
    wordpiece = tokenization.load(vocabulary)
    start = time.perf_counter()
    bare = sum(map(len, wordpiece.encode_batch(split)))
    bare_seconds = time.perf_counter() - start
  results['running_tokens_per_second'] = tokens['a'] / running_seconds
  results['lines_tokens_per_second'] = tokens['b'] / lines_seconds
  results['bare_tokenizer_tokens_per_second'] = bare / bare_seconds
  results['lines_share_of_bare'] = (
    results['lines_tokens_per_second']
    / results['bare_tokenizer_tokens_per_second']
  )
  results['with_vocabulary_seconds'] = vocabulary_seconds
  results['peak_gigabytes'] = memory.peak / 1e9
  return results


# ---- Tokens to batches -----------------------------------------------------


def bench_batches() -> dict[str, Any]:
  """Host batches of the embedded text: sequences/s at length 128 and 512."""
  from data.examples import pairs, pipeline
  from data.store import build

  results = {}
  with tempfile.TemporaryDirectory() as folder:
    store = build.ensure_store(
      'manual', 'train:wordpiece:6000', pathlib.Path(folder) / 'manual'
    )
    for length, batch in ((128, 256), (512, 256)):
      examples = {length: pairs.Examples(store, length, held_out=False)}
      count = 400 if length == 128 else 100
      phases = ((count + 1, length, batch, 'continue'),)
      make = functools.partial(pipeline.train_batch, examples, phases, 0)
      for name, load in (
        ('plain', pipeline.plain_batches),
        ('tf', pipeline.tf_batches),
      ):
        with load(make, 0, count) as batches:
          next(batches)
          start = time.perf_counter()
          done = sum(1 for _ in batches)
          seconds = time.perf_counter() - start
        rate = done * batch / seconds
        results[f'{name}_{length}_sequences_per_second'] = rate
  return results


# ---- Checkpoints -----------------------------------------------------------


def bench_save() -> dict[str, Any]:
  """Seconds that the loop waits for a save of BERT-Base, beside a step's.

  The step is of 8 x 128 tokens. `blocked_share` is the share of the time at the
  default interval, at whose end the save before has long ended.
  """
  import jax

  from configs import base
  from train.engine import state
  from train.run import checkpoint

  step, current, batch, _ = ours.compiled_step(
    'bert-base', batch=8, length=128, vocab_size=30_522, scan_layers=False
  )
  times: dict[str, list[float]] = {}

  def measure(name: str, work: Callable[..., Any], *arguments: Any) -> Any:
    start = time.perf_counter()
    result = jax.block_until_ready(work(*arguments))
    times.setdefault(name, []).append(time.perf_counter() - start)
    return result

  with (
    tempfile.TemporaryDirectory() as folder,
    checkpoint.Checkpoints(folder, keep=1) as checkpoints,
  ):
    for number in range(timing.REPEATS + 1):
      if number == 1:
        times.clear()  # the first of each is a warm-up
      current, _ = measure('step', step, current, batch)
      start = time.perf_counter()
      measure('blocked', checkpoints.save, number, current)
      current, _ = measure('step_while_writing', step, current, batch)
      checkpoints.finish()
      times.setdefault('written', []).append(time.perf_counter() - start)
  seconds = {name: statistics.median(values) for name, values in times.items()}
  every = base.get_config().train.checkpoint_every
  blocked = seconds['blocked']
  return {
    'state_gigabytes': state.num_bytes(current) / 1e9,
    **{f'{name}_seconds': value for name, value in seconds.items()},
    'longest_blocked_seconds': max(times['blocked']),
    'steps_between': every,
    'blocked_share': blocked / (blocked + every * seconds['step']),
    'two_percent_at_step_seconds': blocked * 0.98 / 0.02 / every,
  }


# ---- Published weights -----------------------------------------------------


def bench_load() -> dict[str, Any]:
  """Seconds to load a BERT-Base of random weights from safetensors."""
  import jax
  from flax import linen as nn

  from configs import variants
  from models import bert
  from models.pretrained import hugging_face, published
  from train.params import opened

  model = bert.Bert(vocab_size=30_522, **variants.BERT['bert-base'])
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: rng.standard_normal(leaf.shape, np.float32),
    nn.unbox(opened.abstract_params(model)),
  )
  times = []
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder) / 'weights'
    hugging_face.write_folder(folder, model, params)
    size = sum(file.stat().st_size for file in folder.iterdir())
    jax.devices()  # the first time they are looked for
    for _ in range(timing.REPEATS):
      start = time.perf_counter()
      found = published.open_folder(folder)
      loaded = found.load(lambda path, array: jax.device_put(array))
      jax.block_until_ready(loaded)
      times.append(time.perf_counter() - start)
      del loaded
  return {
    'gigabytes': size / 1e9,
    'first_seconds': times[0],
    'seconds': statistics.median(times),
  }


# ---- The command -----------------------------------------------------------


def bench_first_step() -> dict[str, Any]:
  """Seconds from the command to the first step, with a warm cache."""
  results = {}
  with tempfile.TemporaryDirectory() as folder:
    for label in ('cold_store', 'warm'):
      done = subprocess.run(
        [
          *(sys.executable, '-m', 'train.main', '--config', 'bert_tiny'),
          f'--config.data.folder={folder}/store',
          *('--workdir', f'{folder}/{label}', '--config.train.steps=1'),
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
      results[f'{label}_seconds'] = float(line.split()[-2])
  return results
