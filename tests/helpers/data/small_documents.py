"""Documents with mentions drawn at random."""

import numpy as np

from data.tasks.examples import DocumentExample, Task

TASK = Task('docs', 'Docs', 'coreference', {}, None, labels=('bc', 'nw'))


def document(lengths, seed=0, number=0, clusters=None, genre='nw'):
  """A document of sentences of these lengths, its clusters given or drawn."""
  rng = np.random.default_rng((seed, number))
  if clusters is None:
    clusters = draw_clusters(rng, lengths)
  return DocumentExample(
    id=f'doc{number}',
    sentences=tuple(
      tuple(f'w{rng.integers(30)}' for _ in range(n)) for n in lengths
    ),
    speakers=tuple(
      (('', 'Ann', 'Bo')[i % 3],) * n for i, n in enumerate(lengths)
    ),
    genre=genre,
    clusters=clusters,
  )


def draw_clusters(rng, lengths, num_clusters=4):
  """Clusters of two mentions or more, inside their sentences."""
  starts = np.cumsum([0, *lengths[:-1]])
  mentions = set()
  for start, length in zip(starts.tolist(), lengths, strict=True):
    for _ in range(2):
      first, last = sorted(rng.integers(length, size=2).tolist())
      mentions.add((start + first, start + last))
  owners = rng.integers(num_clusters, size=len(mentions))
  found = [
    tuple(
      m for m, owner in zip(sorted(mentions), owners, strict=True) if owner == k
    )
    for k in range(num_clusters)
  ]
  return tuple(sorted(cluster for cluster in found if len(cluster) > 1))
