"""Pre-training on packed rows: whole texts that do not see each other.

In place of a mask of real tokens, the model reads for each token the number of
its text in the row. Positions begin again with each text.
"""

import jax
import jax.numpy as jnp
import ml_collections

from data.examples import packing
from data.store.corpus import Store
from train.architectures import bert, gpt
from train.engine.steps import Batch


class _Packed:
  """What objectives of packed rows have in common.

  Attributes:
    rows: the class of the rows.
  """

  rows: type

  @classmethod
  def open_examples(
    cls,
    config: ml_collections.ConfigDict,
    store: Store,
    length: int,
    **options: bool | int,
  ) -> packing.FramedRows | packing.NextTokenRows:
    """Opens a split of a store."""
    return cls.rows(
      store,
      length,
      language_exponent=config.data.language_exponent,
      texts=config.data.packed,
      **options,
    )


class _PackedTexts(_Packed):
  """What an objective of BERT has in packed rows: each text is one of them."""

  rows = packing.FramedRows
  batch_shapes = staticmethod(packing.framed_shapes)

  def sample_pairs(
    self, host_batch: Batch, keys: jax.Array, **options: bool
  ) -> Batch:
    """Returns rows [CLS] text [SEP] [CLS] text [SEP] ...; nothing is random."""
    del keys
    return packing.read_framed(
      host_batch, known=self.vocabulary.known, units=options.get('units', False)
    )

  def inputs(self, batch: Batch) -> tuple:
    """Returns the inputs of `models.bert.Bert`."""
    return tuple(batch[name] for name in ('tokens', 'texts', *bert.INPUTS[2:]))


class PackedMaskedTokens(_PackedTexts, bert.MaskedTokensAlone):
  """Masked tokens of packed texts."""


class PackedLeftToRightTokens(_PackedTexts, bert.LeftToRightTokens):
  """The next token of packed texts, by a left-to-right BERT."""


class PackedNextTokens(_Packed, gpt.NextTokens):
  """The next token at each position of packed texts."""

  rows = packing.NextTokenRows
  batch_shapes = staticmethod(packing.next_token_shapes)

  def transform(self, host_batch: Batch, keys_B: jax.Array) -> Batch:
    """Returns rows with a target at each place; nothing is random."""
    del keys_B
    known, texts = self.vocabulary.known, host_batch['texts']
    is_real = (texts > 0) & host_batch['example_mask'][:, None]
    return {
      'tokens': known(host_batch['tokens']),
      'texts': texts,
      'positions': packing.positions(texts),
      'targets': known(host_batch['targets']),
      'loss_weights': is_real.astype(jnp.float32),
    }

  def inputs(self, batch: Batch) -> tuple:
    """Returns the inputs of `models.gpt.Gpt`."""
    return tuple(batch[name] for name in ('tokens', 'texts', 'positions'))


class PackedNextTokensOfStream(gpt.NextTokensOfStream, PackedNextTokens):
  """The same, with an end-of-text token before and after each text.

  The order of the classes counts: `NextTokensOfStream` names the token.
  """
