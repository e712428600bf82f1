"""word2vec: learns word vectors by predicting neighbours (skip-gram, CBOW)."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from configs.sections import words as words_section
from data.examples import noise, sampled_words
from data.store.corpus import Store
from data.vocabulary.word2vec import huffman, ngrams
from models import layers
from models.layers import Params
from models.word2vec import batched, blocks, in_order, word_parts
from models.word2vec.batched import Tables
from models.word2vec.word_parts import Parts
from train.architectures import word_tables
from train.architectures.architecture import (
  Architecture,
  TextObjective,
  Vocabulary,
)
from train.engine.steps import Batch, Outputs, Sums
from train.engine.updates import RowUpdates
from train.host import processes
from train.run import settings, training_phases

ORDERS = ('batched', 'sequential')
_BLOCK = 10_000  # words whose parts are summed at once


def check_word2vec(config: ml_collections.ConfigDict) -> None:
  """Checks the keys that only word2vec has."""
  model, objective = config.model, config.objective
  ensure = functools.partial(settings.expect, config)
  word_tables.check_bounds(
    config,
    ('model.window', 1, blocks.BLOCK),
    ('model.negative', 0, np.inf),
    ('model.buckets', 0, 2**31 - 1),
    ('objective.sample', 0, 1),
    ('objective.most_pairs', 1, np.inf),
  )
  ensure(
    model.negative > 0 or model.hierarchical,
    'model.negative',
    '1 or more, or model.hierarchical=True: nothing would be learnt',
  )
  sizes = model.part_sizes
  ensure(
    isinstance(sizes, tuple | list)
    and len(sizes) == 2
    and all(isinstance(size, int) for size in sizes)
    and 1 <= sizes[0] <= sizes[1],
    'model.part_sizes',
    'two sizes, 1 or more, the smaller first',
  )
  ensure(
    not model.buckets
    or (config.train.objective, objective.order) == ('skipgram', 'batched'),
    'model.buckets',
    "0, or train.objective='skipgram' with objective.order='batched'",
  )
  ensure(objective.order in ORDERS, 'objective.order', f'one of {ORDERS}')
  word_tables.check_tables(config, 'sgd')
  for phase in training_phases.check_phases(config):
    if phase.length % blocks.BLOCK:
      raise ValueError(
        f'train.phases: length {phase.length}, expected a multiple of'
        f' {blocks.BLOCK}, the words that share sampled words'
      )


def build_model(
  model_config: ml_collections.ConfigDict, vocab_size: int
) -> batched.Word2Vec:
  """Returns the module of a config."""
  return batched.Word2Vec(
    vocab_size=vocab_size,
    embed_dim=model_config.embed_dim,
    kind='skipgram',
    window=model_config.window,
    negative=model_config.negative,
    hierarchical=model_config.hierarchical,
    buckets=model_config.buckets,
    part_sizes=tuple(model_config.part_sizes),
  )


class Pairs(RowUpdates, TextObjective):
  """Pairs of neighbours: which words of a text stand near which."""

  kind: str  # of `batched.Word2Vec`
  loss_names = ('pair',)

  def __init__(
    self, config: ml_collections.ConfigDict, length: int, vocabulary: Vocabulary
  ):
    super().__init__(config, length, vocabulary)
    word_tables.check_vocabulary(config, vocabulary)
    self.num_updates = config.objective.updates
    self._one_by_one = config.objective.order == 'sequential'
    model = build_model(config.model, vocabulary.size)
    self._model = model = self.with_heads(model)
    self._counts = _counts(vocabulary, config.objective.min_count)
    self._sampled = noise.alias(_sampled(model, self._counts))
    self._tree = huffman.build(self._counts) if model.hierarchical else None
    self._parts = None
    if model.buckets:
      self._parts = _parts(model, vocabulary, self._counts)

  @classmethod
  def with_heads(cls, model: batched.Word2Vec) -> batched.Word2Vec:
    """Returns the model of this kind of pairs."""
    return model.clone(kind=cls.kind)

  @classmethod
  def open_examples(
    cls,
    config: ml_collections.ConfigDict,
    store: Store,
    length: int,
    **options: bool,
  ) -> sampled_words.SampledWordExamples:
    """Opens the words of a split, frequent ones thinned."""
    wanted = config.objective
    return sampled_words.SampledWordExamples(
      store,
      length,
      sample=wanted.sample,
      min_count=wanted.min_count,
      **options,
    )

  batch_shapes = staticmethod(sampled_words.batch_shapes)
  token_counts = staticmethod(
    functools.partial(sampled_words.word_counts, min_count=1)
  )

  def transform(
    self, host_batch: Batch, keys_B: jax.Array
  ) -> dict[str, jax.Array]:
    """Returns words with the reach of their windows and sampled words."""
    model, tree = self._model, self._tree
    tokens = host_batch['tokens']
    batch = {name: host_batch[name] for name in ('segments', 'example_mask')}
    batch['tokens'] = tokens
    keys = jax.vmap(functools.partial(jax.random.split, num=3))(keys_B)

    def draw(number: int, take: Callable[[jax.Array], jax.Array]) -> jax.Array:
      return jax.vmap(take)(keys[:, number])

    def randint(key: jax.Array) -> jax.Array:
      return jax.random.randint(key, (self.length,), 1, model.window + 1)

    batch['reach'] = draw(0, randint)
    if model.negative:
      shape = self.length // blocks.BLOCK, batched.NUM_SAMPLES[self.kind]
      batch['samples'] = draw(1, lambda key: self._sampled.draw(key, shape))
    if self._one_by_one and model.negative:
      per_word = 2 * model.window if self.kind == 'skipgram' else 1
      each = self.length, per_word, model.negative
      batch['draws'] = draw(2, lambda key: self._sampled.draw(key, each))
    if tree is not None:
      batch['paths'] = jnp.asarray(tree.paths)[tokens]
      batch['turns'] = jnp.asarray(tree.turns)[tokens]
    return batch

  def inputs(self, batch: Batch) -> tuple:
    """Returns the inputs of `batched.Word2Vec`."""
    batch = batch | {'parts': self._parts}
    return tuple(batch.get(name) for name in batched.INPUTS)

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the loss of pairs."""
    mask = batch['example_mask']
    found = [jnp.sum(outputs[name] * mask) for name in ('loss', 'pairs')]
    return {'pair': tuple(found)}, {}

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns the number of pairs, at least 1."""
    counts = batched.count_pairs(self._model, batch)
    return {'pair': jnp.maximum(jnp.sum(counts * batch['example_mask']), 1)}

  def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns the words, and which of them are words."""
    return batch['tokens'], batch['segments'] >= 0

  def update(
    self,
    params: Params,
    statistics: optax.OptState,
    batch: Batch,
    rate: jax.Array,
    good: jax.Array,
  ) -> tuple[Params, optax.OptState, jax.Array]:
    """Returns the tables with changed rows, see `RowUpdates.update`."""
    tables = {
      name: table
      for name, nested in params.items()
      for table in nested.values()
    }
    change = self._in_order if self._one_by_one else self._together
    tables, square = change(tables, batch, rate, good)
    return _params(tables), statistics, square

  def _in_order(
    self, tables: Tables, batch: Batch, rate: jax.Array, good: jax.Array
  ) -> tuple[Tables, jax.Array]:
    """Changes the rows pair by pair, as the released program."""
    new = in_order.update(self._model, tables, batch, rate)
    squares = [jnp.sum((new[k] - tables[k]) ** 2) for k in tables]
    ok = good & jnp.isfinite(sum(squares))
    new = {k: jnp.where(ok, new[k], tables[k]) for k in tables}
    return new, sum(squares) / rate**2

  def _together(
    self, tables: Tables, batch: Batch, rate: jax.Array, good: jax.Array
  ) -> tuple[Tables, jax.Array]:
    """Changes the rows by the sums of all pairs' gradients."""
    model, parts = self._model, self._parts
    rows = batched.gradients(model, tables, batch | {'parts': parts})
    square = 0.0
    for table, ids, deltas in rows:
      squares = jnp.sum(deltas * deltas, axis=-1)
      if table == 'buckets':
        squares *= jnp.asarray(parts.counts)[ids]
      square += jnp.sum(squares)
    rate = jnp.where(good & jnp.isfinite(square), rate, 0.0)
    for table, ids, deltas in rows:
      scale = jnp.asarray(
        row_scales(
          model,
          table,
          batch['tokens'].size,
          self._counts,
          self._tree,
          parts,
          self.config.objective,
        )
      )
      deltas = jnp.where(rate > 0, rate * deltas, 0.0)
      if table == 'buckets':
        tables[table] = word_parts.add_to_rows(
          tables[table], ids, deltas, scale, parts
        )
      else:
        deltas *= scale[ids][..., None]
        tables[table] = (
          tables[table].at[ids].add(deltas, mode='promise_in_bounds')
        )
    return tables, square


class SkipGram(Pairs):
  """Each word predicts its neighbours."""

  kind = 'skipgram'


class Cbow(Pairs):
  """The mean of its neighbours predicts a word."""

  kind = 'cbow'


def _params(tables: Tables) -> Params:
  return {
    name: {'rows' if name == 'buckets' else 'embedding': table}
    for name, table in tables.items()
  }


def _parts(
  model: batched.Word2Vec, vocabulary: Vocabulary, counts: np.ndarray
) -> Parts:
  """Returns the buckets of the parts of words with counts."""
  words = vocabulary.words
  if words is None:  # words of a usual length
    words = [f'{number:08}' for number in range(vocabulary.size)]
  words = [word if n else '' for word, n in zip(words, counts, strict=True)]
  found = Parts(*ngrams.number(words, model.buckets, *model.part_sizes))
  if not found.rows.size:
    raise ValueError(
      f'model.part_sizes={model.part_sizes}: no word of the text has a part of'
      ' so many letters'
    )
  return found


def _counts(vocabulary: Vocabulary, min_count: int) -> np.ndarray:
  """Returns the counts of the words to learn, by Zipf's law without a text."""
  if vocabulary.counts is None:
    return 1e9 / (10 + np.arange(vocabulary.size))
  counts = np.array(vocabulary.counts)
  counts[counts < min_count] = 0
  return counts


def row_scales(
  model: batched.Word2Vec,
  table: str,
  num_words: int,
  counts: np.ndarray,
  tree: huffman.Tree | None,
  parts: Parts | None,
  objective: ml_collections.ConfigDict,
) -> np.ndarray:
  """Returns a factor of the learning rate for each row of a table.

  The factors are float32 [rows]. An update sums its pairs. A row with more than
  `most_pairs` expected pairs among `num_words` words changes as if it had
  `most_pairs`: else the sum would overshoot, where the small steps of the
  original stop.
  """
  shares = sampled_words.keep_shares(counts, objective.sample) * counts
  shares = shares / shares.sum()
  each = num_words * (model.window + 1)  # mean number of pairs
  if table == 'input':
    expected = each * shares
  elif table == 'buckets':
    expected = each * np.bincount(
      parts.rows,
      np.repeat(shares, parts.counts),
      minlength=layers.pad_vocab(model.buckets),
    )
  else:
    each = each if model.kind == 'skipgram' else num_words
    if table == 'output':
      drawn = _sampled(model, counts)
      expected = each * (shares + model.negative * drawn / drawn.sum())
    else:
      used = tree.paths >= 0
      shares_VP = np.broadcast_to(shares[:, None], used.shape)
      expected = each * np.bincount(
        tree.paths[used], shares_VP[used], minlength=len(shares)
      )
  scales = np.minimum(1, objective.most_pairs / np.maximum(expected, 1))
  return scales.astype(np.float32)


def _sampled(model: batched.Word2Vec, counts: np.ndarray) -> np.ndarray:
  """Returns float64 [V], how often words are sampled, up to a factor."""
  return counts ** (noise.POWER_WITH_PARTS if model.buckets else noise.POWER)


def _vectors(
  model: batched.Word2Vec, params: Params, store: Store, min_count: int
) -> tuple[list[str], np.ndarray]:
  """Returns the learnt words by falling count, and their vectors [n, D]."""
  tables = {
    name: processes.to_host(table)
    for name, nested in params.items()
    if name in ('input', 'buckets')
    for table in nested.values()
  }
  words, order = word_tables.learnt_words(store, min_count)
  if 'buckets' not in tables:
    return words, tables['input'][order]
  names = [''] * len(tables['input'])
  for word, number in zip(words, order, strict=True):
    names[number] = word
  parts = Parts(*ngrams.number(names, model.buckets, *model.part_sizes))
  tables = jax.tree.map(jnp.asarray, tables)
  vectors = [
    np.asarray(batched.compose(tables, order[i : i + _BLOCK], parts))
    for i in range(0, len(order), _BLOCK)
  ]
  return words, np.concatenate(vectors)


ARCHITECTURE = Architecture(
  check=check_word2vec,
  describe=word_tables.describe,
  build_model=build_model,
  objectives={kind.kind: kind for kind in (SkipGram, Cbow)},
  adjust_init=word_tables.keep_init,
  print_samples=word_tables.printer(_vectors),
  write_outputs=word_tables.writer(_vectors, build_model),
  whole_words=True,
  usual_mfu=0.001,
  default_config=words_section.get_word2vec_config,
)
