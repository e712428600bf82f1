"""Semantic roles by deep highway LSTMs (He et al. 2017).

Shapes: B example, a predicate in its sentence; T position, D features, of which
some tell the predicate's word; E added features, F cells, K tags. Sizes and
rates are the paper's.
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import initial, layers
from models.elmo_tasks import parts
from models.elmo_tasks.highway_lstm import AlternatingHighwayLstm
from models.layers import Dtype, Initializer

Array = jax.Array


def _torch_bias(fan_in: int) -> Initializer:
  return initial.symmetric_uniform(1 / math.sqrt(fan_in))


# Variant -> (`drops_outputs` and `input_bias` of the LSTMs; initial values of
# the linear layer's kernel; and of its bias, by the fan in).
VARIANTS = {
  # luheng/deep_srl, neural_srl/theano/layer.py.
  'published': (
    True,
    True,
    nn.initializers.normal(0.01),
    lambda fan_in: nn.initializers.zeros,
  ),
  # AllenNLP 0.9.0, training_config/semantic_role_labeler.jsonnet.
  'allennlp': (False, True, nn.initializers.orthogonal(), _torch_bias),
  # Its semantic_role_labeler_elmo.jsonnet.
  'allennlp_elmo': (False, False, nn.initializers.orthogonal(), _torch_bias),
}


class DeepSrl(nn.Module):
  """Highway LSTMs and a linear layer: logits of the tags of a predicate.

  Attributes:
    num_outputs: K tags.
    lstm_dim: F of each layer.
    num_layers: of one direction each.
    dropout_rate: of the hidden states, see `AlternatingHighwayLstm`.
    variant: one of `VARIANTS`: how dropout is applied, and the linear layer's
      initial values.
    dtype: of activations; parameters and logits are float32.
  """

  num_outputs: int
  lstm_dim: int = 300
  num_layers: int = 8
  dropout_rate: float = 0.1
  variant: str = 'published'
  dtype: Dtype = jnp.float32

  @nn.compact
  def __call__(
    self,
    x_BPTD: Array,
    mask_BPT: Array,
    added_BPTE: Array | None = None,
    *,
    train: bool,
  ) -> Array:
    """Returns float32 logits [B, T, num_outputs], meaningless at padding.

    Args:
      x_BPTD: vectors of words, float [B, 1, T, D].
      mask_BPT: bool; True at real words, which come first.
      added_BPTE: float [B, 1, T, E], appended to the LSTMs' outputs.
      train: apply dropout (rng stream 'dropout').

    Raises:
      ValueError: if there is not one text, or `variant` is unknown.
    """
    parts.check_texts(x_BPTD.shape, 1, 'a tagger')
    if self.variant not in VARIANTS:
      raise ValueError(
        f'variant is {self.variant!r}, expected one of {[*VARIANTS]}'
      )
    drops_outputs, input_bias, kernel_init, make_bias_init = VARIANTS[
      self.variant
    ]
    encoded_BTF = AlternatingHighwayLstm(
      num_layers=self.num_layers,
      lstm_dim=self.lstm_dim,
      dropout_rate=self.dropout_rate,
      drops_outputs=drops_outputs,
      input_bias=input_bias,
      dtype=self.dtype,
      name='encoder',
    )(x_BPTD[:, 0], mask_BPT[:, 0], train=train)
    read_BPTF = parts.append(encoded_BTF[:, None], added_BPTE, mask_BPT)
    read_BTF = read_BPTF[:, 0].astype(jnp.float32)
    return layers.Linear(
      features=(self.num_outputs,),
      in_names=('embed',),
      out_names=('classes',),
      kernel_init=kernel_init,
      bias_init=make_bias_init(read_BTF.shape[-1]),
      name='logits',
    )(read_BTF)
