"""What is wanted of texts, and how a model reads them for it.

How they are cut into windows, framed by the model's own symbols and pooled.
"""

import dataclasses
from collections.abc import Callable

from models import bert
from train.params import opened, trained
from train.vectors import layer_choice, token_windows
from train.vectors.layer_choice import Choice
from train.vectors.token_windows import Window

# By whether the model looks to both sides. The first piece of a word is what
# the BERT paper's tagger reads (section 5.3); of a model that does not look to
# the right, only the last has seen the word, and [CLS] nothing at all.
POOLS = {
  ('word', True): ('first', 'mean', 'last'),
  ('word', False): ('last', 'mean', 'first'),
  ('sentence', True): ('mean', 'cls'),
  ('sentence', False): ('mean', 'last'),
}
UNITS = ('token', 'word', 'sentence')


@dataclasses.dataclass(frozen=True)
class Request:
  """What is wanted of each text.

  Attributes:
    unit: 'token', 'word' or 'sentence': what has a vector.
    pool: which tokens make it, see `POOLS`; None: the first named there.
    choice: which layers.
    normalize: scale the vectors of sentences to length 1.
    window: tokens that the model sees at once; None: all it can.
    stride: between the windows of a longer text; None: half of what fits.
    split: finds the words of a text.
  """

  unit: str = 'sentence'
  pool: str | None = None
  choice: Choice = Choice('top')
  normalize: bool = False
  window: int | None = None
  stride: int | None = None
  split: Callable[[str], list[str]] = str.split

  def pool_of(self, name: str, both_ways: bool) -> str | None:
    """Returns the pool for a model; None for tokens.

    Args:
      name: of the model.
      both_ways: whether it looks to both sides.

    Raises:
      ValueError: if the options do not go together, or not with the model.
    """
    if self.unit not in UNITS:
      raise ValueError(f'--unit={self.unit}: expected {", ".join(UNITS)}')
    if self.normalize and self.unit != 'sentence':
      raise ValueError(
        f'--normalize is of --unit=sentence, found --unit={self.unit}'
      )
    if self.unit == 'token':
      if self.pool is not None:
        raise ValueError(
          f'--pool={self.pool}: a token has a vector of its own; give it with'
          ' --unit=word or sentence'
        )
      return None
    pools = POOLS[self.unit, both_ways]
    if self.pool not in (None, *pools):
      reading = '' if both_ways else ', which reads from left to right'
      raise ValueError(
        f'--pool={self.pool}: expected {" or ".join(pools)} for --unit='
        f'{self.unit} by a {name}{reading}'
      )
    return self.pool or pools[0]


class Plan:
  """How texts are cut, framed and pooled for one model.

  Attributes:
    is_sentence: whether a text has one vector.
    pool: see `Request`.
    choice: likewise.
    is_bert: whether the model is a BERT, with symbols round a text.
    both_ways: whether it looks to both sides.
    begin: ids before each window.
    end: ids after it.
    added: how many these are.
    window: tokens that the model sees at once, these among them.
    size: without them.
    stride: from one window to the next.
  """

  def __init__(self, found: trained.Trained | opened.Opened, request: Request):
    """Checks a request against a model, of which no parameter is looked at.

    Raises:
      ValueError: if an option makes no sense.
    """
    model, tokenizer = found.model, found.tokenizer
    self.is_sentence = request.unit == 'sentence'
    self.is_bert = isinstance(model, bert.Bert)
    self.both_ways = self.is_bert and not model.left_to_right
    self.pool = request.pool_of(found.name, self.both_ways)
    self.begin = [tokenizer.cls_id] if self.is_bert else []
    self.end = [tokenizer.sep_id] if self.is_bert else []
    self.added = len(self.begin) + len(self.end)
    most, least = model.max_length, self.added + 1
    self.window = most if request.window is None else request.window
    if not least <= self.window <= most:
      raise ValueError(
        f'--window={request.window}: expected {least} to {most}, the positions'
        f' of the model'
      )
    self.size = self.window - self.added
    self.stride = (
      max(1, self.size // 2) if request.stride is None else request.stride
    )
    self.windows(0)  # checks the stride
    self.choice = layer_choice.check(request.choice, model.num_layers)

  def windows(self, num_tokens: int) -> list[Window]:
    """Returns the windows of a text that are needed."""
    windows = token_windows.cut(
      num_tokens, self.size, self.stride, left_only=not self.both_ways
    )
    if self.is_sentence and self.pool == 'cls':
      return windows[:1]
    if self.is_sentence and self.pool == 'last':
      return windows[-1:]
    return windows

  def place(self, window: Window) -> slice:
    """Returns where the vectors that count stand in a framed window."""
    offset = len(self.begin) - window.start
    return slice(window.first + offset, window.last + offset)

  def weights(self, window: Window, num_tokens: int) -> tuple[slice, float]:
    """Returns which positions of a window a sentence's vector sums, times what.

    Over all windows the weights of a text sum to 1; a mean is over the symbols
    at its two ends too, and the last one is the symbol there, if any.
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
