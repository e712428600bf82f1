"""Host batches: a pure function of (store, seed, step), and loaders.

In `Permuted` example i of a phase lies in epoch i // num_windows, at the place
i % num_windows of a keyed permutation of the windows: a restart costs nothing,
an epoch sees every window once, the number of processes changes nothing.
"""

import abc
import collections
import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Batch = dict[str, np.ndarray]
Phase = tuple[int, int, int, str]  # steps, length, global batch, schedule

# Keep the uses of one seed apart.
_ORDER, _PARTNER, _EVALUATION = 1, 2, 3
_FEISTEL_ROUNDS = 6
ALL_ROWS = slice(None)


class Examples(Protocol):
  """One split of a store: `num_windows` examples for inputs of `length`."""

  length: int
  num_windows: int

  def train_batch(
    self,
    step: int,
    rows: np.ndarray | slice,
    batch_size: int,
    seed: int,
    phase: int,
  ) -> Batch:
    """Returns a host batch; `step` counts from the first step of `phase`."""

  def eval_batches(
    self,
    batch_size: int,
    max_windows: int,
    draws: int,
    rows: np.ndarray | slice,
  ) -> Iterator[Batch]:
    """Yields the batches of an evaluation; see `eval_batches`."""

  def check(self) -> None:
    """Raises a ValueError if the text offers nothing to learn."""


def train_batch(
  examples: Mapping[int, Examples],
  phases: Sequence[Phase],
  seed: int,
  step: int,
  rows: np.ndarray | slice = ALL_ROWS,
) -> Batch:
  """Returns `rows` of the global batch of one training step.

  `examples` are by length, one for each length in `phases`; `step` counts from
  the start of the run. The batch also has `example_ids` int32 [B] (the number
  in the phase modulo 2^31) and `example_mask` bool [B], all True. Raises
  ValueError if `step` lies outside the phases, or there are too few examples.
  """
  phase, first_step = _locate(phases, step)
  _, length, batch_size, _ = phases[phase]
  return examples[length].train_batch(
    step - first_step, rows, batch_size, seed, phase
  )


def eval_batches(
  examples: Examples,
  batch_size: int,
  max_windows: int,
  draws: int = 1,
  rows: np.ndarray | slice = ALL_ROWS,
) -> Iterator[Batch]:
  """Yields the batches of an evaluation, always the same ones.

  At most `max_windows` windows are scored, with `draws` rows each if examples
  are drawn at random. A row with `example_mask` False holds nothing to score.
  """
  return examples.eval_batches(batch_size, max_windows, draws, rows)


class Permuted(abc.ABC):
  """Independent examples in the order of a keyed permutation."""

  length: int
  num_windows: int

  @abc.abstractmethod
  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Gathers examples by number, int64 [B]; `draws` are random, uint64 [B]."""

  def train_batch(
    self,
    step: int,
    rows: np.ndarray | slice,
    batch_size: int,
    seed: int,
    phase: int,
  ) -> Batch:
    """Returns a batch of training; every epoch has each window once."""
    size = self.num_windows
    if size < batch_size:
      raise ValueError(
        f'{size} training examples of length {self.length} are fewer than a'
        f' global batch of {batch_size}. Set a smaller train.global_batch, or'
        ' bring more text.'
      )
    numbers = step * batch_size + np.arange(batch_size)[rows]
    epochs = numbers // size
    chosen = np.empty_like(numbers)
    for epoch in np.unique(epochs):
      here = epochs == epoch
      key = order_key(seed, phase, int(epoch))
      chosen[here] = permute(numbers[here] % size, size, key)
    draws = _hash(numbers, _make_key(_PARTNER, seed, phase))
    batch = self.batch(chosen, draws)
    batch['example_ids'] = (numbers % 2**31).astype(np.int32)
    batch['example_mask'] = np.ones(len(numbers), bool)
    return batch

  def eval_batches(
    self,
    batch_size: int,
    max_windows: int,
    draws: int,
    rows: np.ndarray | slice,
  ) -> Iterator[Batch]:
    """Yields all windows, or `max_windows` evenly spaced ones.

    `example_ids` number the draws; repeated rows, masked, fill the last batch.
    """
    size = self.num_windows
    scored = min(size, max_windows)
    count = scored * draws
    numbers = np.arange(count) // draws * size // scored
    ids = numbers * draws + np.arange(count) % draws
    chances = _hash(ids, _make_key(_EVALUATION))
    for first in range(0, count, batch_size):
      place = first + np.arange(batch_size)[rows]
      mask = place < count
      place = np.minimum(place, count - 1)
      batch = self.batch(numbers[place], chances[place])
      batch['example_ids'] = (ids[place] % 2**31).astype(np.int32)
      batch['example_mask'] = mask
      yield batch


def order_key(seed: int, phase: int, epoch: int) -> int:
  """Returns the key of the permutation that orders an epoch's examples."""
  return _make_key(_ORDER, seed, phase, epoch)


def permute(indices: np.ndarray, size: int, key: int) -> np.ndarray:
  """Maps indices, int64 of any shape, through a permutation of range(size).

  A Feistel network on the smallest power of two that holds the size; results
  outside are mapped again. `key` is in range(2^64).
  """
  shape = np.shape(indices)
  values = np.array(indices, np.uint64).reshape(-1)
  bits = (size - 1).bit_length()
  low_bits = np.uint64(bits - bits // 2)
  low_mask = np.uint64((1 << int(low_bits)) - 1)
  high_mask = np.uint64((1 << bits // 2) - 1)
  keys = [_make_key(key, number) for number in range(_FEISTEL_ROUNDS)]
  todo = np.arange(len(values))
  while len(todo):
    value = values[todo]
    high, low = value >> low_bits, value & low_mask
    for number, round_key in enumerate(keys):
      if number % 2:
        low ^= _hash(high, round_key) & low_mask
      else:
        high ^= _hash(low, round_key) & high_mask
    value = high << low_bits | low
    values[todo] = value
    todo = todo[value >= size]
  return values.astype(np.int64).reshape(shape)


def _locate(phases: Sequence[Phase], step: int) -> tuple[int, int]:
  """Returns the number of a step's phase and the first step of that phase."""
  first_step = 0
  for number, phase in enumerate(phases):
    if first_step <= step < first_step + phase[0]:
      return number, first_step
    first_step += phase[0]
  raise ValueError(f'step {step}: the phases have steps 0..{first_step - 1}.')


def _make_key(*parts: int) -> int:
  key = 0
  for part in parts:
    key = int(_hash(np.array([part % 2**64], np.uint64), key)[0])
  return key


def _hash(values: np.ndarray, key: int) -> np.ndarray:
  """Returns uint64 hashes; splitmix64 (Steele et al. 2014) of both in turn."""
  mixed = np.asarray(values).astype(np.uint64)
  for addend in (key, 0):
    mixed = mixed + np.uint64((addend + 0x9E3779B97F4A7C15) % 2**64)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
  return mixed


@contextlib.contextmanager
def plain_batches(
  make_batch: Callable[[int], Batch],
  first_step: int,
  last_step: int,
  *,
  ahead: int = 8,
) -> Iterator[Iterator[Batch]]:
  """Makes batches ahead of time in a thread, as `tf_batches` does."""
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    pending = collections.deque()

    def iterate() -> Iterator[Batch]:
      for step in range(first_step, last_step):
        pending.append(pool.submit(make_batch, step))
        if len(pending) > ahead:
          yield pending.popleft().result()
      while pending:
        yield pending.popleft().result()

    try:
      yield iterate()
    finally:
      pool.shutdown(cancel_futures=True)


class tf_batches:  # noqa: N801, a context manager used like a function
  """Runs `make_batch` ahead of time in a tf.data pipeline.

      with tf_batches(make_batch, 0, 1000) as batches:
        for batch in batches:

  Yields batches up to `last_step`, which is excluded; `ahead` are made in
  advance. Names and dtypes are the same at every step, shapes need not be. An
  exception in `make_batch` is raised as it is. The pipeline lives as long as
  the with block: if it is alive when the program ends, it waits for the
  interpreter's lock for ever.
  """

  def __init__(
    self,
    make_batch: Callable[[int], Batch],
    first_step: int,
    last_step: int,
    *,
    ahead: int = 8,
  ) -> None:
    self._make_batch = make_batch
    self._steps = (first_step, last_step)
    self._ahead = ahead
    self._names: list[str] = []
    self._failures: dict[int, Exception] = {}
    self._iterator: Iterator[Any] = iter(())

  def __enter__(self) -> 'tf_batches':
    if self._steps[0] < self._steps[1]:
      self._iterator = self._make_iterator()
    return self

  def __exit__(self, *_: object) -> None:
    self._iterator = iter(())

  def __iter__(self) -> 'tf_batches':
    return self

  def __next__(self) -> Batch:
    try:
      return dict(zip(self._names, next(self._iterator), strict=True))
    except StopIteration:
      raise
    except BaseException as error:
      # TensorFlow's frames would keep the pipeline alive.
      failure = error.with_traceback(None)
    if self._failures and isinstance(failure, Exception):
      failure = self._failures[min(self._failures)]
    raise failure

  def _make_iterator(self) -> Iterator[Any]:
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
    # TensorFlow only moves arrays here; this spares its message about oneDNN.
    os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '0')
    import tensorflow as tf

    tf.config.set_visible_devices([], 'GPU')  # they are JAX's
    # One batch here tells names and dtypes, and fails early.
    example = self._make_batch(self._steps[0])
    self._names = list(example)
    dtypes = [array.dtype for array in example.values()]
    make_batch, names, failures = self._make_batch, self._names, self._failures

    def make(step: np.int64) -> list[np.ndarray]:
      try:
        batch = make_batch(int(step))
        return [batch[name] for name in names]
      except Exception as error:
        failures[int(step)] = error
        raise

    steps = tf.data.Dataset.range(*self._steps)
    batches = steps.map(
      lambda step: tuple(tf.numpy_function(make, [step], dtypes)),
      num_parallel_calls=min(4, os.cpu_count() or 1),
      deterministic=True,
    )
    options = tf.data.Options()
    # Nothing is left to tune, and the tuner sleeps up to a minute at the end.
    options.autotune.enabled = False
    return (
      batches.prefetch(self._ahead).with_options(options).as_numpy_iterator()
    )
