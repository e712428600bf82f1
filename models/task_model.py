"""A pre-trained encoder with the head of a task.

Shapes: B batch, K classes or choices, R rows of the encoder (B, or B x K), T
position, C characters of a word, D features, L layers, V vocabulary, padded.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from models import crf, layers, lstm, scalar_mix
from models.dropout import Dropout
from models.features import FEATURES, HEADS, check_name

Array = jax.Array


class TaskModel(nn.Module):
  """An encoder, its features, an optional BiLSTM, and a linear layer.

  The encoder's parameters are at the top of the tree, as without a task; beside
  them are the head's under its name, 'bilstm' and 'mix'.

  A classifier reads one vector: a BERT's pooler output, or another model's
  hidden state at `last` (Radford et al. 2018, section 3.2). With features other
  than 'last', it reads the features at [CLS], the first token, or at `last`;
  with a BiLSTM, which an ELMo needs, the last outputs of both directions.

  [CLS] of a left-to-right BERT sees no other token. With its field pool='last',
  the pooler and a classifier read the last token, and for spans the last token
  changes places with [CLS], which means no answer; neither is text.

  Attributes:
    backbone: a Bert; a left-to-right model with Gpt's arguments; or an Elmo,
      which must be frozen. Its `FORM` tells which: 'bert', 'gpt', 'lstm' (no
      layers but the last) or 'elmo'.
    head: one of `features.HEADS`.
    num_outputs: K classes or tags; 1 for a score or choices; 2 for spans.
    dropout_rate: of the head's inputs, in training; none before
      'span_classifier' (google-research/bert run_squad.py).
    both_orders: the second axis is both orders of a pair, to add, not choices.
    features: one of `features.FEATURES`, or 'mix', the average of all layers.
    frozen: the encoder, its pooler included, gets no gradient and no dropout.
    bilstm_layers: layers of the BiLSTM; 0: no BiLSTM.
    bilstm_dim: cells of each layer and direction.
    lm: return the language model's logits too: next tokens, or of a BERT those
      that are hidden in a second reading.
    lm_positions: rows of a Gpt's position table in the softmax beside the
      tokens, as GPT's release fine-tunes.
    transitions: of a 'token_classifier', the allowed ones between tags, see
      `crf.Crf`; None: each tag is read alone.
    path_scores: of the paths of tags, one of `crf.SCORES`.
  """

  backbone: nn.Module
  head: str
  num_outputs: int
  dropout_rate: float
  both_orders: bool = False
  features: str = 'last'
  frozen: bool = False
  bilstm_layers: int = 0
  bilstm_dim: int = 768
  lm: bool = False
  lm_positions: int = 0
  transitions: crf.Allowed | None = None
  path_scores: str = 'learned'

  def setup(self):
    """Puts the encoder's parameters beside the head's."""
    nn.share_scope(self, self.backbone)

  @nn.compact
  def __call__(
    self,
    tokens: Array,
    token_mask: Array,
    token_types: Array | None,
    positions: Array,
    last: Array | None,
    characters: Array | None = None,
    tag_mask: Array | None = None,
    masked_tokens: Array | None = None,
    mlm_positions: Array | None = None,
    *,
    train: bool,
  ) -> dict[str, Array]:
    """Returns the logits of labels, choices, tags or positions.

    Args:
      tokens: int [B, T]; [B, K, T] for choices, or with K = 2 for both orders.
        For an Elmo, a number below 2^30 for each distinct word.
      token_mask: bool, likewise; True at real tokens, which come first. Outputs
        of empty rows are finite but meaningless.
      token_types: int, likewise, 0 in A and padding, 1 in B; for BERT only.
      positions: int, likewise.
      last: int [B] or [B, K], place of the last token; unused by a BERT without
        pool='last' and by 'token_classifier'.
      characters: int [..., T, C], the characters of the words, for Elmo only.
      tag_mask: bool [B, T], with `transitions`; True where a word's tag is.
      masked_tokens: with `lm` for a BERT, the tokens with some hidden, int like
        `tokens`; without them no token is predicted.
      mlm_positions: int [B, P] or [B, K, P], places of the hidden tokens.
      train: apply dropout (rng stream 'dropout').

    Returns:
      float32 logits: [B, num_outputs] of 'classifier', [B, K] of choices, [B,
      T, num_outputs] of tokens. With `lm`, lm_logits [B, T, V] or [B, K, T, V],
      of a BERT with P in place of T, and with `lm_positions` position_logits
      likewise; in training without `lm_positions` lm_head, what the lm_logits
      are made of (`layers.Head`), of R rows. With the features 'mix',
      mix_penalty [], the sum of the squares of its weights. With `transitions`,
      see `crf.Crf.outputs`.
    """
    self._check(tokens.shape)
    rows = tokens.shape[:-1]

    def flatten(x: Array) -> Array:
      return x.reshape(-1, x.shape[-1])

    mask_RT = flatten(token_mask)
    if self._is_elmo:
      ids_RTC = characters.reshape(-1, *characters.shape[-2:])
      layers_LRTD, _ = self.backbone(
        ids_RTC, mask_RT.sum(axis=1), words=flatten(tokens)
      )
      outputs = {'layers': layers_LRTD, 'hidden': layers_LRTD[-1]}
    else:
      inputs = [flatten(tokens), mask_RT, flatten(positions)]
      if self._is_bert:
        inputs.insert(2, flatten(token_types))
      request = {} if self.features == 'last' else {'all_layers': True}
      if self.lm and self.lm_positions:
        request['score_positions'] = self.lm_positions
      request['train'] = train and not self.frozen
      if self.lm and self._is_bert:
        hidden = None if masked_tokens is None else flatten(masked_tokens)
        places = None if masked_tokens is None else flatten(mlm_positions)
        outputs = self._read_twice(inputs, hidden, places, request)
      else:
        outputs = self.backbone(*inputs, **request)
    if self.frozen:
      outputs = jax.tree.map(lax.stop_gradient, outputs)

    features_RTD, vector_RD = self._read(outputs, mask_RT, last)
    # Named, because the encoder's dropouts in the same scope may be numbered.
    dropout = Dropout(self.dropout_rate if train else 0.0, name='head_dropout')
    if self.head == 'classifier':
      vectors = vector_RD.reshape(*rows, -1)
      if self.both_orders:
        vectors = vectors.sum(axis=1)
      # One mask for all choices (openai/finetune-transformer-lm train.py).
      shape = (rows[0], *[1] * (vectors.ndim - 2), vectors.shape[-1])
      read = vectors * dropout(jnp.ones(shape, vectors.dtype))
    elif self.head == 'token_classifier':
      read = dropout(features_RTD)
    else:
      read = features_RTD
    logits = layers.Linear(
      features=(self.num_outputs,),
      in_names=('embed',),
      out_names=('classes',),
      kernel_init=(
        layers.truncated_normal
        if self._is_bert
        else nn.initializers.normal(0.02)  # as GPT's own
      ),
      name=self.head,
    )(read)
    if self._has_choices(tokens.ndim):
      logits = logits[..., 0]
    results = {'logits': logits}
    if self.transitions is not None:
      tags = crf.Crf(
        self.num_outputs, self.transitions, self.path_scores, name='crf'
      )
      results = tags.outputs(logits, tag_mask, train=train)
    if self.features == 'mix':
      results['mix_penalty'] = scalar_mix.regularisation(
        self.variables['params'], 1.0
      )
    for name in ('lm_logits', 'position_logits') if self.lm else ():
      if name in outputs:
        scores = outputs[name]
        results[name] = scores.reshape(*rows, *scores.shape[1:])
    if self.lm and not self.lm_positions and 'lm_head' in outputs:
      results['lm_head'] = outputs['lm_head']
    return results

  def _read_twice(
    self,
    inputs: list[Array],
    hidden_RT: Array | None,
    places_RP: Array | None,
    request: dict[str, Any],
  ) -> dict[str, Array]:
    """Returns the outputs of rows, and the predictions of hidden tokens.

    A row and the same row with hidden tokens lie side by side, so that both are
    on one device.
    """
    if hidden_RT is None:
      first_R1 = jnp.zeros_like(inputs[0][:, :1])
      return self.backbone(*inputs, first_R1, **request)

    def beside(x: Array, y: Array) -> Array:
      return jnp.stack([x, y], axis=1).reshape(-1, x.shape[1])

    def one(x: Array, which: int, axis: int) -> Array:
      x = x.reshape(*x.shape[:axis], -1, 2, *x.shape[axis + 1 :])
      return x.take(which, axis=axis + 1)

    tokens_RT, *others = inputs
    outputs = self.backbone(
      beside(tokens_RT, hidden_RT),
      *(beside(x, x) for x in others),
      beside(places_RP, places_RP),
      **request,
    )
    predicted = {'lm_logits': one(outputs.pop('mlm_logits'), 1, axis=0)}
    head = outputs.pop('mlm_head', None)
    if head is not None:
      predicted['lm_head'] = head._replace(x_BPD=one(head.x_BPD, 1, axis=0))
    plain = {
      name: one(x, 0, axis=int(name == 'layers')) for name, x in outputs.items()
    }
    return plain | predicted

  def _read(
    self, outputs: dict[str, Array], mask_RT: Array, last: Array | None
  ) -> tuple[Array, Array | None]:
    """Returns the features of tokens, and the vectors of a classifier."""
    if self.features == 'mix':
      layers_LRTD = outputs['layers']
      features_RTD = scalar_mix.ScalarMix(len(layers_LRTD), name='mix')(
        layers_LRTD, mask_RT
      )
    else:
      features_RTD = FEATURES[self.features](outputs)
    if self.bilstm_layers:
      return lstm.BiLstm(
        num_layers=self.bilstm_layers,
        lstm_dim=self.bilstm_dim,
        dtype=self.backbone.dtype,
        name='bilstm',
      )(features_RTD, mask_RT)
    if self.head == 'span_classifier' and self._is_bert and self._reads_last:
      features_RTD = _exchange_ends(features_RTD, last)
    if self.head != 'classifier':
      return features_RTD, None
    if self._is_bert and self.features == 'last':
      return features_RTD, outputs['pooled']
    if self._reads_last:
      return features_RTD, layers.take_at(features_RTD, last)
    return features_RTD, features_RTD[:, 0]

  @property
  def _form(self) -> str:
    return getattr(self.backbone, 'FORM', 'lstm')

  @property
  def _is_bert(self) -> bool:
    return self._form == 'bert'

  @property
  def _reads_last(self) -> bool:
    return not self._is_bert or self.backbone.pool == 'last'

  @property
  def _is_elmo(self) -> bool:
    return self._form == 'elmo'

  def _has_choices(self, ndim: int) -> bool:
    return ndim == 3 and not self.both_orders

  def _check(self, shape: tuple[int, ...]) -> None:
    """Checks the fields against each other and the shape of the tokens."""
    check_name('head', self.head, HEADS)
    check_name('features', self.features, (*FEATURES, 'mix'))
    if len(shape) not in (2, 3) or (
      self.head != 'classifier' and len(shape) != 2
    ):
      raise ValueError(
        f'tokens are {shape}, expected [B, T], or of a classifier [B, K, T] for'
        ' choices or orders'
      )
    if self.both_orders and (len(shape) != 3 or shape[1] != 2):
      raise ValueError(
        f'tokens are {shape}, expected [B, 2, T]: both orders of a pair'
      )
    if self._has_choices(len(shape)) and self.num_outputs != 1:
      raise ValueError(
        f'num_outputs is {self.num_outputs}, expected 1: each of {shape[1]}'
        ' choices has one score'
      )
    if self.head == 'span_classifier' and self.num_outputs != 2:
      raise ValueError(
        f'num_outputs is {self.num_outputs}, expected 2: a span has a start and'
        ' an end'
      )
    if self.features != 'last' and self._form == 'lstm':
      raise ValueError(
        f"features is {self.features!r}, expected 'last':"
        f' {type(self.backbone).__name__} returns no other layers'
      )
    if self.transitions is not None and self.head != 'token_classifier':
      raise ValueError(
        f"head is {self.head!r}, expected 'token_classifier' below paths"
      )
    if self.lm_positions and self._form != 'gpt':
      raise ValueError(
        f'lm_positions is {self.lm_positions}, expected 0:'
        f' {type(self.backbone).__name__} scores no positions'
      )
    no_head = self._is_bert and 'mlm' not in self.backbone.heads
    if self.lm and (no_head or self._is_elmo):
      raise ValueError(
        f'lm is True, but a {type(self.backbone).__name__} predicts no token'
        " here; a Bert does with 'mlm' among its heads"
      )
    if self._is_elmo and not self.frozen:
      raise ValueError('an Elmo must be frozen: set frozen=True')
    if self._is_elmo and self.head == 'classifier' and not self.bilstm_layers:
      raise ValueError(
        'bilstm_layers is 0, expected 1 or more: an Elmo has vectors of words'
        ' only'
      )
    pooled = self.head == 'classifier' and self.features == 'last'
    if (
      self._is_bert
      and pooled
      and not self.bilstm_layers
      and 'pooler' not in self.backbone.heads
    ):
      raise ValueError(
        f"the encoder's heads are {self.backbone.heads}, expected 'pooler'"
        ' among them for the classifier'
      )


def _exchange_ends(x_BTD: Array, last_B: Array) -> Array:
  """Returns rows with the first and the last token exchanged."""
  places_BT = jnp.broadcast_to(jnp.arange(x_BTD.shape[1]), x_BTD.shape[:2])
  last_B1 = last_B[:, None]
  from_BT = jnp.where(places_BT == last_B1, 0, places_BT)
  from_BT = jnp.where(places_BT == 0, last_B1, from_BT)
  return jnp.take_along_axis(x_BTD, from_BT[:, :, None], axis=1)


def trainable(params: dict[str, Any], frozen: bool) -> dict[str, Any]:
  """Returns a tree of bool, False at frozen weights, which must not decay."""
  added = (*HEADS, 'bilstm', 'mix', 'crf')
  return {
    name: jax.tree.map(lambda _, kept=name in added: kept or not frozen, part)
    for name, part in params.items()
  }
