"""How much each token of a text surprises a model, and the likeliest instead.

Surprise is minus the log-probability. Sums are those of `scoring.score_text`
and of `sentence_sums.score`. Shapes: T position, P predicted place, V
vocabulary, C characters of a word, K likeliest token.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import rich.cells
from etils import epath
from flax import linen as nn

from data.vocabulary import characters
from models.layers import Params
from train.architectures import families
from train.architectures.architecture import Architecture, Vocabulary
from train.host import console, files, markup, pages
from train.host.files import Json
from train.host.markup import Markup
from train.language import scoring, sentence_sums
from train.vectors import length_batches
from train.vectors.trained_model import TrainedModel

MOST_TOKENS = 5000  # on a page
MOST_BITS = 16.0  # of surprise, at which a token has the full colour
READINGS = {
  '': 'from left to right',
  'forward': 'from left to right',
  'backward': 'from right to left',
  'pseudo': 'each token hidden in turn',
}
_Likeliest = tuple[np.ndarray, np.ndarray, np.ndarray]


class Token(NamedTuple):
  """A token in its place.

  Attributes:
    piece: as the vocabulary has it.
    log_prob: in nats; None at a first token, which nothing predicts.
    likeliest: (piece, probability) of the likeliest in its place.
  """

  piece: str
  log_prob: float | None
  likeliest: Sequence[tuple[str, float]] = ()

  def as_dict(self) -> dict[str, Json]:
    """Returns the token for JSON."""
    return {
      'piece': self.piece,
      'log_prob': self.log_prob,
      'likeliest': [
        {'piece': piece, 'probability': chance}
        for piece, chance in self.likeliest
      ],
    }


class Reading(NamedTuple):
  """A text as a model reads it once.

  Attributes:
    name: a key of `READINGS`.
    line: number of the line in the text; 0 for the whole text.
    tokens: in the order of the text.
  """

  name: str
  line: int
  tokens: Sequence[Token]

  @property
  def scored(self) -> list[float]:
    """The log-probabilities."""
    return [x.log_prob for x in self.tokens if x.log_prob is not None]

  @property
  def perplexity(self) -> float:
    """Of the scored tokens."""
    return perplexity(self.scored)

  def as_dict(self) -> dict[str, Json]:
    """Returns the reading for JSON."""
    return {
      'reading': READINGS[self.name],
      'line': self.line,
      'perplexity': self.perplexity,
      'tokens': [token.as_dict() for token in self.tokens],
    }


def perplexity(log_probs: Sequence[float]) -> float:
  """Returns the perplexity of tokens with these log-probabilities."""
  return scoring.perplexity(-math.fsum(log_probs) / len(log_probs))


def read_whole(
  found: TrainedModel,
  ids: Sequence[int],
  *,
  context: int,
  stride: int,
  top: int,
) -> Reading:
  """Returns the reading of a GPT or LSTM, by windows as `score_text` has them.

  `context` and `stride` are those of `scoring.window_sizes`.
  """
  pieces = found.tokenizer.pieces
  tokens = [Token(pieces[ids[0]], None)]
  for window in scoring.windows_of(len(ids), context, stride):
    new = window.last - window.first
    found_here = _read_on(found, ids[window.start : window.end], top)
    tokens += _tokens(
      found,
      ids[window.first : window.last],
      tuple(part[-new:] for part in found_here),
    )
  return Reading('', 0, tokens)


def read_lines(
  found: TrainedModel, lines: Sequence[str], *, top: int
) -> Iterator[Reading]:
  """Yields the readings of lines, each by itself, see `sentence_sums.describe`.

  An ELMo reads each line twice. Raises ValueError for a line that is longer
  than the model reads.
  """
  encoded = sentence_sums.encode(found, lines)
  numbered = zip(lines, encoded, strict=True)
  for number, (_, ids) in enumerate(
    console.counted(numbered, len(lines), 'lines'), start=1
  ):
    if found.reads_words:
      yield from _both_ways(found, ids, number, top)
    elif sentence_sums.hides(found):
      yield _hidden(found, ids, number, top)
    else:
      tokens = _tokens(found, ids[1:], _read_on(found, ids, top))
      yield Reading('', number, [*tokens])


def scores(found: TrainedModel, lines: Sequence[str]) -> dict[str, list[float]]:
  """Returns reading -> log-probabilities of all lines, in any order.

  They are those of `read_lines`, whose likeliest take longer.
  """
  names = ('pseudo',) if sentence_sums.hides(found) else ('',)
  if found.reads_words:
    names = 'forward', 'backward'
  scored: dict[str, list[float]] = {name: [] for name in names}
  for _, log_probs in sentence_sums.log_probs(found, lines):
    for name, part in zip(names, np.split(log_probs, len(names)), strict=True):
      scored[name] += part.tolist()
  return scored


def continued(
  found: TrainedModel,
  prompt: Sequence[int],
  written: Sequence[int],
  *,
  top: int,
) -> list[Token]:
  """Returns the tokens that a GPT wrote behind a prompt.

  Prompt and tokens are at most one more than the positions of the model.
  """
  context = found.model.max_length
  ids = [*prompt, *written]
  whole = read_whole(found, ids, context=context, stride=context, top=top)
  return list(whole.tokens[len(prompt) :])


def as_table(tokens: Sequence[Token]) -> Iterator[str]:
  """Yields the lines of a table of tokens and the likeliest at each step."""
  rows = [
    [
      str(step),
      f'{_shown(token.piece)} {math.exp(token.log_prob):.4f}',
      *(f'{_shown(piece)} {chance:.4f}' for piece, chance in token.likeliest),
    ]
    for step, token in enumerate(tokens, start=1)
  ]
  if not rows:
    return
  rows.insert(
    0, ['step', 'written', 'likeliest', *map(str, range(2, len(rows[0]) - 1))]
  )
  widths = [
    max(map(rich.cells.cell_len, column)) for column in zip(*rows, strict=True)
  ]
  for row in rows:
    yield '  '.join(
      cell + ' ' * (width - rich.cells.cell_len(cell))
      for cell, width in zip(row, widths, strict=True)
    ).rstrip()


def check_size(path: epath.PathLike, num_tokens: int) -> None:
  """Checks that so many tokens have room on a page."""
  if num_tokens > MOST_TOKENS:
    raise ValueError(
      f'--out {path}: found {num_tokens:,} tokens, expected {MOST_TOKENS:,} at'
      ' most on a page; leave --out out to score any text'
    )


def check_top(found: TrainedModel, option: str, top: int) -> None:
  """Checks that a vocabulary has as many pieces as are to be shown."""
  most = found.model.vocab_size
  if top > most:
    raise ValueError(
      f'{option}={top}: expected {most:,} at most, the vocabulary of'
      f' {found.folder}'
    )


def _tokens(
  found: TrainedModel, ids: Sequence[int], likeliest: _Likeliest
) -> Iterator[Token]:
  """Yields tokens with their scores [P], likeliest [P, K] and chances."""
  pieces = found.tokenizer.pieces
  for token, log_prob, top, chances in zip(
    ids, *map(np.asarray, likeliest), strict=True
  ):
    yield Token(
      pieces[token],
      float(log_prob),
      [(pieces[i], float(p)) for i, p in zip(top, chances, strict=True)],
    )


def _read_on(found: TrainedModel, ids: Sequence[int], top: int) -> _Likeliest:
  """Returns scores and likeliest of each of the tokens but the first."""
  found_here = _next(
    found.model,
    found.params,
    _padded(ids, found.model.max_length + 1),
    len(ids),
    family=found.family,
    by_mlm=families.is_for(found.name, 'fill_masks'),
    top=top,
  )
  return tuple(np.asarray(each)[: len(ids) - 1] for each in found_here)


def _padded(ids: Sequence[int], most: int) -> np.ndarray:
  """Returns ids with zeros behind, int32 of one of few lengths, to `most`."""
  length = min(length_batches.round_length(len(ids)), most)
  return np.pad(np.asarray(ids, np.int32), (0, length - len(ids)))


def _likeliest(
  logits_PV: jax.Array, targets_P: jax.Array, top: int, vocab_size: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns log-probabilities [P], ids [P, K] and probabilities [P, K].

  Rows that pad a softmax beyond `vocab_size` are never among the likeliest.
  """
  log_probs_PV = jax.nn.log_softmax(logits_PV.astype(jnp.float32))
  best_PK, ids_PK = jax.lax.top_k(log_probs_PV[:, :vocab_size], top)
  scores_P1 = jnp.take_along_axis(log_probs_PV, targets_P[:, None], axis=1)
  return scores_P1[:, 0], ids_PK, jnp.exp(best_PK)


@functools.partial(
  jax.jit, static_argnames=('model', 'family', 'by_mlm', 'top')
)
def _next(
  model: nn.Module,
  params: Params,
  ids_T: jax.Array,
  count: int,
  *,
  family: Architecture,
  by_mlm: bool,
  top: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns scores and likeliest of all tokens but the first of `count`."""
  inputs_1T = ids_T[None, :-1]
  at_1T = jnp.arange(inputs_1T.shape[1])[None]
  inputs = family.text_inputs(inputs_1T, at_1T < count, at_1T)
  places = (at_1T,) if by_mlm else ()
  outputs = model.apply({'params': params}, *inputs, *places, train=False)
  logits = outputs['mlm_logits' if by_mlm else 'lm_logits'][0]
  return _likeliest(logits, ids_T[1:], top, model.vocab_size)


def _hidden(
  found: TrainedModel, ids: Sequence[int], line: int, top: int
) -> Reading:
  """Returns the reading of a BERT, each piece hidden in turn."""
  before, after = map(len, found.family.frame(found.tokenizer))
  places = np.arange(before, len(ids) - after)
  padded = _padded(ids, found.model.max_length)
  most = max(1, sentence_sums.BATCH_TOKENS // len(padded))
  rows = min(length_batches.round_length(len(places)), most)
  parts = []
  for first in range(0, len(places), rows):
    part = places[first : first + rows]
    at = np.resize(part, rows)  # repeats fill the last batch
    found_here = _masked(
      found.model,
      found.params,
      padded,
      len(ids),
      at.astype(np.int32),
      found.tokenizer.mask_id,
      family=found.family,
      top=top,
    )
    parts.append([np.asarray(each)[: len(part)] for each in found_here])
  likeliest = tuple(map(np.concatenate, zip(*parts, strict=True)))
  scored = [ids[place] for place in places]
  return Reading('pseudo', line, [*_tokens(found, scored, likeliest)])


@functools.partial(jax.jit, static_argnames=('model', 'family', 'top'))
def _masked(
  model: nn.Module,
  params: Params,
  ids_T: jax.Array,
  count: int,
  places_P: jax.Array,
  mask_id: int,
  *,
  family: Architecture,
  top: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns scores and likeliest of places, each hidden in a row of its own.

  The text has `count` tokens, and padding behind them.
  """
  at_PT = jnp.broadcast_to(jnp.arange(len(ids_T)), (len(places_P), len(ids_T)))
  tokens_PT = jnp.where(at_PT == places_P[:, None], mask_id, ids_T)
  inputs = family.text_inputs(tokens_PT, at_PT < count, at_PT)
  outputs = model.apply(
    {'params': params}, *inputs, places_P[:, None], train=False
  )
  return _likeliest(
    outputs['mlm_logits'][:, 0], ids_T[places_P], top, model.vocab_size
  )


def _both_ways(
  found: TrainedModel, text: Sequence[str], line: int, top: int
) -> Iterator[Reading]:
  """Yields both readings of an ELMo; the ends of the line are not scored."""
  tokenizer, model = found.tokenizer, found.model
  whole = [characters.SENTENCE_BEGIN, *text, characters.SENTENCE_END]
  count = len(whole)
  whole += [''] * (length_batches.round_length(count) - count)
  numbers = {word: number for number, word in enumerate(tokenizer.pieces)}
  types = np.array([numbers.get(word, tokenizer.unk_id) for word in whole])
  known = np.asarray(Vocabulary.of(tokenizer).known(types.astype(np.int32)))
  read = known
  if not model.num_words:
    read, _ = characters.encode_words(whole)
  outputs = [
    np.asarray(each)[:, : len(text)]
    for each in _towers(model, found.params, read, known, count, top=top)
  ]
  pieces = tokenizer.pieces
  for name, *of_tower in zip(('forward', 'backward'), *outputs, strict=True):
    yield Reading(
      name,
      line,
      [
        Token(
          word,
          float(log_prob),
          [(pieces[i], float(p)) for i, p in zip(best, chances, strict=True)],
        )
        for word, log_prob, best, chances in zip(text, *of_tower, strict=True)
      ],
    )


@functools.partial(jax.jit, static_argnames=('model', 'top'))
def _towers(
  model: nn.Module,
  params: Params,
  read: jax.Array,
  targets_T: jax.Array,
  count: int,
  *,
  top: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns scores [2, P] and likeliest [2, P, K] of the words between ends.

  `read` are words [T], or their characters [T, C], padded beyond `count`.
  """

  def run(model: nn.Module) -> tuple[jax.Array, jax.Array, jax.Array]:
    layers_L1TP, _ = model(read[None], jnp.asarray(count)[None])
    forward, backward = jnp.split(layers_L1TP[-1, 0], 2, axis=-1)
    # The tower on the left of a word, and the one on its right.
    hidden_P2D = jnp.stack([forward[:-2], backward[2:]], axis=1)

    def one(step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
      hidden_2D, target = step
      logits_2V = model.logits(hidden_2D[:, None, None])[:, 0, 0]
      targets_2 = jnp.broadcast_to(target, (2,))
      logits_2V = logits_2V[:, : model.vocab_size]
      return _likeliest(logits_2V, targets_2, top, model.vocab_size)

    # A word at a time: the softmax of an ELMo has 800,000 words.
    return jax.lax.map(one, (hidden_P2D, targets_T[1:-1]))

  found = nn.apply(run, model)({'params': params})
  return tuple(each.swapaxes(0, 1) for each in found)


def write(
  path: epath.PathLike, readings: Sequence[Reading], name: str, about: str
) -> None:
  """Writes the page of readings, atomically."""
  files.write_atomically(path, as_html(readings, name, about))


def as_html(readings: Sequence[Reading], name: str, about: str) -> str:
  """Returns a page: each token coloured by its surprise, and more on hover."""
  body = markup.join(part for each in readings for part in _section(each))
  title = f'What surprises {name}'
  return pages.plain(body, title=title, about=about)


def _section(reading: Reading) -> Iterator[Markup]:
  where = f'Line {reading.line}, ' if reading.line else ''
  how = READINGS[reading.name]
  title = f'{where}{how}: perplexity {reading.perplexity:,.2f}'
  yield markup.element('h2', title[0].upper() + title[1:])
  yield markup.element(
    'div',
    *[
      part
      for token in reading.tokens
      for part in (_token(token), '\n' if '\n' in token.piece else ' ')
    ],
    class_='text',
    dir='auto',
  )


def _token(token: Token) -> Markup:
  """Returns a token, and the table that is shown where it is pointed at."""
  piece = markup.element('bdi', _shown(token.piece), class_='piece')
  if token.log_prob is None:
    return markup.element('span', piece, class_='token', style='--heat: 0')
  bits = -token.log_prob / math.log(2)
  heat = 100 * min(bits / MOST_BITS, 1)
  rows = [
    markup.element(
      'tr',
      markup.element('td', f'{chance:.4f}'),
      markup.element('td', markup.element('bdi', _shown(each))),
    )
    for each, chance in token.likeliest
  ]
  said = f'probability {math.exp(token.log_prob):.4f}, surprise {bits:.2f} bits'
  return markup.element(
    'span',
    piece,
    markup.element(
      'span',
      markup.element('b', said),
      markup.element('table', *rows),
      class_='likely',
    ),
    class_='token',
    style=f'--heat: {heat:.0f}',
    tabindex=0,
  )


def _shown(piece: str) -> str:
  """Returns a piece in one line; GPT's vocabulary has one of a line end."""
  return piece.replace('\n', '⏎')
