"""GloVe: vectors of words by the counts of their neighbours."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs import base
from data.examples import cooccurrences, sampled_words
from data.store.corpus import Store
from models.word2vec import glove
from train.architectures import word_tables
from train.architectures.architecture import Architecture, Vocabulary
from train.engine.optim import ADAGRAD_ACCUMULATOR
from train.engine.steps import Objective
from train.host import processes
from train.run import settings

MOST_WINDOW = 1_000  # pairs of a part of the text must fit in memory


def check(config: Any) -> None:
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
  word_tables.check(config, 'adagrad')


def build_model(model_config: Any, vocab_size: int) -> glove.Glove:
  """Returns the module of a config."""
  return glove.Glove(vocab_size=vocab_size, embed_dim=model_config.embed_dim)


def counts(config: Any, length: int, vocabulary: Vocabulary) -> Objective:
  """Returns the objective of logarithms of counts."""
  del length
  word_tables.check_vocabulary(config, vocabulary)
  x_max, alpha = config.objective.x_max, config.objective.alpha

  def transform(host_batch: Any, keys: Any) -> dict[str, jax.Array]:
    del keys
    batch = {
      name: host_batch[name] for name in ('words', 'contexts', 'example_mask')
    }
    counts = host_batch['counts'] * host_batch['example_mask'][:, None]
    weights = jnp.minimum(1, counts / x_max) ** alpha
    return batch | {
      'logs': jnp.log(jnp.where(counts > 0, counts, 1)),
      'weights': jnp.where(counts > 0, weights, 0.0),
    }

  def losses(outputs: Any, batch: Any) -> Any:
    del batch
    return {'entry': (outputs['loss'].sum(), outputs['entries'].sum())}, {}

  def weights(batch: Any) -> Any:
    return {'entry': jnp.maximum(glove.count_entries(batch).sum(), 1)}

  def update(
    params: Any, squares: Any, batch: Any, rate: jax.Array, good: jax.Array
  ) -> Any:
    tables, sums = (
      {name: nested['embedding'] for name, nested in each.items()}
      for each in (params, squares)
    )
    *new, square = glove.update(tables, sums, batch, jnp.where(good, rate, 0.0))
    new = (
      {name: {'embedding': table} for name, table in each.items()}
      for each in new
    )
    return *new, square

  return Objective(
    transform=transform,
    inputs=lambda batch: tuple(batch[name] for name in glove.INPUTS),
    weights=weights,
    losses=losses,
    loss_names=('entry',),
    metric_names=(),
    targets=lambda batch: (batch['words'], batch['weights'] > 0),
    perplexities={},
    update=update,
    statistics=lambda params: jax.tree.map(
      lambda table: jnp.full_like(table, ADAGRAD_ACCUMULATOR), params
    ),
    updates=config.objective.updates,
  )


def _vectors(
  model: glove.Glove, params: Any, store: Store, min_count: int
) -> tuple[list[str], np.ndarray]:
  """Returns the learnt words by falling count, and their vectors [n, D].

  As released, a vector is the sum of those of the word and of the context.
  """
  del model
  words, order = word_tables.learnt_words(store, min_count)
  tables = [
    processes.to_host(params[name]['embedding']) for name in ('input', 'output')
  ]
  return words, sum(table[order, :-1] for table in tables)


ARCHITECTURE = Architecture(
  keys=frozenset({'embed_dim'}),
  check=check,
  describe=word_tables.describe,
  build_model=build_model,
  objectives={'glove': counts},
  open_examples=cooccurrences.Examples,
  example_options=lambda config: {
    'window': config.objective.window,
    'min_count': config.objective.min_count,
  },
  batch_shapes=cooccurrences.batch_shapes,
  adjust_init=word_tables.keep_init,
  print_samples=word_tables.printer(_vectors),
  token_counts=functools.partial(sampled_words.word_counts, min_count=1),
  write_outputs=word_tables.writer(_vectors, build_model),
  whole_words=True,
  default_config=base.get_glove_config,
)
