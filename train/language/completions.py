"""Texts that models go on writing."""

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from data.text import text_files
from models import decoding, gpt
from models.decoding import Sampling
from train.params import trained

# Prompts beyond the model's positions.
OVERFLOWS = ('refuse', 'slide')
# What a decoder writes for bytes that are not whole yet.
_BROKEN = '\ufffd'
_CHUNK = 16
_BEFORE = 8  # tokens of the prompt that a continuation is decoded with


class Completion(NamedTuple):
  """What a model wrote.

  Attributes:
    text: without the prompt, up to the stop.
    tokens: ids of it, the one that completed a stop included.
    finish: 'stop' at an end-of-text token or a stop string, else 'length'.
  """

  text: str
  tokens: list[int]
  finish: str


def complete(
  found: trained.Trained,
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
  """Continues prompts.

  Sample s of a prompt depends on the seed, the prompt's tokens and s only,
  never on what stands beside it; so the same prompt given twice is gone on from
  alike.

  Args:
    found: a GPT or GPT-2.
    prompts: texts, none empty.
    max_new_tokens: of each.
    sampling: how tokens are chosen.
    seed: 0 to 2**32 - 1.
    samples: how many continuations a prompt gets.
    stop: texts at which a continuation ends; they are cut off.
    overflow: 'refuse' a prompt that, with the new tokens, exceeds the model's
      positions; or 'slide': its oldest tokens are forgotten.
    batch: prompts continued at a time; of like length.
    show: gets the text as it comes; of a single continuation.

  Returns:
    The continuations, those of a prompt one after the other.

  Raises:
    ValueError: naming the prompt that is empty or too long, or the number that
      makes no sense.
  """
  if max_new_tokens < 1:
    raise ValueError(f'--max_new_tokens={max_new_tokens}: expected 1 or more')
  if samples < 1 or batch < 1:
    raise ValueError(
      f'--samples={samples} --batch={batch}: expected 1 or more of each'
    )
  if not 0 <= seed < 1 << 32:
    raise ValueError(f'--seed={seed}: expected 0 to {(1 << 32) - 1:,}')
  if '' in stop:
    raise ValueError('--stop is empty: everything would end at once')
  ids = found.encode(list(prompts))
  room = found.model.max_length + 1  # the last token is not read any more
  for number, tokens in enumerate(ids, start=1):
    if not tokens:
      raise ValueError(
        f'prompt {number} is empty: give at least a token to go on from'
      )
    if len(tokens) + max_new_tokens > room and overflow == 'refuse':
      raise ValueError(
        f'prompt {number} has {len(tokens):,} tokens; with'
        f' --max_new_tokens={max_new_tokens} they exceed the {room - 1:,}'
        ' positions of the model. Shorten one of them, or let the oldest tokens'
        ' be forgotten: --overflow slide'
      )
  model, params = gpt.prepare_decoding(found.model, found.params)
  prepared = found._replace(model=model, params=params)
  jobs = [(tokens, sample) for tokens in ids for sample in range(samples)]
  results: list[Completion | None] = [None] * len(jobs)
  key = jax.random.key(seed)
  sizes = [len(tokens) for tokens, _ in jobs]
  for places in _batches(sizes, max_new_tokens, room, batch):
    rows = [jobs[place] for place in places]
    keys = jax.numpy.stack(
      [
        jax.random.fold_in(
          jax.random.fold_in(
            key, zlib.crc32(np.array(tokens, np.int32).tobytes())
          ),
          sample,
        )
        for tokens, sample in rows
      ]
    )
    written = _complete_batch(
      prepared,
      [tokens for tokens, _ in rows],
      keys,
      max_new_tokens,
      sampling,
      stop,
      show if len(jobs) == 1 else None,
    )
    for place, completion in zip(places, written, strict=True):
      results[place] = completion
  return results


def _batches(
  sizes: Sequence[int], max_new_tokens: int, room: int, batch: int
) -> Iterator[list[int]]:
  """Yields the numbers of prompts to go on together, given their lengths.

  Those of like length; where tokens will be forgotten, of the same, so that all
  forget at the same time, as each would alone.
  """
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
  """Returns how many tokens a model goes on from, `left` more to come."""
  return max(room - left, room // 2)


def _complete_batch(
  found: trained.Trained,
  prompts: Sequence[Sequence[int]],
  keys: jax.Array,
  max_new_tokens: int,
  sampling: Sampling,
  stop: Sequence[str],
  show: Callable[[str], None] | None,
) -> list[Completion]:
  """Continues the prompts of a batch, all by as many tokens."""
  room = found.model.max_length + 1
  end = getattr(found.tokenizer, 'end_of_text_id', None)
  stop_ids = () if end is None else (end,)
  rows = [_Row(found.tokenizer, prompt, stop, end, show) for prompt in prompts]
  left = max_new_tokens
  for slide in itertools.count():
    # Once the positions are used up, the older half is forgotten.
    seen = [row.seen[-_kept(left, room) :] for row in rows]
    lengths = np.array([len(ids) for ids in seen])
    tokens = np.zeros((len(rows), lengths.max()), np.int32)
    for row, ids in enumerate(seen):
      tokens[row, : len(ids)] = ids
    steps = min(left, room - int(lengths.max()))
    for chunk in decoding.generate(
      found.model,
      found.params,
      tokens,
      lengths,
      max_new_tokens=steps,
      rngs=jax.vmap(jax.random.fold_in, (0, None))(keys, slide),
      sampling=sampling,
      stop_ids=stop_ids,
      chunk=_CHUNK,
    ):
      for row, ids in zip(rows, chunk, strict=True):
        row.add([int(i) for i in ids if i != decoding.NO_TOKEN])
      if all(row.done for row in rows):
        break
    left -= steps
    if not left or all(row.done for row in rows):
      return [row.finish() for row in rows]


class _Row:
  """A text that grows, until a stop."""

  def __init__(
    self,
    tokenizer: Any,
    prompt: Sequence[int],
    stop: Sequence[str],
    end: int | None,
    show: Callable[[str], None] | None,
  ):
    self.seen = list(prompt)
    self.done = False
    self._tokenizer = tokenizer
    self._prompt = list(prompt)
    self._stop = stop
    self._end = end
    self._show = show
    self._text = ''
    self._shown = 0

  def add(self, ids: Sequence[int]) -> None:
    """Adds tokens; what comes after the end does not count."""
    if self.done:
      return
    for token in ids:
      self.seen.append(token)
      self.done = token == self._end or bool(self._stop and self._stops())
      if self.done:
        break
    self._text = self._decode()
    if found := self._stops():
      self._text = self._text[: min(found)]
    self._say(self._text if self.done else self._certain())

  def finish(self) -> Completion:
    """Returns what was written."""
    self._say(self._text)
    return Completion(
      self._text,
      self.seen[len(self._prompt) :],
      'stop' if self.done else 'length',
    )

  def _stops(self) -> list[int]:
    """Returns where the stop strings begin that the text holds."""
    text = self._decode()
    return [at for stop in self._stop if (at := text.find(stop)) >= 0]

  def _decode(self) -> str:
    new = self.seen[len(self._prompt) :]
    if new and new[-1] == self._end:
      new = new[:-1]
    # With what stands before it, which may be set apart by a space.
    before = self._prompt[-_BEFORE:]
    whole, begun = map(self._tokenizer.decode, ([*before, *new], before))
    return whole.removeprefix(begun)

  def _certain(self) -> str:
    """Returns the text without an end that may yet change."""
    text = self._text.rstrip(_BROKEN)
    longest = max(map(len, self._stop), default=0)
    for size in range(min(longest - 1, len(text)), 0, -1):
      if any(stop.startswith(text[-size:]) for stop in self._stop):
        return text[:-size]
    return text

  def _say(self, text: str) -> None:
    if self._show and len(text) > self._shown:
      self._show(text[self._shown :])
      self._shown = len(text)


def read_prompts(path: str) -> list[dict[str, Any]]:
  """Reads prompts, a JSON object with `prompt` a line; '-': standard input.

  Raises:
    ValueError: naming the line that is something else.
    OSError: if the file cannot be read.
  """
  return text_files.parse_records(
    text_files.read_text(path),
    path,
    lambda record: (
      isinstance(record.get('prompt'), str)
      and not record.keys() & set(Completion._fields)
    ),
    '{"prompt": text}, and none of the fields that will be written,'
    f' {", ".join(Completion._fields)}',
  )
