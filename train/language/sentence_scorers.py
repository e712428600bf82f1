"""Whatever scores a sentence: a language model, or n-grams of a file or store.

A scorer is opened and checked with all sentences before the first is scored.
"""

from collections.abc import Sequence

import numpy as np

from data.ngrams import smoothing, texts
from data.store import corpus, folders
from train.language import inputs, ngrams, sentence_sums
from train.vectors.trained_model import TrainedModel

ORDER = 5  # of the n-grams of a token store
_OF_ARPA = 'log-probability of the words after <s> and of </s>, summed'
_OF_STORE = (
  'log-probability of the words by 5-grams of a token store (modified'
  ' Kneser-Ney), the first word without a history, summed; no end is scored'
)


class FileScorer:
  """N-grams of an ARPA file: words between white space."""

  scorings = ('sum',)  # the ways that it has

  def __init__(self, path: str):
    self._model = ngrams.read_file(path)

  def score(
    self, sentences: Sequence[str], **ways: bool | str
  ) -> tuple[np.ndarray, np.ndarray, str]:
    """Returns sums, numbers of words and the way, see `open_scorer`."""
    del ways
    return *sentence_sums.score_by_ngrams(self._model, sentences), _OF_ARPA


class StoreScorer:
  """N-grams of the training text of a token store: its vocabulary's pieces.

  They are counted by each call of `score`, so that several may wait for theirs.
  """

  scorings = ('sum',)

  def __init__(self, path: str, sentences: Sequence[str], share: float):
    self._store, self._share = corpus.open_store(path), share
    self._tokenizer = self._store.tokenizer
    encoded = self._tokenizer.encode_batch(list(sentences))
    for sentence, ids in zip(sentences, encoded, strict=True):
      if not len(ids):
        raise ValueError(f'{sentence!r}: has no word of {path}')

  def score(
    self, sentences: Sequence[str], **ways: bool | str
  ) -> tuple[np.ndarray, np.ndarray, str]:
    """Returns sums, numbers of pieces and the way, see `open_scorer`."""
    del ways
    encoded = self._tokenizer.encode_batch(list(sentences))
    sizes = np.array([len(ids) for ids in encoded])
    begins = np.cumsum(sizes) - sizes
    starts = np.zeros(sizes.sum(), bool)
    starts[begins] = True
    tokens = np.concatenate([np.asarray(ids) for ids in encoded])
    (scorer,) = ngrams.of_store(
      self._store,
      [ORDER],
      smoothing.modified_kneser_ney,
      share=self._share,
    )
    words = texts.words_of_store(self._store).of_token  # of rare types, too
    log_probs = scorer.model.log_probs(scorer.ids[words[tokens]], starts)
    return np.add.reduceat(log_probs, begins), sizes.astype(float), _OF_STORE


class ModelScorer:
  """A language model of any family that predicts tokens."""

  def __init__(self, found: TrainedModel):
    self.found = found

  @property
  def scorings(self) -> tuple[str, ...]:
    """The ways that the model has: of a BERT also 'holistic'."""
    hides = sentence_sums.hides(self.found)
    return ('sum', 'holistic') if hides else ('sum',)

  def score(
    self, sentences: Sequence[str], *, scoring: str, within_word: bool = False
  ) -> tuple[np.ndarray, np.ndarray, str]:
    """Returns sums, numbers of pieces and the way, see `open_scorer`."""
    scores = sentence_sums.score(
      self.found, sentences, scoring=scoring, within_word=within_word
    )
    self.found.forget()
    return *scores, sentence_sums.describe(self.found, scoring, within_word)


def open_scorer(
  path: str,
  sentences: Sequence[str],
  scoring: str,
  tokenizer: str | None = None,
) -> FileScorer | StoreScorer | ModelScorer:
  """Opens WEIGHTS: an ARPA file, a token store, or a model that is checked.

  STORE@1/N is a store of which only the first Nth of each document is counted.
  `scoring` is 'sum' or, of a BERT, 'holistic'. The scorer's `score` returns the
  sums of sentences in nats, the numbers of pieces that they count, both float
  [sentences], and the way of scoring, for people. Raises ValueError or OSError
  for weights that predict no tokens, and for a sentence that they cannot read.
  """
  if inputs.is_arpa(path):
    return FileScorer(path)
  store, share = ngrams.split_share(path)
  if folders.is_store(store):
    return StoreScorer(store, sentences, share)
  found = TrainedModel(path, tokenizer, use=None)
  sentence_sums.check_model(found, scoring)
  sentence_sums.encode(found, list(dict.fromkeys(sentences)))
  return ModelScorer(found)
