"""GLUE's baseline "BiLSTM+ELMo+Attn" (Wang et al. 2018).

Shapes: B example, P text of an example, T position, D features, E added
features, F cells. Sizes and rates are the paper's; the order of the parts, the
classifier without dropout and the initial values, PyTorch's, are those of
nyu-mll/GLUE-baselines, src/models.py and src/main.py.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from models import lstm
from models.dropout import Dropout
from models.elmo_tasks import parts
from models.layers import Dtype

Array = jax.Array


class Classifier(nn.Module):
  """The classifier of a task, above the encoder that tasks share.

  Attributes:
    num_outputs: classes; 1 for a score.
    has_hidden: put a tanh layer before the linear one; scores have none.
    hidden_dim: of that layer.
  """

  num_outputs: int
  has_hidden: bool = True
  hidden_dim: int = 512

  @nn.compact
  def __call__(self, vectors_BD: Array) -> Array:
    """Returns float32 logits [B, num_outputs] for vectors of examples."""
    x_BD = vectors_BD.astype(jnp.float32)
    if self.has_hidden:
      x_BD = jnp.tanh(
        parts.linear(x_BD, self.hidden_dim, 'torch', name='hidden')
      )
    return parts.linear(
      x_BD, self.num_outputs, 'torch', out_names=('classes',), name='logits'
    )


class BilstmAttention(nn.Module):
  """A BiLSTM, attention between the texts of a pair, and the maxima of words.

  A model of several tasks reads `encode`, which gives single texts and pairs
  the same first BiLSTM, with a `Classifier` for each task.

  Attributes:
    num_outputs: classes; 1 for a score.
    hidden_classifier: the classifier's `has_hidden`.
    lstm_dim: F of each layer and direction.
    num_layers: of the first BiLSTM; the second, of pairs, has one.
    classifier_dim: the classifier's `hidden_dim`.
    dropout_rate: of the BiLSTMs' inputs and of the vectors that are pooled.
    dtype: of activations; parameters and logits are float32.
  """

  num_outputs: int
  hidden_classifier: bool = True
  lstm_dim: int = 1500
  num_layers: int = 2
  classifier_dim: int = 512
  dropout_rate: float = 0.2
  dtype: Dtype = jnp.float32

  def setup(self):
    """Creates the classifier."""
    self.classifier = Classifier(
      self.num_outputs, self.hidden_classifier, self.classifier_dim
    )

  def __call__(
    self,
    x_BPTD: Array,
    mask_BPT: Array,
    added_BPTE: Array | None = None,
    *,
    train: bool,
  ) -> Array:
    """Returns float32 logits [B, num_outputs], see `encode`."""
    return self.classifier(
      self.encode(x_BPTD, mask_BPT, added_BPTE, train=train)
    )

  @nn.compact
  def encode(
    self,
    x_BPTD: Array,
    mask_BPT: Array,
    added_BPTE: Array | None = None,
    *,
    train: bool,
  ) -> Array:
    """Returns vectors of examples: [B, 2 F + E] of texts, [B, 8 F] of pairs.

    Args:
      x_BPTD: vectors of words, float [B, 1 or 2, T, D].
      mask_BPT: bool; True at real words, which come first.
      added_BPTE: float [B, P, T, E], appended to the first BiLSTM's outputs, of
        a pair behind the other text's average.
      train: apply dropout (rng stream 'dropout').
    """
    is_pair = x_BPTD.shape[1] == 2
    parts.check_texts(x_BPTD.shape, 2 if is_pair else 1, 'this model')
    rate = self.dropout_rate if train else 0.0
    encoded_BPTF = parts.read_texts(
      lstm.BiLstm(
        self.num_layers, self.lstm_dim, self.dtype, 'torch', name='encoder'
      ),
      Dropout(rate)(x_BPTD),
      mask_BPT,
      train=train,
    )
    if is_pair:
      attended_BPTF = parts.attend(
        encoded_BPTF, encoded_BPTF[:, ::-1], mask_BPT[:, ::-1]
      )
      encoded_BPTF = jnp.concatenate([encoded_BPTF, attended_BPTF], axis=-1)
    encoded_BPTF = parts.append(encoded_BPTF, added_BPTE, mask_BPT)
    encoded_BPTF = Dropout(rate)(encoded_BPTF)
    if not is_pair:
      return parts.max_pool(encoded_BPTF, mask_BPT)[:, 0]
    modelled_BPTF = parts.read_texts(
      lstm.BiLstm(1, self.lstm_dim, self.dtype, 'torch', name='pair_encoder'),
      encoded_BPTF,
      mask_BPT,
      train=train,
    )
    pooled_BPF = parts.max_pool(Dropout(rate)(modelled_BPTF), mask_BPT)
    u_BF, v_BF = pooled_BPF[:, 0], pooled_BPF[:, 1]
    return jnp.concatenate(
      [u_BF, v_BF, jnp.abs(u_BF - v_BF), u_BF * v_BF], axis=-1
    )


class SharedBilstmAttention(nn.Module):
  """The model of one of several tasks: a classifier above a common encoder.

  Attributes:
    encoder: common to the tasks; its own classifier is not used.
    task: name of the task, which is in that of the classifier's parameters.
  """

  encoder: BilstmAttention
  task: str

  @property
  def num_outputs(self) -> int:
    """Classes of the task; 1 for a score."""
    return self.encoder.num_outputs

  @nn.compact
  def __call__(
    self,
    x_BPTD: Array,
    mask_BPT: Array,
    added_BPTE: Array | None = None,
    *,
    train: bool,
  ) -> Array:
    """Returns float32 logits [B, num_outputs], see `BilstmAttention.encode`."""
    vectors = self.encoder.encode(x_BPTD, mask_BPT, added_BPTE, train=train)
    return Classifier(
      self.num_outputs,
      self.encoder.hidden_classifier,
      self.encoder.classifier_dim,
      name=f'classifier_{self.task}',
    )(vectors)
