"""What each system takes to read texts: vectors, classes of texts, tags.

Random parameters and texts: speed depends on sizes alone. Shapes: B text, T
token or word, D features.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from configs import variants
from data.vocabulary import characters
from models import bert, elmo, features, gpt
from models.elmo_tasks import bilstm_attention, bilstm_crf, words
from models.layers import Params
from models.task_model import TaskModel
from train.engine import sharding
from train.host import console
from train.vectors import length_batches

USES = ('vectors', 'classes', 'tags')
LENGTHS = (16, 64, 256, 512)
REPEATS = 3
NUM_CLASSES, NUM_TAGS = 2, 9
NUM_WORDS, WORD_DIM = 50_000, 300
MIB = 2**20


class Figures(NamedTuple):
  """A row of the table: what one system takes for one use and length.

  Attributes:
    system: its name.
    use: one of `USES`.
    length: T.
    one_ms: milliseconds of one text alone.
    batch: texts read together.
    texts_per_second: of such batches.
    mib: memory of that program: parameters, texts and what lies between.
  """

  system: str
  use: str
  length: int
  one_ms: float
  batch: int
  texts_per_second: float
  mib: float


class WordVectors(nn.Module):
  """A table of words, and the body of a task on it; without one their vectors.

  Attributes:
    body: of ELMo's task models, for one text.
  """

  body: nn.Module | None = None

  @nn.compact
  def __call__(self, rows_BT: jax.Array, mask_BT: jax.Array) -> jax.Array:
    """Returns [B, T, D], or what the body returns."""
    x_BTD = words.WordTable(NUM_WORDS, WORD_DIM, name='words')(rows_BT)
    if self.body is None:
      return x_BTD
    return self.body(x_BTD[:, None], mask_BT[:, None], train=False)


class Reader:
  """A system that reads texts: here, a table of words' vectors.

  Attributes:
    name: as shown.
    uses: those of `USES` that it has.
    num_ids: of tokens or words.
  """

  uses: tuple[str, ...] = USES[:1]

  def __init__(self, name: str, **sizes: Any):
    """Names a system; `sizes` are fields of its module."""
    self.name, self.sizes = name, sizes

  @property
  def num_ids(self) -> int:
    """How many tokens or words there are."""
    return NUM_WORDS

  def texts(self, batch: int, length: int) -> tuple[np.ndarray, ...]:
    """Returns random texts without padding: ids [B, T], a mask, and more."""
    rng = np.random.default_rng(0)
    ids_BT = rng.integers(5, self.num_ids, (batch, length), np.int32)
    return ids_BT, np.ones_like(ids_BT, bool)

  def module(self, use: str, dtype: str) -> nn.Module:
    """Returns the module, of a task with its head."""
    del use, dtype
    return WordVectors()

  def arguments(
    self, use: str, texts: Sequence[jax.Array]
  ) -> tuple[tuple, dict[str, bool]]:
    """Returns the arguments of the module for texts, and its keywords."""
    del use
    return tuple(texts), {}

  def result(self, use: str, outputs: Any) -> jax.Array:
    """Returns the states [B, T, D] of outputs, or a task's logits."""
    del use
    return outputs

  def read(
    self,
    use: str,
    module: nn.Module,
    variables: Params,
    texts: Sequence[jax.Array],
  ) -> jax.Array:
    """Returns vectors [B, D], the means over a text, or a task's logits."""
    arguments, options = self.arguments(use, texts)
    found = self.result(use, module.apply(variables, *arguments, **options))
    if use == 'vectors':
      return found.astype(jnp.float32).mean(axis=1)
    return found

  def draw(self, use: str, module: nn.Module, key: jax.Array) -> Params:
    """Returns random variables of a module."""
    arguments, options = self.arguments(use, self.texts(1, 8))
    return nn.unbox(module.init(key, *arguments, **options))


class Bilstm(Reader):
  """A BiLSTM of one layer on words' vectors: a student of Tang et al. 2019."""

  uses = USES[1:]

  def module(self, use: str, dtype: str) -> nn.Module:
    """Returns a classifier by maxima, or a tagger."""
    sizes = dict(lstm_dim=WORD_DIM, num_layers=1, dtype=jnp.dtype(dtype))
    return WordVectors(
      bilstm_attention.BilstmAttention(NUM_CLASSES, **sizes)
      if use == 'classes'
      else bilstm_crf.BilstmTagger(NUM_TAGS, **sizes)
    )


class Contextual(Reader):
  """A language model, and its head: ELMo's a BiLSTM on all frozen layers."""

  uses = USES
  head: Mapping[str, Any] = MappingProxyType({})

  def backbone(self, use: str, dtype: str) -> nn.Module:
    """Returns the module without a task's head."""
    raise NotImplementedError

  def module(self, use: str, dtype: str) -> nn.Module:
    """Returns the module, of a task with its head."""
    backbone = self.backbone(use, dtype)
    if use == 'vectors':
      return backbone
    outputs = (
      ('classifier', NUM_CLASSES)
      if use == 'classes'
      else ('token_classifier', NUM_TAGS)
    )
    return TaskModel(backbone, *outputs, dropout_rate=0.0, **self.head)

  def result(self, use: str, outputs: Any) -> jax.Array:
    """Returns the states [B, T, D] of outputs, or a task's logits."""
    return outputs['hidden' if use == 'vectors' else 'logits']


class Elmo(Contextual):
  """An ELMo, which reads each word's characters anew, as in a stream."""

  head = MappingProxyType(
    dict(features='mix', bilstm_layers=1, bilstm_dim=WORD_DIM, frozen=True)
  )

  def backbone(self, use: str, dtype: str) -> nn.Module:
    """Returns the module without its softmax."""
    del use
    return elmo.Elmo(vocab_size=0, dtype=jnp.dtype(dtype), **self.sizes)

  def texts(self, batch: int, length: int) -> tuple[np.ndarray, ...]:
    """Returns ids, a mask, and the words' characters, [B, T, 50]."""
    shape = batch, length, characters.MAX_CHARACTERS
    letters = np.random.default_rng(1).integers(1, 250, shape, np.int32)
    return *super().texts(batch, length), letters

  def arguments(
    self, use: str, texts: Sequence[jax.Array]
  ) -> tuple[tuple, dict[str, bool]]:
    """Returns the arguments of the module for texts, and its keywords."""
    ids_BT, mask_BT, letters_BTC = texts
    lengths_B = mask_BT.sum(axis=1)
    if use == 'vectors':
      return (letters_BTC, lengths_B), {}
    inputs = ids_BT, mask_BT, None, ids_BT, lengths_B - 1, letters_BTC
    return inputs, {'train': False}

  def result(self, use: str, outputs: Any) -> jax.Array:
    """Returns the last layer [B, T, D], or a task's logits."""
    return outputs[0][-1] if use == 'vectors' else outputs['logits']


class Gpt(Contextual):
  """A GPT."""

  num_ids = 40_478

  def backbone(self, use: str, dtype: str) -> nn.Module:
    """Returns the module."""
    del use
    return gpt.Gpt(self.num_ids, dtype=jnp.dtype(dtype), **self.sizes)

  def draw(self, use: str, module: nn.Module, key: jax.Array) -> Params:
    """Returns random variables, whose matrices are cast as `embed` does."""
    inner = module if use == 'vectors' else module.backbone
    return features.cast_weights(super().draw(use, module, key), inner.dtype)

  def types(self, zeros_BT: jax.Array, use: str) -> tuple:
    """Returns what stands before the positions."""
    del zeros_BT
    return () if use == 'vectors' else (None,)

  def arguments(
    self, use: str, texts: Sequence[jax.Array]
  ) -> tuple[tuple, dict[str, bool]]:
    """Returns the arguments of the module for texts, and its keywords."""
    ids_BT, mask_BT = texts
    zeros_BT = jnp.zeros_like(ids_BT)
    places_BT = zeros_BT + jnp.arange(ids_BT.shape[1])
    inputs = ids_BT, mask_BT, *self.types(zeros_BT, use), places_BT
    last = () if use == 'vectors' else (mask_BT.sum(axis=1) - 1,)
    return inputs + last, {'train': False}


class Bert(Gpt):
  """A BERT."""

  num_ids = 30_522

  def backbone(self, use: str, dtype: str) -> nn.Module:
    """Returns the module, with a pooler for classes."""
    heads = ('pooler',) if use == 'classes' else ()
    dtype = jnp.dtype(dtype)
    return bert.Bert(self.num_ids, heads=heads, dtype=dtype, **self.sizes)

  def types(self, zeros_BT: jax.Array, use: str) -> tuple:
    """Returns what stands before the positions."""
    del use
    return (zeros_BT,)


def _bert(num_layers: int, size: str = 'bert-base') -> Bert:
  sizes = variants.BERT[size] | {'num_layers': num_layers}
  return Bert(f'BERT, {num_layers} layers of {sizes["embed_dim"]}', **sizes)


SYSTEMS = (
  Reader('word vectors of 300'),
  Bilstm('BiLSTM of 2 x 300 on word vectors'),
  Elmo('ELMo, 1,024 cells', **variants.ELMO['elmo-small']),
  Elmo('ELMo, 4,096 cells, as published', **variants.ELMO['elmo']),
  Gpt('GPT, 12 layers of 768', **variants.GPT['gpt']),
  *map(_bert, (2, 3, 6, 12)),
  _bert(24, 'bert-large'),
)


def compiled(
  system: Reader,
  use: str,
  batch: int,
  length: int,
  dtype: str,
  target: jax.Device | None = None,
) -> jax.stages.Compiled:
  """Returns the program of (variables, texts), for our device or a `target`."""
  module, key = system.module(use, dtype), jax.random.key(0)
  # In the scope of its mesh a module is traced for the device's platform.
  with sharding.alone(target) as mesh:
    place = NamedSharding(mesh, PartitionSpec())

    def shaped(x: jax.Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
      return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)

    variables = jax.eval_shape(functools.partial(system.draw, use, module), key)
    program = jax.jit(functools.partial(system.read, use, module))
    texts = system.texts(batch, length)
    return program.lower(*jax.tree.map(shaped, (variables, texts))).compile()


def bench(topology: str | None, uses: str | None) -> dict[str, float]:
  """Measures every system, here or on a TPU chip that is not here.

  `uses` are some of `USES` with commas between. Prints a row a figure as it
  comes. Returns name -> figure; the names begin with system, use and length.
  """
  chosen = USES if uses is None else uses.split(',')
  for use in chosen:
    if use not in USES:
      raise ValueError(f'--uses {uses}: {use!r} is none of {", ".join(USES)}')
  found = {}
  for system in SYSTEMS:
    for use in (each for each in system.uses if each in chosen):
      rows = (
        measure(system, use, LENGTHS)
        if topology is None
        else estimate(system, use, LENGTHS, topology)
      )
      for row in rows:
        console.say(
          f'{row.system}, {row.use} of {row.length}: {row.one_ms:,.4g} ms'
          f' alone, {row.texts_per_second:,.4g} texts/s, {row.mib:,.0f} MiB'
        )
        key = f'{row.system} | {row.use} | {row.length} | '
        found[f'{key}ms alone'] = row.one_ms
        found[f'{key}texts a batch'] = row.batch
        found[f'{key}texts/s'] = row.texts_per_second
        found[f'{key}MiB'] = row.mib
  return found


def measure(
  system: Reader, use: str, lengths: Sequence[int]
) -> Iterator[Figures]:
  """Yields a system's figures for a use, on this machine's first device.

  In float32 on a CPU, else in bfloat16.
  """
  on_cpu = jax.default_backend() == 'cpu'
  tokens = length_batches.default_tokens()
  dtype = 'float32' if on_cpu else 'bfloat16'
  module = system.module(use, dtype)
  variables = jax.jit(functools.partial(system.draw, use, module))(
    jax.random.key(0)
  )
  for length in lengths:
    batch = max(1, tokens // length)
    seconds = {}
    for rows in sorted({1, batch}):
      program = compiled(system, use, rows, length, dtype)
      texts = jax.device_put(system.texts(rows, length))
      seconds[rows] = _seconds(lambda p=program, t=texts: p(variables, t))
      memory = program.memory_analysis()
    yield _row(system, use, length, seconds, memory)


def _row(
  system: Reader, use: str, length: int, seconds: dict[int, float], memory: Any
) -> Figures:
  """Returns the figures of programs, rows -> seconds; `memory` of the last."""
  batch = max(seconds)
  needed = memory.argument_size_in_bytes + memory.temp_size_in_bytes
  rate = batch / seconds[batch]
  one = 1e3 * seconds[1]
  return Figures(system.name, use, length, one, batch, rate, needed / MIB)


def _seconds(run: Callable[[], jax.Array]) -> float:
  """Returns the median seconds of a call, the first one apart."""
  times = []
  for _ in range(REPEATS + 1):
    began = time.perf_counter()
    jax.block_until_ready(run())
    times.append(time.perf_counter() - began)
  return statistics.median(times[1:])


def estimate(
  system: Reader, use: str, lengths: Sequence[int], topology_name: str
) -> Iterator[Figures]:
  """Yields a system's figures on one TPU chip by its compiler's clock.

  In bfloat16; see `train.slices.cycles`.
  """
  from train.slices import cycles, topology

  machine = topology.find(topology_name)
  target = machine.devices[0]
  for length in lengths:
    batch = max(1, length_batches.default_tokens('tpu') // length)
    seconds = {}
    for rows in sorted({1, batch}):
      program = compiled(system, use, rows, length, 'bfloat16', target)
      found = cycles.estimate(program.as_text(), target.num_cores)
      seconds[rows] = found.cycles / (machine.chip.clock_ghz * 1e9)
      memory = program.memory_analysis()
    yield _row(system, use, length, seconds, memory)
