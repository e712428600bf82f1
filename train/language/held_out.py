"""Log-probabilities of held-out text by every family of language models.

All score the same tokens: those of a text but its first.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.store import corpus
from data.vocabulary.words import Words
from models import elmo
from models.layers import Params
from train.architectures import families
from train.architectures.architecture import Architecture, Vocabulary
from train.host import console
from train.language import cloze, scoring
from train.vectors import length_batches, token_windows
from train.vectors.trained_model import TrainedModel

PASSAGE = 256  # tokens of a text where only some are scored, about
CONTEXT = 128  # words that an ELMo reads to score half of them
ROWS = 32  # windows at a time


class Text(NamedTuple):
  """A stretch of whole sentences: token ids, and where each begins."""

  tokens: np.ndarray
  sentences: np.ndarray


def read(store: corpus.Store, num_tokens: int | None = None) -> list[Text]:
  """Returns the held-out documents of two tokens or more.

  With `num_tokens`, passages of them instead, about `PASSAGE` tokens each, as
  many as have that number, evenly spaced.
  """
  found = []
  for document in np.flatnonzero(store.held_out):
    first, last = store.documents[document : document + 2]
    bounds = np.asarray(store.sentences[first : last + 1])
    edges = bounds[[0, -1]]
    if num_tokens is not None:
      places = np.arange(bounds[0], bounds[-1], PASSAGE)
      edges = np.unique(bounds[np.searchsorted(bounds, [*places, bounds[-1]])])
    for begin, end in zip(edges, edges[1:], strict=False):
      starts = bounds[(bounds >= begin) & (bounds < end)] - begin
      if end - begin > 1:
        found.append(Text(np.asarray(store.tokens[begin:end]), starts))
  if num_tokens is not None:
    count = min(-(-num_tokens // PASSAGE), len(found))
    found = [found[i * len(found) // count] for i in range(count)]
  return found


def check_predicts_tokens(found: TrainedModel) -> None:
  """Checks that a model predicts the tokens of a text, else ValueError."""
  family = found.family
  if family.reads_words or families.is_for(found.name, 'score'):
    return
  if not families.is_for(found.name, 'fill_masks'):
    raise ValueError(
      f'{found.folder} holds a {found.name}, which predicts no tokens of a'
      f' text: expected {", ".join(families.names_for("score"))}, an elmo or a'
      ' bert'
    )
  cloze.check_model(found.model)


def score(
  found: TrainedModel, store: corpus.Store, texts: list[Text]
) -> dict[str, list[np.ndarray]]:
  """Returns {reading: log-probabilities in nats of each text}.

  A left-to-right model has one reading, '', and sees as many tokens as it has
  positions, by windows half as far apart. ELMo has two, 'forward' and
  'backward'. A BERT has 'pseudo': each token is masked alone (Salazar et al.
  2020), so its neighbours on both sides are seen, and the product over a text
  is no probability. Raises ValueError for a model that predicts no tokens.
  """
  check_predicts_tokens(found)
  family = found.family
  known = Vocabulary.of(store.tokenizer).known
  if family.reads_words:
    pairs = [
      _read_both_ways(found, store, text)
      for text in console.counted(texts, len(texts), 'texts')
    ]
    forward, backward = zip(*pairs, strict=True)
    return {'forward': list(forward), 'backward': list(backward)}
  ids = [np.asarray(known(text.tokens.astype(np.int32))) for text in texts]
  if families.is_for(found.name, 'score'):
    context, stride = scoring.window_sizes(found, None, None)
    options = {'context': context, 'stride': stride}
    return {
      '': [
        scoring.score_tokens(found.model, found.params, tokens, **options)
        for tokens in ids
      ]
    }
  return {
    'pseudo': [
      _hide_each(found, family, tokens)
      for tokens in console.counted(ids, len(ids), 'texts')
    ]
  }


def _hide_each(
  found: TrainedModel, family: Architecture, tokens: np.ndarray
) -> np.ndarray:
  """Returns BERT's float64 [tokens - 1], each token hidden in its window."""
  before, after = family.frame(found.tokenizer)
  room = found.model.max_length - len(before) - len(after)
  scores = np.zeros(len(tokens))
  for window in token_windows.cut(
    len(tokens), room, max(1, room // 2), left_only=False
  ):
    text = [*before, *tokens[window.start : window.end].tolist(), *after]
    width = min(length_batches.round_length(len(text)), found.model.max_length)
    row, _ = length_batches.pad([text], 1, width)
    for first in range(max(window.first, 1), window.last, ROWS):
      last = min(first + ROWS, window.last)
      places = np.arange(first, first + ROWS).clip(max=last - 1)
      values = _masked(
        found.model,
        found.params,
        row[0],
        len(text),
        places - window.start + len(before),
        found.tokenizer.mask_id,
        family=family,
      )
      scores[first:last] = np.asarray(values)[: last - first]
  return scores[1:]


@functools.partial(jax.jit, static_argnames=('model', 'family'))
def _masked(
  model: nn.Module,
  params: Params,
  tokens_T: jax.Array,
  length: jax.Array,
  places_B: jax.Array,
  mask_id: jax.Array,
  *,
  family: Architecture,
) -> jax.Array:
  """Returns float32 [B], the log-probability of a text's token at each place.

  Each is masked in a row of its own.
  """
  at_T = jnp.arange(tokens_T.shape[0])
  hidden_BT = jnp.where(at_T == places_B[:, None], mask_id, tokens_T)
  at_BT = jnp.broadcast_to(at_T, hidden_BT.shape)
  inputs = family.text_inputs(hidden_BT, at_BT < length, at_BT)
  outputs = model.apply(
    {'params': params}, *inputs, places_B[:, None], train=False
  )
  log_probs_BV = jax.nn.log_softmax(outputs['mlm_logits'][:, 0])
  return jnp.take_along_axis(log_probs_BV, tokens_T[places_B][:, None], 1)[:, 0]


def _read_both_ways(
  found: TrainedModel, store: corpus.Store, text: Text
) -> tuple[np.ndarray, np.ndarray]:
  """Returns both directions' float64 [tokens - 1] by an ELMo.

  It reads sentences one after the other, as in its training, where the ends of
  sentences are predicted, too; they are not scored.
  """
  words_2M, targets_2M, places_2M = _streams(store.tokenizer, text)
  scores = np.zeros((2, len(text.tokens) + 1))  # the last: ends of sentences
  for part, losses_KBT in _losses(found, store, words_2M, targets_2M):
    for row, window in enumerate(part):
      inside = slice(window.first - window.start, window.last - window.start)
      places = places_2M[:, window.first : window.last]
      for tower in range(elmo.NUM_TOWERS):
        scores[tower, places[tower]] = -losses_KBT[tower, row, inside]
  forward, backward = scores[:, 1:-1]
  return forward, backward


def _streams(
  words: Words, text: Text
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the inputs, targets and targets' places of both towers, [2, M].

  A sentence of n words has n + 1 positions; a symbol's place is -1.
  """
  bounds = [*text.sentences.tolist(), len(text.tokens)]
  places: tuple[list, list] = ([], [])
  begins = []
  for first, last in zip(bounds, bounds[1:], strict=False):
    begins.append(len(places[0]))
    places[0].extend((*range(first, last), -1))
    places[1].extend((*range(last - 1, first - 1, -1), -1))
  places_2M = np.array(places)
  ends = np.array([[words.end_id], [words.begin_id]])
  tokens = text.tokens.astype(np.int32)
  targets_2M = np.where(places_2M < 0, ends, tokens[places_2M])
  words_2M = np.roll(targets_2M, 1, axis=1)
  words_2M[:, begins] = ends[::-1]
  return words_2M, targets_2M, places_2M


def _losses(
  found: TrainedModel,
  store: corpus.Store,
  words_2M: np.ndarray,
  targets_2M: np.ndarray,
) -> Iterator[tuple[list[token_windows.Window], np.ndarray]]:
  """Yields batches of windows, and the losses float32 [2, B, T] in them."""
  model, known = found.model, Vocabulary.of(store.tokenizer).known
  cut = token_windows.cut(
    words_2M.shape[1], CONTEXT, CONTEXT // 2, left_only=True
  )
  for first in range(0, len(cut), ROWS):
    part = cut[first : first + ROWS]
    words, targets = (
      np.stack([_rows(stream, part) for stream in streams])
      for streams in (words_2M, targets_2M)
    )
    letters = None if model.num_words else store.tokenizer.characters[words]
    if model.num_words:
      words = np.asarray(known(words))
    losses = read_on(
      model, found.params, words, letters, np.asarray(known(targets))
    )
    yield part, np.asarray(losses)


def _rows(stream: np.ndarray, part: list[token_windows.Window]) -> np.ndarray:
  rows = [stream[window.start : window.end] for window in part]
  return length_batches.pad(rows, ROWS, CONTEXT)[0]


@functools.partial(jax.jit, static_argnums=0)
def read_on(
  model: elmo.Elmo,
  params: Params,
  words_KBT: jax.Array,
  characters_KBTC: jax.Array | None,
  targets_KBT: jax.Array,
) -> jax.Array:
  """Returns the losses float32 [K, B, T] of rows read with empty memories."""
  state = elmo.empty_state(model, words_KBT.shape[1])
  outputs = model.apply(
    {'params': params},
    words_KBT,
    characters_KBTC,
    targets_KBT,
    *(jnp.moveaxis(array, 2, 0) for array in state),
    train=False,
    method='read_on',
  )
  return outputs['losses']
