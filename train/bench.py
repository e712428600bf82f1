"""Measures speed: python -m train.bench [NAME ...] prints a table and JSON.

NAMES: store, batches, step, gpt2_step, decoding, embedding, elmo_step,
elmo_embedding, finetune, squad_features, first_step, save, load, accelerator;
without one, all that the machine can run but save, load, embedding, the two of
ELMo and the two of labelled sets. `store` reads --text, a folder or glob of
running text, the two embeddings --trees, a folder of Stanford sentiment trees,
`finetune` and `squad_features` --data, a folder of MRPC's and SQuAD's, and
`embedding` and these two --weights, a BERT.
"""

# ruff: noqa: E402
from train import huge_pages

if __name__ == '__main__':
  huge_pages.restart_with()  # as train.main does

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from train import command, model_bench, reporting, rivals, task_bench


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
  from data import build, corpus, sentences, sources, tokenization

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
  from data import build, pairs, pipeline

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
  from train import checkpoint, state

  step, current, batch, _ = rivals.compiled_step(
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
    for number in range(rivals.REPEATS + 1):
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
  from train import opened

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
    for _ in range(rivals.REPEATS):
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


BENCHES = {
  'store': bench_store,
  'batches': bench_batches,
  'step': model_bench.bench_step,
  'gpt2_step': model_bench.bench_gpt2_step,
  'decoding': model_bench.bench_decoding,
  'embedding': model_bench.bench_embedding,
  'elmo_step': model_bench.bench_elmo_step,
  'elmo_embedding': model_bench.bench_elmo_embedding,
  'finetune': model_bench.bench_finetune,
  'squad_features': task_bench.bench_squad_features,
  'first_step': bench_first_step,
  'save': bench_save,
  'load': bench_load,
  'accelerator': model_bench.bench_accelerator,
}


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.bench', description=__doc__.partition('\n')[0]
  )
  parser.add_argument(
    'names', nargs='*', metavar='NAME', help=', '.join(BENCHES)
  )
  parser.add_argument('--text', help='folder or glob of running text for store')
  parser.add_argument(
    '--trees', help='folder of Stanford sentiment trees for the embeddings'
  )
  parser.add_argument(
    '--weights',
    metavar='FOLDER',
    help="of a BERT, as Hugging Face's library reads it, for embedding,"
    ' finetune and squad_features',
  )
  parser.add_argument(
    '--data', help='folder of labelled sets for finetune and squad_features'
  )
  parser.add_argument(
    '--sentences',
    type=int,
    metavar='N',
    help='embed so many, evenly spread (default: all)',
  )
  parser.add_argument('--output', help='JSON file for the figures')
  arguments = parser.parse_args()
  for name in arguments.names:
    if name not in BENCHES:
      parser.error(f'{name}: expected one of {", ".join(BENCHES)}')
  for name, option in (
    ('store', 'text'),
    ('elmo_embedding', 'trees'),
    ('embedding', 'trees'),
    ('embedding', 'weights'),
    ('finetune', 'data'),
    ('finetune', 'weights'),
    ('squad_features', 'data'),
    ('squad_features', 'weights'),
  ):
    if name in arguments.names and getattr(arguments, option) is None:
      parser.error(f'{name} needs --{option}')
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  names = arguments.names
  # PyTorch needs room on the same card.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  if not names:
    import jax

    on_cpu = jax.default_backend() == 'cpu'
    names = ['batches', 'step' if on_cpu else 'accelerator', 'gpt2_step']
    names += ['decoding', 'first_step']
    names += ['store'] if arguments.text else []
  from train import device

  trees = {'trees': arguments.trees, 'count': arguments.sentences}
  labelled = {'data': arguments.data, 'weights': arguments.weights}
  inputs = {
    'store': {'text': arguments.text},
    'elmo_embedding': trees,
    'embedding': trees | {'weights': arguments.weights},
    'finetune': labelled,
    'squad_features': labelled,
  }
  results: dict[str, Any] = {}
  for name in names:
    results[name] = BENCHES[name](**inputs.get(name, {}))
    rows = [(key, f'{value:,.4g}') for key, value in results[name].items()]
    reporting.table(rows, name)
  results['device'] = device.describe()
  results['revision'] = reporting.revision()
  options = [
    f'--{option} {value!r}'
    for option in ('text', 'trees', 'weights', 'data', 'sentences')
    if (value := getattr(arguments, option)) is not None
  ]
  results['command'] = ' '.join(['python -m train.bench', *names, *options])
  text = json.dumps(results, indent=2) + '\n'
  if arguments.output:
    pathlib.Path(arguments.output).write_text(text)
  print(text, end='')


if __name__ == '__main__':
  main()
