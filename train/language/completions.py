"""Continuations of texts."""

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from data.vocabulary.tokenizer import Tokenizer
from models import decoding, gpt
from models.decoding import Sampling
from models.layers import Params
from train.language.inputs import Completion
from train.vectors import length_batches
from train.vectors.trained_model import TrainedModel

# A decoder's sign for bytes that are not yet a whole character.
_BROKEN = '\ufffd'
_CHUNK = 16
_BEFORE = 8  # prompt tokens decoded together with a continuation


def complete(
  found: TrainedModel,
  prompts: Sequence[str],
  *,
  max_new_tokens: int,
  sampling: Sampling = decoding.GREEDY,
  seed: int = 0,
  samples: int = 1,
  stop: Sequence[str] = (),
  overflow: str = 'refuse',
  batch: int = 8,
  show: Callable[[str], None] | None = None,
) -> list[Completion]:
  """Continues prompts with a GPT or GPT-2.

  Sample s of a prompt depends only on `seed` (0 to 2**32 - 1), the prompt's
  tokens and s; so the same prompt given twice gets the same continuation.

  A prompt gets `samples` continuations in a row, of `max_new_tokens` at most;
  strings of `stop` end them and are cut off. If prompt and new tokens exceed
  the model's positions, `overflow` decides: 'refuse' raises ValueError, 'slide'
  forgets the oldest tokens. `batch` prompts of similar length are continued at
  a time. `show` receives the pieces of text of a single continuation.
  """
  if min(max_new_tokens, samples, batch) < 1:
    raise ValueError(
      f'--max_new_tokens={max_new_tokens} --samples={samples} --batch={batch}:'
      ' expected 1 or more of each'
    )
  if not 0 <= seed < 1 << 32:
    raise ValueError(f'--seed={seed}: expected 0 to {(1 << 32) - 1:,}')
  if '' in stop:
    raise ValueError('--stop is empty: everything would end at once')
  ids = found.encode(list(prompts))
  room = found.model.max_length + 1  # the last token is not read any more
  for number, tokens in enumerate(ids, start=1):
    if not tokens:
      raise ValueError(f'prompt {number} is empty: expected a token or more')
    if len(tokens) + max_new_tokens > room and overflow == 'refuse':
      raise ValueError(
        f'prompt {number} has {len(tokens):,} tokens; with'
        f' --max_new_tokens={max_new_tokens} they exceed the {room - 1:,}'
        ' positions of the model. Shorten one of them, or let the oldest tokens'
        ' be forgotten: --overflow slide'
      )
  model, params = gpt.prepare_decoding(found.model, found.params)
  jobs = [(tokens, sample) for tokens in ids for sample in range(samples)]
  results: dict[int, Completion] = {}
  key = jax.random.key(seed)
  fold = jax.random.fold_in
  sizes = [len(tokens) for tokens, _ in jobs]
  for places in _batches(sizes, max_new_tokens, room, batch):
    rows = [jobs[place] for place in places]
    keys = [
      fold(fold(key, zlib.crc32(np.array(tokens, np.int32).tobytes())), sample)
      for tokens, sample in rows
    ]
    written = _complete_batch(
      model,
      params,
      found.tokenizer,
      [tokens for tokens, _ in rows],
      jax.numpy.stack(keys),
      max_new_tokens,
      sampling,
      stop,
      show if len(jobs) == 1 else None,
    )
    results |= zip(places, written, strict=True)
  return [results[place] for place in range(len(jobs))]


def _batches(
  sizes: Sequence[int], max_new_tokens: int, room: int, batch: int
) -> Iterator[list[int]]:
  """Yields numbers of prompts of similar lengths, to continue together."""
  # Prompts that will forget tokens go with equally long ones: all forget at
  # the same time, as each would alone.
  most = _kept(max_new_tokens, room)

  def group(number: int) -> int:
    fits = sizes[number] + max_new_tokens <= room
    return 0 if fits else min(sizes[number], most)

  order = sorted(range(len(sizes)), key=lambda i: (group(i), sizes[i]))
  for _, members in itertools.groupby(order, key=group):
    numbers = list(members)
    for first in range(0, len(numbers), batch):
      yield numbers[first : first + batch]


def _kept(left: int, room: int) -> int:
  """Returns how many tokens are kept when `left` new ones are to come."""
  return max(room - left, room // 2)


def _complete_batch(
  model: gpt.Gpt,
  params: Params,
  tokenizer: Tokenizer,
  prompts: Sequence[Sequence[int]],
  keys: jax.Array,
  max_new_tokens: int,
  sampling: Sampling,
  stop: Sequence[str],
  show: Callable[[str], None] | None,
) -> list[Completion]:
  """Continues the prompts of a batch, all by equally many tokens."""
  room = model.max_length + 1
  end = getattr(tokenizer, 'end_of_text_id', None)
  rows = [_Row(tokenizer, prompt, stop, end, show) for prompt in prompts]
  left = max_new_tokens
  for slide in itertools.count():
    # Once the positions are used up, the older half is forgotten.
    seen = [row.seen[-_kept(left, room) :] for row in rows]
    longest = max(map(len, seen))
    steps = min(left, room - longest)
    for chunk in decoding.generate(
      model,
      params,
      *length_batches.pad(seen, len(rows), longest),
      max_new_tokens=steps,
      rngs=jax.vmap(jax.random.fold_in, (0, None))(keys, slide),
      sampling=sampling,
      stop_ids=() if end is None else (end,),
      chunk=_CHUNK,
    ):
      for row, ids in zip(rows, chunk, strict=True):
        row.add([int(i) for i in ids if i != decoding.NO_TOKEN])
      if all(row.done for row in rows):
        break
    left -= steps
    if not left or all(row.done for row in rows):
      return [row.finish() for row in rows]


@dataclasses.dataclass
class _Row:
  """A growing text, until a stop."""

  tokenizer: Tokenizer
  prompt: list[int]
  stop: Sequence[str]
  end: int | None
  show: Callable[[str], None] | None
  done: bool = False
  text: str = ''
  shown: int = 0

  def __post_init__(self) -> None:
    self.seen = list(self.prompt)

  def add(self, ids: Sequence[int]) -> None:
    """Adds tokens, up to the end."""
    if self.done:
      return
    for token in ids:
      self.seen.append(token)
      self.done = token == self.end or bool(self.stop and self._stops())
      if self.done:
        break
    self.text = self._decode()
    if found := self._stops():
      self.text = self.text[: min(found)]
    self._say(self.text if self.done else self._certain())

  def finish(self) -> Completion:
    """Returns the continuation."""
    self._say(self.text)
    new = self.seen[len(self.prompt) :]
    return Completion(self.text, new, 'stop' if self.done else 'length')

  def _stops(self) -> list[int]:
    text = self._decode()
    return [at for stop in self.stop if (at := text.find(stop)) >= 0]

  def _decode(self) -> str:
    new = self.seen[len(self.prompt) :]
    if new and new[-1] == self.end:
      new = new[:-1]
    # With the tokens before it: a space may stand between.
    before = self.prompt[-_BEFORE:]
    whole, begun = map(self.tokenizer.decode, ([*before, *new], before))
    return whole.removeprefix(begun)

  def _certain(self) -> str:
    """Returns the text without an ending that may yet change."""
    text = self.text.rstrip(_BROKEN)
    longest = max(map(len, self.stop), default=0)
    for size in range(min(longest - 1, len(text)), 0, -1):
      if any(stop.startswith(text[-size:]) for stop in self.stop):
        return text[:-size]
    return text

  def _say(self, text: str) -> None:
    if self.show and len(text) > self.shown:
      self.show(text[self.shown :])
      self.shown = len(text)
