"""Pairs of windows of two documents: BERT's examples."""

import jax
import numpy as np

from data.examples import pipeline, transforms, windows
from data.examples.pipeline import Batch
from data.store import corpus
from data.text import languages


class PairExamples(pipeline.Permuted):
  """One split of a token store, cut into pairs of windows.

  A window carries W = length + length // 8 tokens. A sentence boundary lies in
  `boundary_share` of the windows; without `next_sentences` none need have one.
  """

  def __init__(
    self,
    store: corpus.Store,
    length: int,
    *,
    held_out: bool,
    language_exponent: float = 0.7,
    units: bool = False,
    next_sentences: bool = True,
  ) -> None:
    """Opens the window index; see `windows.open_index` for its errors.

    With `units`, tokens that begin a unit of the store are marked. Raises
    ValueError if it has none.
    """
    self._units = corpus.open_units(store) if units else None
    index = windows.open_index(store, length, held_out=held_out)
    counts = np.diff(index.offsets[store.language_bounds])
    languages = dict(zip(store.languages, counts.tolist(), strict=True))
    super().__init__(length, languages, language_exponent)
    self.boundary_share = index.boundary_share
    self._next_sentences = next_sentences
    self._windows = index.windows
    self._offsets = index.offsets
    self._tokens = store.tokens
    self._sentences = store.sentences

  def check_text(self, batch_size: int) -> None:
    """Raises a ValueError if no window can be split, or text is short."""
    super().check_text(batch_size)
    if self._next_sentences and not self.boundary_share:
      raise ValueError(
        f'no window of {self.length} tokens holds a sentence boundary, so'
        ' next-sentence prediction has nothing to learn: every document is'
        ' one sentence. Predict masked tokens alone (train.objective=mlm), or'
        ' prepare the text with another document_break'
      )

  def batch(self, numbers: np.ndarray, draws: np.ndarray) -> Batch:
    """Returns the `rows` of windows with their randomly drawn partners."""
    return self.rows(numbers, self.partners(numbers, draws))

  def partners(self, numbers: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Returns a random window of another document for each, int64 [B].

    It is of the same language: else the script would tell the pair's label.
    """
    document = self._windows['document'][numbers]
    first = self._offsets[document]
    own = self._offsets[document + 1] - first
    language = np.searchsorted(self._bounds, numbers, side='right') - 1
    size = self._sizes[language] - own
    others = (draws % size.astype(np.uint64)).astype(np.int64)
    others += self._bounds[language]
    return np.where(others < first, others, others + own)

  def rows(self, numbers: np.ndarray, others: np.ndarray) -> Batch:
    """Gathers the text of windows and of their partners `others`.

    Returns:
      `window, other_window` int32 [B, W], 0 beyond the lengths, with
      `transforms.UNIT_START` added where a unit starts;
      `sentence_starts, other_starts` bool [B, W], True where a sentence starts,
      except at a document's start; `lengths, other_lengths, document_ids,
      other_document_ids` int32 [B].
    """
    batch = {}
    for names, chosen in (
      (('window', 'sentence_starts', 'lengths', 'document_ids'), numbers),
      (
        ('other_window', 'other_starts', 'other_lengths', 'other_document_ids'),
        others,
      ),
    ):
      index = self._windows[chosen]
      sizes = index['length'].copy(), index['document'].copy()
      batch.update(zip(names, (*self._gather(index), *sizes), strict=True))
    return batch

  def _gather(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    width = windows.window_width(self.length)
    column = np.arange(width)
    start = index['start']
    places = np.minimum(start[:, None] + column, len(self._tokens) - 1)
    tokens = self._tokens[places].astype(np.int32)
    if self._units is not None:
      starts = corpus.starts_units(self._units, places)
      tokens += starts * np.int32(transforms.UNIT_START)
    tokens *= column < index['length'][:, None]

    count = index['num_sentences']
    row = np.repeat(np.arange(len(index)), count)
    within = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    sentence = index['first_sentence'][row] + within
    starts = np.zeros(tokens.shape, bool)
    starts[row, self._sentences[sentence] - start[row]] = True
    return tokens, starts


def is_dialogue(store: corpus.Store) -> list[bool]:
  """Returns whether each language of a store is dialogues."""
  source = store.meta.get('spec', {}).get('source', '')
  found = languages.of_dialogues(source)
  return [found.get(name, False) for name in store.languages]


def batch_shapes(length: int, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes and dtypes of a host batch, made without text."""
  matrix = (rows, windows.window_width(length))
  vector = ((rows,), np.int32)
  kinds = {
    'window': (matrix, np.int32),
    'sentence_starts': (matrix, np.bool_),
    'lengths': vector,
    'document_ids': vector,
  }
  kinds |= {
    'other_window': kinds['window'],
    'other_starts': kinds['sentence_starts'],
    'other_lengths': kinds['lengths'],
    'other_document_ids': kinds['document_ids'],
    'example_ids': vector,
    'example_mask': ((rows,), np.bool_),
  }
  return {name: jax.ShapeDtypeStruct(*kind) for name, kind in kinds.items()}
