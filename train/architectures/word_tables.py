"""Parts that word2vec and GloVe share: both learn a table of word vectors."""

import functools
from collections.abc import Callable

import ml_collections
import numpy as np
from etils import epath
from flax import linen as nn

from data import scratch
from data.examples import sampled_words
from data.store.corpus import Store
from data.vocabulary.word2vec import vector_files
from models.layers import Params
from train.architectures.architecture import Vocabulary, check_whole_words
from train.host import processes
from train.host.console import say
from train.run import settings, training_phases

NUM_SHOWN, NUM_NEIGHBOURS = 8, 6

# (module, parameters, store, min_count) -> words by falling count, vectors
# float32 [n, D].
# (module, parameters, store, least count) -> (words, their vectors [n, D])
Vectors = Callable[
  [nn.Module, Params, Store, int], tuple[list[str], np.ndarray]
]


def check_tables(config: ml_collections.ConfigDict, optimizer: str) -> None:
  """Checks the keys that all these families have."""
  ensure = functools.partial(settings.expect, config)
  check_bounds(
    config,
    ('objective.min_count', 1, np.inf),
    ('objective.updates', 1, np.inf),
    ('objective.classes', 0, np.inf),
  )
  ensure(config.model.dtype == 'float32', 'model.dtype', "'float32'")
  ensure(config.optim.name == optimizer, 'optim.name', repr(optimizer))
  ensure(config.train.micro_batches == 1, 'train.micro_batches', '1')
  check_whole_words(config)
  updates = config.objective.updates
  for phase in training_phases.check_phases(config):
    if phase.global_batch % updates:
      raise ValueError(
        f'train.phases: a global batch of {phase.global_batch}, expected a'
        f' multiple of objective.updates={updates}, the parts of a batch'
      )


def check_bounds(
  config: ml_collections.ConfigDict, *bounds: tuple[str, float, float]
) -> None:
  """Checks keys with the least and the largest number, perhaps infinite."""
  for key, least, most in bounds:
    section, _, name = key.partition('.')
    expected = f'{least} or more' if most == np.inf else f'{least} to {most}'
    settings.expect(
      config, least <= config[section][name] <= most, key, expected
    )


def check_vocabulary(
  config: ml_collections.ConfigDict, vocabulary: Vocabulary
) -> None:
  """Checks that a vocabulary is of whole words."""
  if vocabulary.unknown is None:
    raise ValueError(
      f'data.tokenizer={config.data.tokenizer!r} cuts words into pieces, but'
      f' model.name={config.model.name!r} has vectors of whole words: take'
      ' train:words:N'
    )


def describe(model_config: ml_collections.ConfigDict) -> str:
  """Returns the sizes of a model as text."""
  return f'vectors of {model_config.embed_dim} numbers'


def keep_init(
  model: nn.Module, params: Params, init_config: ml_collections.ConfigDict
) -> Params:
  """Returns the drawn parameters: the tables draw as the releases do."""
  del model, init_config
  return params


def learnt_words(store: Store, min_count: int) -> tuple[list[str], np.ndarray]:
  """Returns the learnt words by falling count, and their numbers int [n]."""
  counts = sampled_words.word_counts(store, min_count)
  order = np.flatnonzero(counts)
  order = order[np.argsort(-counts[order], kind='stable')]
  return [store.tokenizer.pieces[i] for i in order], order


def printer(
  find: Vectors,
) -> Callable[[nn.Module, Params, Store, int], None]:
  """Returns a function that prints the nearest words of a few words."""

  def print_neighbours(
    model: nn.Module, params: Params, store: Store, length: int
  ) -> None:
    del length
    words, vectors = find(model, params, store, 1)
    half = max(2, len(words) // 2)  # the others are rare, or were left out
    words, vectors = words[:half], vectors[:half]
    vectors = vectors / np.maximum(
      np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9
    )
    say('\nWords and their nearest words:')
    ranks = np.geomspace(min(100, half - 1), half // 2, NUM_SHOWN)
    for rank in sorted({*ranks.astype(int).tolist()}):
      near = np.argsort(-(vectors @ vectors[rank]))
      others = [words[i] for i in near[: NUM_NEIGHBOURS + 1] if i != rank]
      say(f'  {words[rank]}: {", ".join(others[:NUM_NEIGHBOURS])}')

  return print_neighbours


def writer(
  find: Vectors,
  build_model: Callable[[ml_collections.ConfigDict, int], nn.Module],
) -> Callable[[ml_collections.ConfigDict, Params, Store, epath.Path], None]:
  """Returns a function that writes vectors and classes of words.

  The vectors are in both formats of word2vec.
  """

  def write_vectors(
    config: ml_collections.ConfigDict,
    params: Params,
    store: Store,
    workdir: epath.Path,
  ) -> None:
    model = build_model(config.model, store.tokenizer.softmax_size)
    words, vectors = find(model, params, store, config.objective.min_count)
    if not processes.is_first():
      return
    parts = {
      'vectors.txt': vector_files.as_text(words, vectors),
      'vectors.bin': vector_files.as_binary(words, vectors),
    }
    if config.objective.classes:
      classes = vector_files.classify(vectors, config.objective.classes)
      parts['classes.txt'] = vector_files.as_classes(words, classes)
    for name, chunks in parts.items():
      with scratch.replacing(workdir / name) as new, new.open('wb') as file:
        for chunk in chunks:
          file.write(chunk)
    say(
      f'{workdir} has the vectors of {len(words):,} words: {", ".join(parts)}.'
    )

  return write_vectors
