"""A task model that reads words: their vectors, a body, perhaps a CRF.

Shapes: B batch, R texts of an example (of each choice), P texts that a body
reads together, T position, C characters of a word, L layers, D features, K
classes, tags or choices.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import crf, scalar_mix
from models.elmo_tasks import words
from models.features import check_name
from models.layers import Dtype

Array = jax.Array

PLACES = ('input', 'output', 'both')


class Reader(nn.Module):
  """Words as vectors, read by one of ELMo's task models (Peters et al. 2018).

  Attributes:
    body: of (vectors [B, P, T, D], mask, added vectors or None, train=) ->
      logits, or a dict with them; see `models.elmo_tasks`.
    num_texts: P.
    has_choices: the texts are those of choices, each with one score.
    num_rows: rows of the table of words; 0: no table.
    word_dim: D of the table.
    fixed_words: the table is not trained.
    char_embed_dim: of the characters below `filters`.
    filters: (width, count) on a word's characters; empty: none.
    char_dropout_rates: see `words.CharacterWords`.
    num_layers: L of the language model; 0: none.
    features: see `words.ContextualWords`.
    mix_at: 'input': the language model's vectors are beside the words' vectors;
      'output': beside the body's states; 'both', each with its own weights.
    layer_norm: of the language model's layers.
    mix_dropout_rate: of the language model's vectors.
    transitions: the allowed ones between tags, see `crf.Crf`; None: each tag
      is read alone.
    path_scores: of the paths of tags, one of `crf.SCORES`.
    array_names: further arguments of the body.
    mark_dim: features of a word's mark, 0 or 1, such as that of a predicate.
  """

  body: nn.Module
  num_texts: int = 1
  has_choices: bool = False
  num_rows: int = 0
  word_dim: int = 0
  fixed_words: bool = False
  char_embed_dim: int = 16
  filters: tuple[tuple[int, int], ...] = ()
  char_dropout_rates: tuple[float, float] = (0.0, 0.0)
  num_layers: int = 0
  features: str = 'mix'
  mix_at: str = 'input'
  layer_norm: bool = False
  mix_dropout_rate: float = 0.0
  transitions: tuple[tuple[bool, ...], ...] | None = None
  path_scores: str = 'learned'
  array_names: tuple[str, ...] = ()
  mark_dim: int = 0
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(
    self,
    rows: Array,
    mask: Array,
    characters: Array | None = None,
    vectors: Array | None = None,
    marks: Array | None = None,
    arrays: tuple[Array, ...] = (),
    *,
    train: bool,
  ) -> dict[str, Array]:
    """Returns the logits of labels, choices or tags.

    Args:
      rows: int [B, T], or [B, R, T]: each word's row of the table.
      mask: bool, likewise; True at real words, which come first.
      characters: int [..., T, C], for `filters`.
      vectors: float [..., T, L, D], a language model's layers.
      marks: int [..., T], 0 or 1, for `mark_dim`.
      arrays: those of `array_names`.
      train: apply dropout (rng stream 'dropout').

    Returns:
      float32 logits: [B, K]; of tags [B, T, K]. With `transitions`, see
      `crf.Crf.outputs`. With the features 'mix', mix_penalty [], the sum of the
      squares of its weights.
    """
    self._check(rows.shape, vectors)
    T = rows.shape[-1]
    P = self.num_texts
    mask_NT = mask.reshape(-1, T)

    def split(x_NTD: Array) -> Array:
      return x_NTD.reshape(-1, P, *x_NTD.shape[1:])

    def context(name: str) -> Array:
      return words.ContextualWords(
        self.num_layers,
        features=self.features,
        layer_norm=self.layer_norm,
        dropout_rate=self.mix_dropout_rate,
        name=name,
      )(
        vectors.reshape(-1, T, *vectors.shape[-2:]).astype(self.dtype),
        mask_NT,
        train=train,
      )

    parts = []
    if self.num_rows:
      parts.append(
        words.WordTable(
          self.num_rows,
          self.word_dim,
          self.fixed_words,
          self.dtype,
          name='words',
        )(rows.reshape(-1, T))
      )
    if self.filters:
      parts.append(
        words.CharacterWords(
          self.char_embed_dim,
          self.filters,
          self.dtype,
          self.char_dropout_rates,
          name='characters',
        )(characters.reshape(-1, T, characters.shape[-1]), train=train)
      )
    added_BPTD = None
    if self.num_layers:
      if self.mix_at != 'output':
        parts.append(context('input'))
      if self.mix_at != 'input':
        added_BPTD = context('output')
        added_BPTD = split(jnp.where(mask_NT[:, :, None], added_BPTD, 0))
    if self.mark_dim:
      parts.append(
        words.WordTable(2, self.mark_dim, dtype=self.dtype, name='marks')(
          marks.reshape(-1, T)
        )
      )
    x_NTD = jnp.concatenate(parts, axis=-1)
    x_NTD = jnp.where(mask_NT[:, :, None], x_NTD, 0)
    results = self.body(
      split(x_NTD),
      split(mask_NT),
      added_BPTD,
      train=train,
      **dict(zip(self.array_names, arrays, strict=True)),
    )
    if not isinstance(results, Mapping):
      results = {'logits': results}
    results, logits = dict(results), results['logits']
    if self.has_choices:
      results['logits'] = logits.reshape(rows.shape[0], -1)
    if self.transitions is not None:
      tags = crf.Crf(
        self.num_outputs, self.transitions, self.path_scores, name='crf'
      )
      results = tags.outputs(logits, mask_NT, train=train)
    if self.num_layers and self.features == 'mix':
      results['mix_penalty'] = scalar_mix.regularisation(
        self.variables['params'], 1.0
      )
    return results

  @property
  def num_outputs(self) -> int:
    """K."""
    return self.body.num_outputs

  def _check(self, shape: tuple[int, ...], vectors: Array | None) -> None:
    """Checks the fields against each other and the shapes of the inputs."""
    check_name('mix_at', self.mix_at, PLACES)
    if not (
      self.num_rows
      or self.filters
      or (self.num_layers and self.mix_at != 'output')
    ):
      raise ValueError(
        'there is nothing to read words by: expected rows of a table, filters'
        ' on characters, or the layers of a language model at the input'
      )
    texts = 1 if len(shape) == 2 else shape[1]
    P = self.num_texts
    if texts % P or (not self.has_choices and texts != P):
      raise ValueError(
        f'rows of words are {shape}, expected {self.num_texts} texts an example'
      )
    if self.num_layers and (
      vectors is None or vectors.shape[-2] != self.num_layers
    ):
      found = None if vectors is None else vectors.shape
      raise ValueError(
        f'vectors are {found}, expected [..., {self.num_layers}, D]'
      )
