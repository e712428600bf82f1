"""Dialogues as BERT's examples, alone or among pairs of windows.

ERNIE's dialogue language model (Sun et al. 2019, arXiv:1904.09223): a row is
[CLS] turn [SEP] turn [SEP] turn [SEP], the turns' roles stand in the place of
the segments, and the next-sentence label tells whether the last turn is the
real response. The paper replaces the query or the response; here it is always
the last turn. Masked tokens are predicted as elsewhere.

Nothing but the text of the last turn tells its label: a wrong one has the same
role and the same number of tokens, comes from another dialogue, and responds
there to something, so that it is no opening.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from data.examples import pairs, pipeline, transforms, windows
from data.examples.pipeline import Batch
from data.store import corpus
from data.text import dialogue_lines

TURNS = 3  # of a row, at most
# Token types: 0 and 1 are the segments of pairs.
TYPES = {'Q': 2, 'R': 3}
NUM_TYPES = 4
_LABEL = 3  # of the random numbers of a row, apart from pairs' and masks'


class Turns:
  """The responses of dialogues in one split of a store.

  A response is any turn with another one before it. Memory: about 40 bytes for
  each.
  """

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    language: int,
    *,
    held_out: bool,
    units: bool = False,
  ) -> None:
    """Finds the responses; `units` are as in `pairs.PairExamples`.

    Raises ValueError if roles are no tokens, or the store has no units.
    """
    self.length = length
    self._tokens = store.tokens
    self._sentences = store.sentences
    self._units = corpus.open_units(store) if units else None
    self._symbols = store.tokenizer.cls_id, store.tokenizer.sep_id
    ids = store.tokenizer.encode_batch(list(dialogue_lines.ROLES))
    if any(len(role) != 1 for role in ids) or ids[0] == ids[1]:
      raise ValueError(
        f'{store.folder}: its vocabulary has no pieces of their own for the'
        f' roles {" and ".join(dialogue_lines.ROLES)}, which begin the turns'
        ' of a dialogue: take a vocabulary with these letters'
      )
    self._response_id = ids[1][0]
    first, last = store.language_bounds[language : language + 2]
    chosen = first + np.flatnonzero(store.held_out[first:last] == held_out)
    begin = store.documents[chosen]
    count = store.documents[chosen + 1] - begin
    # Turn t of a dialogue with t > 0.
    dialogue = np.repeat(chosen, np.maximum(count - 1, 0))
    within = np.arange(len(dialogue)) - np.searchsorted(dialogue, dialogue) + 1
    turn = np.repeat(begin, np.maximum(count - 1, 0)) + within
    size = self._size(turn)
    kept = size > 0
    self.turn, self.dialogue = turn[kept], dialogue[kept]
    self._place = within[kept]
    # At most so much of the row is a response; the longest are alike.
    self._cap = (length - 1 - TURNS) // 2
    self._shown = np.minimum(size[kept], self._cap)
    # Responses of one form lie side by side, those of a dialogue too.
    keys = self.dialogue, self._shown, self._is_response(self.turn)
    self._order = np.lexsort(keys)
    self._rank = np.empty_like(self._order)
    self._rank[self._order] = np.arange(len(self._order))
    role, shown, of = (key[self._order] for key in keys[::-1])
    form = np.append(True, (np.diff(role) != 0) | (np.diff(shown) != 0))
    own = form | np.append(True, np.diff(of) != 0)
    self._forms = _bounds(form)
    self._owns = _bounds(own)

  def __len__(self) -> int:
    return len(self.turn)

  def _is_response(self, turn: np.ndarray) -> np.ndarray:
    return self._tokens[self._sentences[turn]] == self._response_id

  def _size(self, turn: np.ndarray) -> np.ndarray:
    """Returns the tokens of turns without the role, which is the first."""
    return self._sentences[turn + 1] - self._sentences[turn] - 1

  def partners(self, numbers: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Returns a response of the same form elsewhere, or -1, int64 [B]."""
    rank = self._rank[numbers]
    form, own = (
      bounds[np.searchsorted(bounds, rank, side='right')[:, None] - [1, 0]]
      for bounds in (self._forms, self._owns)
    )
    others = np.diff(form)[:, 0] - np.diff(own)[:, 0]
    at = (draws % np.maximum(others, 1).astype(np.uint64)).astype(np.int64)
    at += form[:, 0]
    at = np.where(at < own[:, 0], at, at + np.diff(own)[:, 0])
    at = np.minimum(at, len(self._order) - 1)
    return np.where(others > 0, self._order[at], -1)

  def rows(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Returns the arrays of `pairs.PairExamples.rows` for dialogues.

    `window` is the row with the real response and `other_window` with a wrong
    one, [CLS] and [SEP] included; `sentence_starts` marks tokens of role R,
    symbols after them too; `lengths` are those of the rows, and `other_lengths`
    0 without a wrong response; `other_document_ids` are -1 - the dialogue of
    the wrong one, or their own, and so tell these rows from others.
    """
    others = self.partners(numbers, draws)
    fake = np.where(others < 0, numbers, others)
    answer, wrong = self.turn[numbers], self.turn[fake]
    size = self._shown[numbers]
    width = windows.window_width(self.length)
    column = np.arange(width)
    cls_id, sep_id = self._symbols
    rows = np.zeros((2, len(numbers), width), np.int32)
    roles = np.zeros((len(numbers), width), bool)
    rows[:, :, 0] = cls_id

    # The turns before the response, the nearest first, lose their beginnings.
    left = self.length - 1 - TURNS - size
    before = []
    for back in range(1, TURNS):
      turn = np.maximum(answer - back, 0)
      there = self._place[numbers] >= back
      shown = np.where(there, np.minimum(self._size(turn), left), 0)
      left = left - shown
      before.append((turn, shown, self._sentences[turn + 1] - shown))
    begin = np.ones(len(numbers), np.int64)
    is_response = self._is_response(answer)
    real = (answer, size, self._sentences[answer] + 1)
    for turn, shown, start in (*before[::-1], real):
      place = column - begin[:, None]
      of_text = (place >= 0) & (place < shown[:, None])
      text = self._take(start[:, None] + place)
      other = text
      if turn is answer:
        other = self._take(self._sentences[wrong][:, None] + 1 + place)
      rows = np.where(of_text, np.stack([text, other]), rows)
      ends = (place == shown[:, None]) & (shown > 0)[:, None]
      rows = np.where(ends, sep_id, rows)
      role = is_response if turn is answer else self._is_response(turn)
      roles |= (of_text | ends) & role[:, None]
      begin = begin + np.where(shown > 0, shown + 1, 0)
    roles[:, 0] = roles[:, 1]
    window, other_window = rows
    differs = (window ^ other_window) & (transforms.UNIT_START - 1)
    differs = differs.any(axis=1)
    elsewhere = np.where(
      others < 0, self.dialogue[numbers], self.dialogue[fake]
    )
    lengths = begin.astype(np.int32)
    return {
      'window': window,
      'sentence_starts': roles,
      'lengths': lengths,
      'document_ids': self.dialogue[numbers].astype(np.int32),
      'other_window': other_window,
      'other_starts': roles,
      'other_lengths': np.where(differs, lengths, 0).astype(np.int32),
      'other_document_ids': (-1 - elsewhere).astype(np.int32),
    }

  def _take(self, places: np.ndarray) -> np.ndarray:
    places = np.clip(places, 0, len(self._tokens) - 1)
    tokens = self._tokens[places].astype(np.int32)
    if self._units is not None:
      starts = corpus.starts_units(self._units, places)
      tokens += starts * np.int32(transforms.UNIT_START)
    return tokens


def _bounds(begins: np.ndarray) -> np.ndarray:
  """Returns the places of True, and the end."""
  return np.append(np.flatnonzero(begins), len(begins))


class DialogueExamples(pipeline.Permuted):
  """One split of a store with dialogues; its other languages are pairs."""

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    *,
    held_out: bool,
    language_exponent: float = 0.7,
    units: bool = False,
  ) -> None:
    """Opens the examples; see `pairs.PairExamples` for the errors."""
    self._turns = {
      number: Turns(store, length, number, held_out=held_out, units=units)
      for number, those in enumerate(pairs.is_dialogue(store))
      if those
    }
    self._pairs = None
    sizes = dict.fromkeys(store.languages, 0)
    if len(self._turns) < len(sizes):
      self._pairs = pairs.PairExamples(
        store,
        length,
        held_out=held_out,
        language_exponent=language_exponent,
        units=units,
      )
      counts = np.diff(self._pairs.bounds).tolist()
      sizes = dict(zip(sizes, counts, strict=True))
    for number, turns in self._turns.items():
      if not len(turns):
        name = f' {store.languages[number]!r}' if len(sizes) > 1 else ''
        split = 'held-out' if held_out else 'training'
        raise ValueError(
          f'{store.folder}: the {split} dialogues{name} have no response:'
          ' bring more, or set another data.held_out'
        )
      sizes[store.languages[number]] = len(turns)
    super().__init__(length, sizes, language_exponent)

  def check_text(self, batch_size: int) -> None:
    """Raises ValueError if there is too little text; see `pairs`."""
    super().check_text(batch_size)
    if self._pairs is not None:
      self._pairs.check_text(1)  # sentence boundaries

  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Gathers dialogues and pairs of windows in one batch."""
    language = np.searchsorted(self.bounds, numbers, side='right') - 1
    found: Batch = {}
    for number in np.unique(language).tolist():
      rows = np.flatnonzero(language == number)
      within = numbers[rows] - self.bounds[number]
      if number in self._turns:
        part = self._turns[number].rows(within, draws[rows])
      else:
        part = self._pairs.batch(
          within + self._pairs.bounds[number], draws[rows]
        )
      for name, values in part.items():
        if name not in found:
          shape = (len(numbers), *values.shape[1:])
          found[name] = np.zeros(shape, values.dtype)
        found[name][rows] = values
    return found


def choose_responses(
  made: Mapping[str, jax.Array],
  batch: Mapping[str, jax.Array],
  keys_B: jax.Array,
  *,
  pad: int,
) -> dict[str, jax.Array]:
  """Returns the results of `transforms.sample_pairs`, of dialogues their own.

  `batch` is the host batch, `keys_B` are its rows' keys, and `pad` is the id of
  padding. A coin chooses the real response or the wrong one, and labels tell
  it: 1 is wrong.
  """
  length = made['tokens'].shape[1]
  talks = batch['other_document_ids'] < 0
  told = talks & (batch['other_lengths'] > 0) & batch['example_mask']

  def toss(key: jax.Array) -> jax.Array:
    return jax.random.bits(jax.random.fold_in(key, _LABEL), (), jnp.uint32) & 1

  wrong = told & (jax.vmap(toss)(keys_B) == 1)
  rows = jnp.where(wrong[:, None], batch['other_window'], batch['window'])
  rows = rows[:, :length]
  real = made['positions'] < batch['lengths'][:, None]
  roles = jnp.where(
    batch['sentence_starts'][:, :length], TYPES['R'], TYPES['Q']
  )
  own = {
    'tokens': jnp.where(real, rows & (transforms.UNIT_START - 1), pad),
    'token_types': jnp.where(real, roles, 0),
    'token_mask': real,
    'nsp_labels': wrong.astype(jnp.int32),
    'nsp_weights': told.astype(jnp.float32),
  }
  if 'unit_starts' in made:
    own['unit_starts'] = rows >= transforms.UNIT_START
  chosen = {
    name: jnp.where(
      talks.reshape(-1, *[1] * (values.ndim - 1)), values, made[name]
    )
    for name, values in own.items()
  }
  return {**made, **chosen}
