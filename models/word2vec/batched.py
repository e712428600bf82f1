"""word2vec: skip-gram and CBOW, by sampled words or a Huffman tree.

Mikolov et al. 2013; where paper and released program (word2vec.c) differ, as
released. There is no network: an update adds its gradients to the rows of two
or three tables, so the gradients are written out, and no table of them exists.

Shapes: as in `blocks`, and S word drawn for a block, P node on a word's path. A
block reads C + 2 w words.

A batch has `tokens` int [B, T], `segments` int [B, T] (contexts stay within a
segment; negative: padding), `reach` int [B, T], the half-width of each word's
window, and `samples` int [B, N, S]. All words of a block share the samples; a
sample weighs so that a pair has `negative` in all. As in the release, a
sample that is the pair's own target does not count. With `buckets` it has
`parts`, the `Parts` of all words.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import layers
from models.word2vec import blocks, word_parts
from models.word2vec.word_parts import Parts

Array = jax.Array
Tables = Mapping[str, Array]

INPUTS = (
  'tokens',
  'segments',
  'reach',
  'samples',
  'paths',
  'turns',
  'parts',
)
# Of a block. Half as many cost two points of the analogies on 100 novels.
NUM_SAMPLES = {'skipgram': 64, 'cbow': 32}


class Rows(NamedTuple):
  """Gradients of some rows of a table, to be added with a rate.

  Attributes:
    table: its name.
    ids: int [...], rows; a row may come several times. Of `buckets`, words, of
      which each part changes so.
    deltas: float32 [..., D].
  """

  table: str
  ids: Array
  deltas: Array


class Word2Vec(nn.Module):
  """The tables of a word2vec.

  `input` has the vectors that are used later; `output` those of predicted
  words, with sampled words; `nodes` those of a Huffman tree's inner nodes. Each
  is [V, D], V padded, and lies in shards of its rows. With `buckets`, of parts
  of words, a word's vector is the mean of its row of `input` and of its parts'
  (fastText, Bojanowski et al. 2017; as released, each gets the whole error).

  Attributes:
    vocab_size: V, unpadded.
    embed_dim: D.
    kind: 'skipgram' or 'cbow'.
    window: w, the largest half-width of a window.
    negative: sampled words of a pair; 0: no table `output`.
    hierarchical: whether there is a Huffman tree, with a table `nodes`.
    buckets: rows of a table `buckets`; 0: none.
    part_sizes: letters of the shortest and longest part of a word in it.
  """

  vocab_size: int
  embed_dim: int
  kind: str
  window: int
  negative: int
  hierarchical: bool = False
  buckets: int = 0
  part_sizes: tuple[int, int] = (3, 6)

  def setup(self):
    """Creates the tables.

    Vectors are U(-1/2, 1/2) / D (word2vec.c); with parts, those of words and of
    parts U(-1, 1) / D (fastText); the other tables are 0.
    """
    shape = layers.pad_vocab(self.vocab_size), self.embed_dim
    divisor = self.embed_dim / (2 if self.buckets else 1)

    def table(name: str, init: layers.Initializer) -> Array:
      return Table(init, shape, name=name)()

    tables = {'input': table('input', draw_rows(self.vocab_size, divisor))}
    if self.negative:
      tables['output'] = table('output', nn.initializers.zeros)
    if self.hierarchical:
      tables['nodes'] = table('nodes', nn.initializers.zeros)
    if self.buckets:
      shape = layers.pad_vocab(self.buckets), self.embed_dim
      init = draw_rows(shape[0], divisor)
      tables['buckets'] = Table(init, shape, 'rows', name='buckets')()
    self.tables = tables

  def example_inputs(self) -> tuple[tuple, dict[str, Any]]:
    """Returns shapes of a smallest call's inputs, and its keyword arguments."""
    return (), {'method': 'create'}

  def create(self) -> None:
    """Makes `setup` create the tables, without computing anything."""

  def __call__(self, *inputs: Array | None, train: bool) -> dict[str, Array]:
    """Returns {'loss', 'pairs'}, float32 [B]: sums over the pairs of a row.

    The inputs are the batch's `INPUTS`. The loss of a pair is in nats: of the
    target and its samples, of the nodes on its path, or both.
    """
    del train
    return losses(self, self.tables, dict(zip(INPUTS, inputs, strict=True)))


def draw_rows(num_rows: int, divisor: float) -> layers.Initializer:
  """Returns the initializer U(-1/2, 1/2) / divisor of rows; others are 0."""

  def init(rng: Array, shape: tuple[int, ...]) -> Array:
    drawn = jax.random.uniform(rng, (num_rows, shape[1]))
    rows = (drawn - 0.5) / divisor
    return jnp.pad(rows, ((0, shape[0] - num_rows), (0, 0)))

  return init


class Table(nn.Module):
  """A table of rows, never gathered whole."""

  table_init: layers.Initializer
  shape: tuple[int, int]
  param_name: str = 'embedding'  # of a table with a row for each word

  @nn.compact
  def __call__(self) -> Array:
    """Returns the table."""
    named = layers.named(self.table_init, ('words', 'embed_out'))
    return self.param(self.param_name, named, self.shape)


def compose(tables: Tables, tokens: Array, parts: Parts | None) -> Array:
  """Returns vectors of words, float32 [..., D], with the buckets of parts."""
  vectors = take(tables['input'], tokens)
  if parts is None:
    return vectors
  sums = word_parts.sum_rows(tables['buckets'], tokens, parts)
  return (vectors + sums) / (1 + jnp.asarray(parts.counts)[tokens])[..., None]


def losses(
  model: Word2Vec, tables: Tables, batch: Mapping[str, Array]
) -> dict[str, Array]:
  """Returns the sums of `Word2Vec.__call__`."""
  inner = _Block(model, tables, batch)
  loss_B = jnp.zeros(len(batch['tokens']))
  for scores, weights, is_target in inner.scores():
    signs = jnp.where(is_target, -1.0, 1.0)
    values = weights * jax.nn.softplus(signs * scores)
    loss_B += values.reshape(len(loss_B), -1).sum(axis=1)
  return {'loss': loss_B, 'pairs': inner.count_pairs()}


def count_pairs(model: Word2Vec, batch: Mapping[str, Array]) -> Array:
  """Returns the number of pairs of each row, float32 [B]; of means in CBOW."""
  return _Pairs(model, batch).count_pairs()


def gradients(
  model: Word2Vec, tables: Tables, batch: Mapping[str, Array]
) -> list[Rows]:
  """Returns how a batch changes the tables, for a rate of 1.

  The words of all pairs are summed, and read before any is changed. As
  released, a CBOW adds the error of the mean to every context undivided.
  """
  return _Block(model, tables, batch).gradients()


class _Pairs:
  """Which words of a batch are neighbours: in CBOW by offset, else by place."""

  def __init__(self, model: Word2Vec, batch: Mapping[str, Array]):
    self.model, self.batch = model, batch
    self.tokens_BT = batch['tokens']
    rows, length = self.tokens_BT.shape
    self.blocked = (rows, length // blocks.BLOCK, blocks.BLOCK)
    self.tokens_BNC = self.tokens_BT.reshape(self.blocked)
    w = model.window
    segments_BNC = batch['segments'].reshape(self.blocked)
    reach_BNC = batch['reach'].reshape(self.blocked)
    segments_BNK = blocks.with_halo(batch['segments'], w, fill=-1)
    if model.kind == 'cbow':
      reaches_BNK = blocks.with_halo(batch['reach'], w, fill=0)
      self.pairs_OBNC, self.reached_OBNC = [], []  # is, has it in its mean
      for offset, other_BNC, its_reach_BNC in zip(
        blocks.offsets(w),
        blocks.by_offset(segments_BNK, w),
        blocks.by_offset(reaches_BNK, w),
        strict=True,
      ):
        same_BNC = (segments_BNC == other_BNC) & (segments_BNC >= 0)
        self.pairs_OBNC.append(same_BNC & (abs(offset) <= reach_BNC))
        self.reached_OBNC.append(same_BNC & (abs(offset) <= its_reach_BNC))
      return
    place_C = jnp.arange(blocks.BLOCK)
    offset_CK = jnp.arange(blocks.BLOCK + 2 * w) - w - place_C[:, None]
    self.pairs_BNCK = (
      (segments_BNC[..., None] == segments_BNK[:, :, None])
      & (segments_BNC[..., None] >= 0)
      & (jnp.abs(offset_CK) <= reach_BNC[..., None])
      & (offset_CK != 0)
    )

  def count_contexts(self) -> Array:
    """Returns the number of words in each CBOW's mean, int32 [B, N, C]."""
    return sum(pairs_BNC.astype(jnp.int32) for pairs_BNC in self.pairs_OBNC)

  def count_pairs(self) -> Array:
    """Returns the counts of the function of this name."""
    if self.model.kind == 'cbow':
      pairs = self.count_contexts() > 0
    else:
      pairs = self.pairs_BNCK
    pairs = pairs.reshape(len(self.tokens_BT), -1)
    return pairs.sum(axis=1).astype(jnp.float32)


class _Block(_Pairs):
  """The scores of a batch, computed block by block, and their gradients."""

  def __init__(
    self, model: Word2Vec, tables: Tables, batch: Mapping[str, Array]
  ):
    super().__init__(model, batch)
    self.tables = tables
    vectors_BTD = compose(tables, self.tokens_BT, batch.get('parts'))
    inputs_BNKD = blocks.with_halo(vectors_BTD, model.window, fill=0)
    if model.kind == 'cbow':
      counts_BNC = self.count_contexts()
      self.any_BNC = counts_BNC > 0
      sums_BNCD = blocks.sum_neighbours(inputs_BNKD, self.pairs_OBNC)
      self.means_BNCD = sums_BNCD / jnp.maximum(counts_BNC, 1)[..., None]
    else:
      self.inputs_BNKD = inputs_BNKD
      self.weights_BNCK = self.pairs_BNCK.astype(jnp.float32)

  def scores(self) -> list[tuple[Array, Array, Array]]:
    """Returns (scores, weights, whether a target), of equal shapes, each."""
    found = []
    if self.model.negative:
      found += [part[:3] for part in self._sampled()]
    if self.model.hierarchical:
      found += [part[:3] for part in self._of_paths()]
    return found

  def gradients(self) -> list[Rows]:
    """Returns the rows of `gradients`."""
    found, errors = [], 0.0
    parts = self._sampled() if self.model.negative else []
    parts += self._of_paths() if self.model.hierarchical else []
    for scores, weights, is_target, table, ids, vectors in parts:
      slopes = weights * (is_target - jax.nn.sigmoid(scores))
      deltas, error = self._pull(slopes, vectors)
      found.append(Rows(table, ids, deltas))
      errors += error
    if self.model.kind == 'cbow':
      errors_BNKD = blocks.with_halo(
        errors.reshape(*self.tokens_BT.shape, -1), self.model.window, fill=0
      )
      deltas_BNCD = blocks.sum_neighbours(errors_BNKD, self.reached_OBNC)
      deltas_BTD = deltas_BNCD.reshape(*self.tokens_BT.shape, -1)
    else:
      deltas_BTD = blocks.add_halo(errors, self.model.window)
    found.insert(0, Rows('input', self.tokens_BT, deltas_BTD))
    if self.batch.get('parts') is not None:
      found.append(Rows('buckets', self.tokens_BT, deltas_BTD))
    return found

  def _pull(self, slopes: Array, vectors: Array) -> tuple[Array, Array]:
    """Returns the gradients of output vectors, and of the vectors they meet."""
    skipgram = self.model.kind == 'skipgram'
    if vectors.ndim == 5:  # [B, N, C, P, D], of paths
      if skipgram:
        return (
          jnp.einsum('bncpk,bnkd->bncpd', slopes, self.inputs_BNKD),
          jnp.einsum('bncpk,bncpd->bnkd', slopes, vectors),
        )
      return (
        slopes[..., None] * self.means_BNCD[:, :, :, None],
        jnp.einsum('bncp,bncpd->bncd', slopes, vectors),
      )
    if skipgram:  # [B, N, C or S, K]
      return (
        jnp.einsum('bnsk,bnkd->bnsd', slopes, self.inputs_BNKD),
        jnp.einsum('bnsk,bnsd->bnkd', slopes, vectors),
      )
    if slopes.ndim == 3:  # [B, N, C], of each word's own vector
      return (
        slopes[..., None] * self.means_BNCD,
        slopes[..., None] * vectors,
      )
    return (
      jnp.einsum('bncs,bncd->bnsd', slopes, self.means_BNCD),
      jnp.einsum('bncs,bnsd->bncd', slopes, vectors),
    )

  def _sampled(self) -> list[tuple[Array, Array, Any, str, Array, Array]]:
    """Returns the parts of targets and of samples.

    Each is (scores, weights, whether a target, table, ids, vectors).
    """
    samples_BNS = self.batch['samples']
    table = self.tables['output']
    targets = take(table, self.tokens_BT).reshape(*self.blocked, -1)
    samples = take(table, samples_BNS)
    share = self.model.negative / samples_BNS.shape[-1]
    if self.model.kind == 'skipgram':
      score = 'bnsd,bnkd->bnsk'
      other_BNSC = samples_BNS[..., None] != self.tokens_BNC[:, :, None]
      weights_BNSK = share * jnp.einsum(
        'bnsc,bnck->bnsk', other_BNSC.astype(jnp.float32), self.weights_BNCK
      )
      vectors, weights = self.inputs_BNKD, self.weights_BNCK
      target_scores = jnp.einsum(score, targets, vectors)
      sample_weights = weights_BNSK
      sample_scores = jnp.einsum(score, samples, vectors)
    else:
      other_BNCS = self.tokens_BNC[..., None] != samples_BNS[:, :, None]
      weights = self.any_BNC.astype(jnp.float32)
      target_scores = jnp.einsum('bncd,bncd->bnc', targets, self.means_BNCD)
      sample_weights = share * (weights[..., None] * other_BNCS)
      sample_scores = jnp.einsum('bncd,bnsd->bncs', self.means_BNCD, samples)
    ids = self.tokens_BNC
    return [
      (target_scores, weights, True, 'output', ids, targets),
      (sample_scores, sample_weights, False, 'output', samples_BNS, samples),
    ]

  def _of_paths(self) -> list[tuple[Array, Array, Any, str, Array, Array]]:
    """Returns the one part of the nodes on the paths to the targets.

    `paths` int [B, T, P] of the batch are nodes, negative behind the end, and
    `turns` bool [B, T, P]: code 0, the target of a node, is True.
    """
    paths = self.batch['paths'].reshape(*self.blocked, -1)
    turns = self.batch['turns'].reshape(paths.shape)
    ids = jnp.maximum(paths, 0)
    nodes = take(self.tables['nodes'], ids)
    on_path = (paths >= 0).astype(jnp.float32)
    if self.model.kind == 'skipgram':
      scores = jnp.einsum('bncpd,bnkd->bncpk', nodes, self.inputs_BNKD)
      weights = on_path[..., None] * self.weights_BNCK[:, :, :, None]
      turns = turns[..., None]
    else:
      scores = jnp.einsum('bncpd,bncd->bncp', nodes, self.means_BNCD)
      weights = on_path * self.any_BNC[..., None]
    # As released, a node that is sure enough learns no more.
    weights = jnp.where(jnp.abs(scores) < MAX_SCORE, weights, 0.0)
    return [(scores, weights, turns, 'nodes', ids, nodes)]


MAX_SCORE = 6.0  # word2vec.c, MAX_EXP


def take(table_VD: Array, ids: Array) -> Array:
  """Returns rows of a table by numbers [...], float32 [..., D]."""
  return jnp.take(table_VD, ids, axis=0, mode='clip')
