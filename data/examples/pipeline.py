"""Host batches: a pure function of (store, seed, step), and loaders.

In `Permuted` example i of a phase lies in epoch i // num_windows, at the place
i % num_windows of a keyed permutation of the windows: a restart costs nothing,
an epoch sees every window once, the number of processes changes nothing. With
several languages, i is first split into a language and a number in it
(`interleaving`), and each language has epochs and permutations of its own.
"""

import abc
import collections
import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from data.examples import interleaving, permutation

Batch = dict[str, np.ndarray]
AHEAD = 8  # batches made in advance
Phase = Sequence[Any]  # steps, length, global batch ...

# Keep the uses of one seed apart, and from `permutation.ORDER`.
_PARTNER, _EVALUATION = 2, 3
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
    language: int | None,
  ) -> Iterator[Batch]:
    """Yields the batches of an evaluation; see `eval_batches`."""

  def check_text(self, batch_size: int) -> None:
    """Raises a ValueError if batches have too little text to learn from."""

  def describe_languages(self) -> dict[str, tuple[int, float]]:
    """Returns language -> (windows, share of training), if there are several.

    The share is of the examples of training.
    """


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
  length, batch_size = phases[phase][1:3]
  return examples[length].train_batch(
    step - first_step, rows, batch_size, seed, phase
  )


def eval_batches(
  examples: Examples,
  batch_size: int,
  max_windows: int,
  draws: int = 1,
  rows: np.ndarray | slice = ALL_ROWS,
  language: int | None = None,
) -> Iterator[Batch]:
  """Yields the batches of an evaluation, always the same ones.

  At most `max_windows` windows are scored, with `draws` rows each if examples
  are drawn at random; of one `language`, by number, or of all. A row with
  `example_mask` False holds nothing to score.
  """
  return examples.eval_batches(batch_size, max_windows, draws, rows, language)


class Permuted(abc.ABC):
  """Independent examples in the order of a keyed permutation."""

  def __init__(
    self, length: int, languages: Mapping[str, int], exponent: float
  ) -> None:
    """Plans the order.

    Args:
      length: tokens of an input.
      languages: number of windows of each language, which lie one language
        after the other; of a single language under any name.
      exponent: of the languages' shares, see `interleaving.Interleaving`.
    """
    self.length = length
    self._languages = tuple(languages)
    self._sizes = np.array(list(languages.values()), np.int64)
    # Language l has the windows `_bounds[l]` to `_bounds[l + 1]`.
    self._bounds = np.concatenate([[0], np.cumsum(self._sizes)])
    self.num_windows = int(self._bounds[-1])
    self._order = interleaving.Interleaving(self._sizes, exponent)

  @property
  def bounds(self) -> np.ndarray:
    """Int64 [L + 1]: the windows where each language begins, then all."""
    return self._bounds

  @abc.abstractmethod
  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Gathers examples by number, int64 [B]; `draws` are random, uint64 [B]."""

  def check_text(self, batch_size: int) -> None:
    """Raises a ValueError if a language has no text for its part of a batch."""
    for name, (size, share) in self.describe_languages().items():
      rows = int(np.ceil(share * batch_size))
      if size < rows:
        raise ValueError(
          f'language {name!r} has {size} training windows of {self.length}'
          f' tokens, expected {rows} or more, its share ({share:.1%}) of a'
          f' global batch of {batch_size}: bring more text, raise'
          ' data.language_exponent, or set a smaller train.global_batch'
        )

  def describe_languages(self) -> dict[str, tuple[int, float]]:
    """Returns language -> (windows, share of training), if there are several.

    The share is of the examples of training.
    """
    if len(self._languages) == 1:
      return {}
    pairs = zip(self._sizes.tolist(), self._order.shares.tolist(), strict=True)
    return dict(zip(self._languages, pairs, strict=True))

  def train_batch(
    self,
    step: int,
    rows: np.ndarray | slice,
    batch_size: int,
    seed: int,
    phase: int,
  ) -> Batch:
    """Returns a batch of training; an epoch has each window once."""
    if self.num_windows < batch_size:
      raise ValueError(
        f'{self.num_windows} training examples of length {self.length} are'
        f' fewer than a global batch of {batch_size}. Set a smaller'
        ' train.global_batch, or bring more text.'
      )
    numbers = step * batch_size + np.arange(batch_size)[rows]
    language, within = self._order.locate(numbers)
    size = self._sizes[language]
    key = (permutation.ORDER, seed, phase, within // size)
    if len(self._languages) > 1:
      key += (language,)
    place = permutation.permute(
      within % size, size, permutation.make_keys(*key)
    )
    draws = permutation.mix_bits(
      numbers, permutation.make_keys(_PARTNER, seed, phase)
    )
    batch = self.batch(self._bounds[language] + place, draws)
    batch['example_ids'] = (numbers % 2**31).astype(np.int32)
    batch['example_mask'] = np.ones(len(numbers), bool)
    return batch

  def eval_batches(
    self,
    batch_size: int,
    max_windows: int,
    draws: int,
    rows: np.ndarray | slice,
    language: int | None,
  ) -> Iterator[Batch]:
    """Yields all windows, or `max_windows` evenly spaced ones.

    `example_ids` number the draws; repeated rows, masked, fill the last batch.
    """
    begin, end = 0, self.num_windows
    if language is not None:
      begin, end = self._bounds[language : language + 2].tolist()
    scored = min(end - begin, max_windows)
    count = scored * draws
    numbers = begin + np.arange(count) // draws * (end - begin) // scored
    ids = numbers * draws + np.arange(count) % draws
    chances = permutation.mix_bits(ids, permutation.make_keys(_EVALUATION))
    for first in range(0, count, batch_size):
      place = first + np.arange(batch_size)[rows]
      mask = place < count
      place = np.minimum(place, count - 1)
      batch = self.batch(numbers[place], chances[place])
      batch['example_ids'] = (ids[place] % 2**31).astype(np.int32)
      batch['example_mask'] = mask
      yield batch


def _locate(phases: Sequence[Phase], step: int) -> tuple[int, int]:
  """Returns the number of a step's phase and the first step of that phase."""
  first_step = 0
  for number, phase in enumerate(phases):
    if first_step <= step < first_step + phase[0]:
      return number, first_step
    first_step += phase[0]
  raise ValueError(f'step {step}: the phases have steps 0..{first_step - 1}.')


@contextlib.contextmanager
def plain_batches(
  make_batch: Callable[[int], Batch],
  first_step: int,
  last_step: int,
) -> Iterator[Iterator[Batch]]:
  """Makes batches ahead of time in a thread, as `tf_batches` does."""
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    pending = collections.deque()

    def iterate() -> Iterator[Batch]:
      for step in range(first_step, last_step):
        pending.append(pool.submit(make_batch, step))
        if len(pending) > AHEAD:
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

  Yields batches up to `last_step`, which is excluded; `AHEAD` are made in
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
  ) -> None:
    self._make_batch = make_batch
    self._steps = (first_step, last_step)
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
    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')  # spares its import
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
    return batches.prefetch(AHEAD).with_options(options).as_numpy_iterator()
