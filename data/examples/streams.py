"""Windows of contiguous tokens: the examples of left-to-right models.

A window has `length + 1` tokens, inputs and targets, and the next window begins
with its last token, so every token is predicted once. Windows stay inside a
document, or all documents form one stream, each with an end-of-text token at
its end.
"""

import jax
import numpy as np

from data.examples import pipeline
from data.examples.pipeline import Batch
from data.store import corpus


class StreamExamples(pipeline.Permuted):
  """One split of a token store, cut into windows of contiguous tokens."""

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    *,
    held_out: bool,
    end_of_text: int | None = None,
    language_exponent: float = 0.7,
  ) -> None:
    """Finds the windows, of one stream if `end_of_text`, an id, is given."""
    self._tokens = store.tokens
    self._end_of_text = end_of_text
    chosen = store.held_out == held_out
    bounds = store.sentences[store.documents]
    sizes = np.diff(bounds)
    chosen &= sizes > 0
    sizes, self._begins = sizes[chosen], bounds[:-1][chosen]
    # The first chosen document of each language, then their number.
    firsts = np.concatenate([[0], np.cumsum(chosen)])[store.language_bounds]
    if end_of_text is not None:
      # Where each document begins in the stream, and where the last one ends.
      self._places = np.concatenate([[0], np.cumsum(sizes + 1)])
      # A window is of the language of its first token.
      ends = -(-self._places[firsts] // length)
      ends[-1] = -(-(self._places[-1] - 1) // length)
    else:
      counts = -(-(sizes - 1) // length)
      self._numbers = np.concatenate([[0], np.cumsum(counts)])
      ends = self._numbers[firsts]
    self._document_sizes = sizes
    counts = dict(zip(store.languages, np.diff(ends).tolist(), strict=True))
    if missing := [name for name, count in counts.items() if count < 1]:
      split = 'held-out' if held_out else 'training'
      of = f' of language {missing[0]!r}' if len(counts) > 1 else ''
      documents = np.diff(firsts)[store.languages.index(missing[0])]
      if end_of_text is not None and of and documents:
        raise ValueError(
          f'{store.folder}: the {split} text{of} begins no window of {length}'
          ' tokens in the stream of all documents: bring more text, or set'
          ' another data.held_out or a smaller length'
        )
      raise ValueError(
        f'{store.folder} has no {split} document{of} of two tokens or more:'
        ' bring more text, or set another data.held_out'
      )
    super().__init__(length, counts, language_exponent)

  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Returns `window` int32 [B, T + 1], 0 beyond `lengths` int32 [B]."""
    del draws
    column = np.arange(self.length + 1)
    if self._end_of_text is None:
      document = np.searchsorted(self._numbers, numbers, side='right') - 1
      offset = (numbers - self._numbers[document]) * self.length
      lengths = np.minimum(
        self._document_sizes[document] - offset, self.length + 1
      )
      places = (self._begins[document] + offset)[:, None] + column
      window = self._take(places)
    else:
      offset = numbers * self.length
      lengths = np.minimum(self._places[-1] - offset, self.length + 1)
      places = np.minimum(offset[:, None] + column, self._places[-1] - 1)
      document = np.searchsorted(self._places, places, side='right') - 1
      within = places - self._places[document]
      window = np.where(
        within < self._document_sizes[document],
        self._take(self._begins[document] + within),
        self._end_of_text,
      )
    window = window.astype(np.int32) * (column < lengths[:, None])
    return {'window': window, 'lengths': lengths.astype(np.int32)}

  def _take(self, places: np.ndarray) -> np.ndarray:
    return self._tokens[np.minimum(places, len(self._tokens) - 1)]


def batch_shapes(length: int, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes and dtypes of a host batch, made without text."""
  return {
    'window': jax.ShapeDtypeStruct((rows, length + 1), np.int32),
    'lengths': jax.ShapeDtypeStruct((rows,), np.int32),
    'example_ids': jax.ShapeDtypeStruct((rows,), np.int32),
    'example_mask': jax.ShapeDtypeStruct((rows,), np.bool_),
  }
