"""GloVe: learns word vectors from the counts of neighbouring words."""

import functools

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from configs.sections import words as words_section
from data.examples import cooccurrences, sampled_words
from data.store.corpus import Store
from models.layers import Params
from models.word2vec import glove
from train.architectures import word_tables
from train.architectures.architecture import (
  Architecture,
  TextObjective,
  Vocabulary,
)
from train.engine.optim import ADAGRAD_ACCUMULATOR
from train.engine.steps import Batch, Outputs, Sums
from train.engine.updates import RowUpdates
from train.host import processes
from train.run import settings

MOST_WINDOW = 1_000  # pairs of a part of the text must fit in memory


def check_glove(config: ml_collections.ConfigDict) -> None:
  """Checks the keys that only GloVe has."""
  objective = config.objective
  word_tables.check_bounds(
    config,
    ('objective.window', 1, MOST_WINDOW),
    ('objective.alpha', 0, np.inf),
  )
  settings.expect(
    config,
    0 < objective.x_max < np.inf,
    'objective.x_max',
    'a positive number',
  )
  word_tables.check_tables(config, 'adagrad')


def build_model(
  model_config: ml_collections.ConfigDict, vocab_size: int
) -> glove.Glove:
  """Returns the module of a config."""
  return glove.Glove(vocab_size=vocab_size, embed_dim=model_config.embed_dim)


class NeighbourCounts(RowUpdates, TextObjective):
  """Logarithms of the counts of neighbours."""

  loss_names = ('entry',)

  def __init__(
    self, config: ml_collections.ConfigDict, length: int, vocabulary: Vocabulary
  ):
    super().__init__(config, length, vocabulary)
    word_tables.check_vocabulary(config, vocabulary)
    self.num_updates = config.objective.updates

  @classmethod
  def open_examples(
    cls,
    config: ml_collections.ConfigDict,
    store: Store,
    length: int,
    **options: bool,
  ) -> cooccurrences.CountExamples:
    """Opens the counts of a split."""
    wanted = config.objective
    return cooccurrences.CountExamples(
      store,
      length,
      window=wanted.window,
      min_count=wanted.min_count,
      **options,
    )

  batch_shapes = staticmethod(cooccurrences.batch_shapes)
  token_counts = staticmethod(
    functools.partial(sampled_words.word_counts, min_count=1)
  )

  def transform(
    self, host_batch: Batch, keys_B: jax.Array
  ) -> dict[str, jax.Array]:
    """Returns pairs of words, logarithms of counts and weights."""
    del keys_B
    wanted = self.config.objective
    batch = {
      name: host_batch[name] for name in ('words', 'contexts', 'example_mask')
    }
    counts = host_batch['counts'] * host_batch['example_mask'][:, None]
    weights = jnp.minimum(1, counts / wanted.x_max) ** wanted.alpha
    return batch | {
      'logs': jnp.log(jnp.where(counts > 0, counts, 1)),
      'weights': jnp.where(counts > 0, weights, 0.0),
    }

  def inputs(self, batch: Batch) -> tuple:
    """Returns the inputs of `glove.Glove`."""
    return tuple(batch[name] for name in glove.INPUTS)

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the loss of entries."""
    del batch
    return {'entry': (outputs['loss'].sum(), outputs['entries'].sum())}, {}

  def weights(self, batch: Batch) -> dict[str, jax.Array]:
    """Returns the number of entries, at least 1."""
    return {'entry': jnp.maximum(glove.count_entries(batch).sum(), 1)}

  def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns the words, and which of them are entries."""
    return batch['words'], batch['weights'] > 0

  def update(
    self,
    params: Params,
    statistics: Params,
    batch: Batch,
    rate: jax.Array,
    good: jax.Array,
  ) -> tuple[Params, Params, jax.Array]:
    """Returns tables and squares with changed rows, see `RowUpdates.update`."""
    tables, sums = (
      {name: nested['embedding'] for name, nested in each.items()}
      for each in (params, statistics)
    )
    *new, square = glove.update(tables, sums, batch, jnp.where(good, rate, 0.0))
    new = (
      {name: {'embedding': table} for name, table in each.items()}
      for each in new
    )
    return *new, square

  def statistics(self, params: Params) -> Params:
    """Returns AdaGrad's initial sums of squares."""
    return jax.tree.map(
      lambda table: jnp.full_like(table, ADAGRAD_ACCUMULATOR), params
    )


def _vectors(
  model: glove.Glove, params: Params, store: Store, min_count: int
) -> tuple[list[str], np.ndarray]:
  """Returns the learnt words by falling count, and their vectors [n, D].

  As released, a vector is the sum of the word's and of its context's row.
  """
  del model
  words, order = word_tables.learnt_words(store, min_count)
  tables = [
    processes.to_host(params[name]['embedding']) for name in ('input', 'output')
  ]
  return words, sum(table[order, :-1] for table in tables)


ARCHITECTURE = Architecture(
  check=check_glove,
  describe=word_tables.describe,
  build_model=build_model,
  objectives={'glove': NeighbourCounts},
  adjust_init=word_tables.keep_init,
  print_samples=word_tables.printer(_vectors),
  write_outputs=word_tables.writer(_vectors, build_model),
  whole_words=True,
  usual_mfu=0.001,
  default_config=words_section.get_glove_config,
)
