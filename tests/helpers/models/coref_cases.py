"""Documents for coreference, their models, losses and gradients."""

import jax
import numpy as np
from elmo_task_cases import D, E, F
from flax import linen as nn

from models.elmo_tasks.coref import loss, model

HIDDEN, FEATURES, WIDTH, ANTECEDENTS, KEPT = 6, 3, 4, 4, 0.75
SIZES = dict(
  num_genres=3,
  lstm_dim=F,
  hidden_dim=HIDDEN,
  max_width=WIDTH,
  kept_per_word=KEPT,
  max_antecedents=ANTECEDENTS,
  feature_dim=FEATURES,
)
MODELS = {
  '2017': model.EndToEndCoref(variant='2017', head_dim=3, **SIZES),
  '2018': model.EndToEndCoref(
    variant='2018', head_dim=3, num_layers=2, **SIZES
  ),
  # Its heads see all features.
  'allennlp': model.EndToEndCoref(variant='allennlp', head_dim=3, **SIZES),
}
LENGTHS = np.array([[5, 6, 3], [2, 4, 0]])  # words of each sentence
# First word, last word, cluster; one of them is no candidate, one is padding.
MENTIONS = np.array(
  [
    [[0, 0, 0], [1, 2, 1], [3, 3, 0], [5, 8, 1], [0, 13, 2], [11, 11, 0]],
    [[0, 1, 4], [2, 3, 4], [5, 5, 4], [4, 4, 0], [2, 2, 0], [-1, -1, -1]],
  ],
  'i4',
)


class Documents:
  """Words of documents, noise or a filler at padding.

  `numbers` are of the documents in LENGTHS, None for an empty one; `shape` are
  T, R and V.
  """

  def __init__(self, numbers=(0, 1), shape=(14, 3, 6), filler=None):
    rng = np.random.default_rng(0)
    words = LENGTHS.sum()
    values = {
      'x': rng.normal(size=(words, D)).astype('f4'),
      'added': rng.normal(size=(words, E)).astype('f4'),
      'speakers': rng.integers(0, 3, words),
    }
    T, R, V = shape
    self.sentences = np.full((len(numbers), T), -1, 'i4')
    self.rows = np.full((len(numbers), R, V), -1, 'i4')
    for b, number in enumerate(numbers):
      if number is not None:
        row = filled = begin = 0
        for i, length in enumerate(LENGTHS[number]):
          self.sentences[b, begin : begin + length] = i
          if filled + length > V:
            row, filled = row + 1, 0
          self.rows[b, row, filled : filled + length] = begin + np.arange(
            length
          )
          filled, begin = filled + length, begin + length
    self.mask = self.sentences >= 0
    first = LENGTHS[0].sum()
    order = np.concatenate(
      [
        np.arange(words)[[slice(first), slice(first, None)][number]]
        for number in numbers
        if number is not None
      ]
    )
    for name, of_words in values.items():
      shape = (*self.mask.shape, *of_words.shape[1:])
      padding = rng.normal(size=shape) if filler is None else filler
      if name == 'speakers':
        padding = 7
      found = np.broadcast_to(padding, shape).astype(of_words.dtype)
      found[self.mask] = of_words[order]
      setattr(self, name, found)
    self.genres = np.array([{0: 2, 1: 0}.get(number, 1) for number in numbers])


def arrays_of(documents):
  return {
    'sentences_BT': documents.sentences,
    'sentence_rows_BRV': documents.rows,
    'speakers_BT': documents.speakers,
    'genres_B': documents.genres,
  }


def apply(module, params, x, added, documents, train=False, rngs=None):
  return module.apply(
    {'params': params},
    x[:, None],
    documents.mask[:, None],
    None if added is None else added[:, None],
    **arrays_of(documents),
    train=train,
    rngs=rngs,
  )


def make_params(module, documents):
  shapes = jax.eval_shape(
    lambda: module.init(
      jax.random.key(0),
      documents.x[:, None],
      documents.mask[:, None],
      None if documents.added is None else documents.added[:, None],
      **arrays_of(documents),
      train=False,
    )
  )['params']
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda p: rng.normal(0, 0.4, p.shape).astype('f4'), nn.unbox(shapes)
  )


def make_step(variant):
  """Returns (params, documents, mentions) -> losses, outputs, gradients."""

  @jax.jit
  def step(params, x, added, rest, golden):
    documents = Documents.__new__(Documents)
    vars(documents).update(rest)

    def compute(params, x, added):
      outputs = apply(MODELS[variant], params, x, added, documents)
      losses = loss.antecedent_losses(outputs, golden)
      return losses.sum(), (losses, outputs)

    return jax.value_and_grad(compute, argnums=(0, 1, 2), has_aux=True)(
      params, x, added
    )

  def run(params, documents, golden):
    names = ('mask', 'sentences', 'rows', 'speakers', 'genres')
    rest = {name: getattr(documents, name) for name in names}
    (_, (losses, outputs)), gradients = step(
      params, documents.x, documents.added, rest, golden
    )
    return jax.device_get((losses, outputs, gradients))

  return run


def assert_close_trees(found, expected, tolerance):
  """Checks arrays by the largest number of each."""
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
  jax.tree.map(
    lambda ours, theirs: np.testing.assert_allclose(
      ours,
      theirs,
      rtol=0,
      atol=tolerance * max(np.abs(theirs).max(), 1e-3 * scale),
    ),
    found,
    expected,
  )


PLACES = (2, 0)  # of the documents in the padded batch


def pad():
  """Returns padded documents, of NaN, an empty one between; their mentions."""
  padded = Documents((1, None, 0), shape=(17, 4, 8), filler=np.nan)
  golden = np.pad(MENTIONS[[1, 0, 0]], [(0, 0), (0, 1), (0, 0)])
  golden[:, -1] = -1
  return padded, golden


def real(found, b, number):
  """Returns what stands at row b, at the real spans of document `number`."""
  K = int(KEPT * LENGTHS[number].sum())
  assert (found['starts'][b, :K] >= 0).all()
  for name in ('starts', 'ends', 'antecedents'):
    assert (found[name][b, K:] == -1).all()
  assert not found['mention_scores'][b, K:].any()
  return {
    'starts': found['starts'][b, :K],
    'ends': found['ends'][b, :K],
    'antecedents': found['antecedents'][b, :K],
    'logits': found['logits'][b, :K],
    'mention_scores': found['mention_scores'][b, :K],
  }
