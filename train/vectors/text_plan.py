"""How a model of tokens reads texts: windows, framing symbols, pooling."""

import dataclasses
from collections.abc import Sequence

from models.pretrained.weights import Weights
from train.architectures import families
from train.vectors import token_windows
from train.vectors.request import Request
from train.vectors.token_windows import Window


class TextPlan:
  """How texts are cut, framed and pooled for one model.

  Attributes:
    tokenizer: cuts texts.
    unit, split: see `Request`.
    is_sentence: whether a text has one vector.
    form: how the weights were trained to make the vectors of sentences; None if
      that is not known, or the request names a pool.
    pool, choice, stride, normalize: see `Request`; pool and normalize are those
      of the form.
    begin, end: ids before and after each window.
    added: how many ids frame a window.
    window: tokens that the model sees at once, the frame included.
  """

  def __init__(self, found: Weights, request: Request):
    """Checks a request against a model; no parameter is read."""
    model = found.model
    self.tokenizer, self._encode = found.tokenizer, found.encode
    self.unit, self.split = request.unit, request.split
    self.family = families.ARCHITECTURES[found.name]
    self.is_sentence = self.unit == 'sentence'
    self._both_ways = self.family.reads_both_ways(model)
    self.normalize, self.form = request.normalize, None
    if self.is_sentence and request.pool is None and found.sentence_form:
      self.form = found.sentence_form
      request = dataclasses.replace(request, pool=self.form.pool)
      self.normalize |= self.form.normalize
    self.pool = request.pool_of(found.name, self._both_ways)
    self.begin, self.end = self.family.frame(found.tokenizer)
    self.added = len(self.begin) + len(self.end)
    most, least = model.max_length, self.added + 1
    self.window = most if request.window is None else request.window
    if not least <= self.window <= most:
      raise ValueError(
        f'--window={request.window}: expected {least} to {most}, the positions'
        f' of the model'
      )
    self._size = self.window - self.added
    self.stride = (
      max(1, self._size // 2) if request.stride is None else request.stride
    )
    self.windows(0)  # checks the stride
    self.choice = request.choice.checked(model.num_layers)

  def encode(self, texts: Sequence[str]) -> list[list[int]]:
    """Returns each text's ids, behind the prompt of the form; see `Weights`."""
    return self._encode([*map(self.form.read, texts)] if self.form else texts)

  @property
  def told(self) -> str:
    """What people must know of their texts; '' if nothing is done to them."""
    if not (self.form and self.form.prompt):
      return ''
    return (
      f'Each text is read behind the prompt {self.form.prompt!r}, as the folder'
      ' of the weights says; --pool leaves it out.'
    )

  def windows(self, num_tokens: int) -> list[Window]:
    """Returns the windows of a text that make its vectors."""
    windows = token_windows.cut(
      num_tokens, self._size, self.stride, left_only=not self._both_ways
    )
    if self.is_sentence and self.pool == 'cls':
      return windows[:1]
    if self.is_sentence and self.pool == 'last':
      return windows[-1:]
    return windows

  def place(self, window: Window) -> slice:
    """Returns the positions in a framed window that give vectors."""
    offset = len(self.begin) - window.start
    return slice(window.first + offset, window.last + offset)

  def weights(self, window: Window, num_tokens: int) -> tuple[slice, float]:
    """Returns (positions, weight) to sum for a sentence vector.

    The weights of all windows of a text sum to 1. A mean includes the symbols
    at the two ends of the text; 'last' is the end symbol, if there is one.
    """
    place = self.place(window)
    if self.pool == 'cls':
      return slice(0, 1), 1.0
    if self.pool == 'last':
      end = place.stop + len(self.end)
      return slice(end - 1, end), 1.0
    start, stop = place.start, place.stop
    if window.first == 0:
      start -= len(self.begin)
    if window.last == num_tokens:
      stop += len(self.end)
    return slice(start, stop), 1 / (num_tokens + self.added)
