"""Measures speed: python -m train.bench [NAME ...] prints a table and JSON.

NAMES: store, batches, step, gpt2_step, decoding, first_step, save, accelerator;
without one, all that the machine can run but save. `store` reads --text, a
folder or glob of running text.
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

from train import command, reporting, rivals


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


def bench_store(text: str | None) -> dict[str, Any]:
  """Store build: tokens/s on running text and on one sentence a line."""
  from data import build, corpus, sentences, sources, tokenization

  if text is None:
    raise ValueError('store needs --text, a folder or glob of running text')
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


# ---- Training step ---------------------------------------------------------


def bench_step() -> dict[str, Any]:
  """BERT-Base step, 8 x 128, float32, beside Hugging Face on PyTorch."""
  shape = dict(batch=8, length=128, vocab_size=30_522)
  results: dict[str, Any] = {}
  for label, dropout in (('dropout', 0.1), ('no_dropout', 0.0)):
    ours = dict(
      size='bert-base',
      scan_layers=False,
      dropout_rate=dropout,
      attention_dropout_rate=dropout,
      **shape,
    )
    theirs = dict(size='bert-base', dropout=dropout, **shape)
    times = rivals.rival_times(
      {
        'ours': rivals.Rival(rivals.our_step, ours, huge_pages.VALUE),
        'hugging_face': rivals.Rival(rivals.their_step, theirs),
      }
    )
    for name, (seconds, _) in times.items():
      results[f'{label}_{name}_seconds'] = seconds
    seconds, flops = times['ours']
    results[f'{label}_speed_ratio'] = times['hugging_face'].seconds / seconds
    results[f'{label}_ours_model_gflop_per_second'] = flops / seconds / 1e9
  return results | _product_rates()


def _product_rates() -> dict[str, float]:
  """Returns GFLOP/s of both libraries' float32 matrix products."""
  times = rivals.rival_times(
    {
      'jax': rivals.Rival(rivals.jax_products, {}),
      'torch': rivals.Rival(rivals.torch_products, {}),
    }
  )
  return {
    f'{name}_matmul_gflop_per_second': flops / seconds / 1e9
    for name, (seconds, flops) in times.items()
  }


def bench_gpt2_step() -> dict[str, Any]:
  """GPT-2 step, 124 M, beside Hugging Face on PyTorch.

  4 x 256 in float32 on a CPU, 16 x 1024 in bfloat16 on an accelerator.
  """
  import jax

  from train import device

  accelerator = jax.default_backend() != 'cpu'
  batch, length = (16, 1024) if accelerator else (4, 256)
  shape = dict(size='gpt2', batch=batch, length=length)
  ours = shape | dict(
    vocab_size=50_257,
    scan_layers=accelerator,
    dtype='bfloat16' if accelerator else 'float32',
    dropout_rate=0.1,
    attention_dropout_rate=0.1,
  )
  times = rivals.rival_times(
    {
      'ours': rivals.Rival(rivals.our_step, ours, huge_pages.VALUE),
      'hugging_face': rivals.Rival(
        rivals.their_gpt2_step,
        shape | {'dropout': 0.1, 'accelerator': accelerator},
      ),
    },
    repeats=20 if accelerator else rivals.REPEATS,
  )
  results: dict[str, Any] = {
    f'{name}_seconds': seconds for name, (seconds, _) in times.items()
  }
  seconds, flops = times['ours']
  results['speed_ratio'] = times['hugging_face'].seconds / seconds
  results['ours_model_gflop_per_second'] = flops / seconds / 1e9
  if not accelerator:
    return results | _product_rates()
  peak = device.peak_tflops()
  for name, (seconds, _) in times.items():
    results[f'{name}_tokens_per_second'] = batch * length / seconds
    results[f'{name}_mfu'] = device.model_flops_utilisation(
      flops, seconds, peak, 1
    )
  return results


def bench_decoding() -> dict[str, Any]:
  """Greedy decoding by GPT-2, 124 M, beside Hugging Face's generate."""
  import jax

  accelerator = jax.default_backend() != 'cpu'
  results: dict[str, Any] = {}
  new_tokens = 128
  for batch in (1, 8, 64) if accelerator else (1, 8):
    options = dict(size='gpt2', batch=batch, new_tokens=new_tokens)
    dtype = 'bfloat16' if accelerator else 'float32'
    times = rivals.rival_times(
      {
        'ours': rivals.Rival(
          rivals.our_decoding, options | {'dtype': dtype}, huge_pages.VALUE
        ),
        'hugging_face': rivals.Rival(
          rivals.their_decoding, options | {'accelerator': accelerator}
        ),
      }
    )
    for name, (seconds, _) in times.items():
      rate = batch * new_tokens / seconds
      results[f'batch_{batch}_{name}_tokens_per_second'] = rate
    results[f'batch_{batch}_speed_ratio'] = (
      times['hugging_face'].seconds / times['ours'].seconds
    )
  return results | ({} if accelerator else _product_rates())


def bench_accelerator() -> dict[str, Any]:
  """BERT-Base and Large in bfloat16, beside Hugging Face on the same card."""
  import jax

  from train import device

  if jax.default_backend() == 'cpu':
    raise ValueError('accelerator: JAX sees only the CPU')
  peak = device.peak_tflops()
  results: dict[str, Any] = {}
  for size, length, batch in (
    ('bert-base', 128, 256),
    ('bert-base', 512, 64),
    ('bert-large', 128, 128),
    ('bert-large', 512, 32),
  ):
    shape = dict(size=size, batch=batch, length=length, vocab_size=30_522)
    options = shape | {'dtype': 'bfloat16'}
    timed = {'ours': rivals.Rival(rivals.our_step, options, huge_pages.VALUE)}
    if jax.default_backend() == 'gpu':
      options = shape | {'dropout': 0.1, 'accelerator': True}
      timed['hugging_face'] = rivals.Rival(rivals.their_step, options)
    times = rivals.rival_times(timed, repeats=20)
    for name, (seconds, _) in times.items():
      label = f'{size}_{length}_{name}'
      results[f'{label}_tokens_per_second'] = batch * length / seconds
      results[f'{label}_mfu'] = device.model_flops_utilisation(
        times['ours'].flops, seconds, peak, 1
      )
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
  'step': bench_step,
  'gpt2_step': bench_gpt2_step,
  'decoding': bench_decoding,
  'first_step': bench_first_step,
  'save': bench_save,
  'accelerator': bench_accelerator,
}


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.bench', description=__doc__.partition('\n')[0]
  )
  parser.add_argument(
    'names', nargs='*', metavar='NAME', help=', '.join(BENCHES)
  )
  parser.add_argument('--text', help='running text for store')
  parser.add_argument('--output', help='JSON file for the figures')
  arguments = parser.parse_args()
  for name in arguments.names:
    if name not in BENCHES:
      parser.error(f'{name}: expected one of {", ".join(BENCHES)}')
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

  results: dict[str, Any] = {}
  for name in names:
    options = {'text': arguments.text} if name == 'store' else {}
    results[name] = BENCHES[name](**options)
    rows = [(key, f'{value:,.4g}') for key, value in results[name].items()]
    reporting.table(rows, name)
  results['device'] = device.describe()
  results['revision'] = reporting.revision()
  text = ['--text', repr(arguments.text)] if arguments.text else []
  results['command'] = ' '.join(['python -m train.bench', *names, *text])
  text = json.dumps(results, indent=2) + '\n'
  if arguments.output:
    pathlib.Path(arguments.output).write_text(text)
  print(text, end='')


if __name__ == '__main__':
  main()
