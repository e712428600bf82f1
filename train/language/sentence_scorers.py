"""Whatever scores a sentence: a language model, or n-grams of a file or store.

A scorer is opened and checked with all sentences before the first is scored.
"""

from collections.abc import Sequence

import numpy as np

from data.ngrams import smoothing, texts
from data.store import corpus, folders
from train.language import inputs, minimal_pairs, ngrams, sentence_sums
from train.vectors.trained_model import TrainedModel

ORDER = 5  # of the n-grams of a token store
_OF_ARPA = 'log-probability of the words after <s> and of </s>, summed'
_OF_STORE = (
  "log-probability of the vocabulary's pieces by 5-grams of a token store"
  ' (modified Kneser-Ney), the first without a history, summed; no end is'
  ' scored'
)


class FileScorer:
  """N-grams of an ARPA file: words between white space."""

  scorings = ('sum',)  # the ways that it has
  reads_once = True  # for all of them

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
  reads_once = True

  def __init__(self, path: str, sentences: Sequence[str], share: float):
    self._store, self._share = corpus.open_store(path), share
    self._tokenizer = self._store.tokenizer
    encoded = self._tokenizer.encode_batch(list(sentences))
    for sentence, ids in zip(sentences, encoded, strict=True):
      if not len(ids):
        raise sentence_sums.SentenceError(sentence, f'has no word of {path}')

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
    # What was read once for all ways, and their scores.
    self._read: Sequence[str] = ()
    self._directions: dict[str, tuple[np.ndarray, np.ndarray]] = {}

  @property
  def scorings(self) -> tuple[str, ...]:
    """The ways that the model has, see `sentence_sums.scorings`."""
    return sentence_sums.scorings(self.found)

  @property
  def reads_once(self) -> bool:
    """Whether it reads sentences once for all its ways, as an ELMo does."""
    return self.found.reads_words

  def score(
    self, sentences: Sequence[str], *, scoring: str, within_word: bool = False
  ) -> tuple[np.ndarray, np.ndarray, str]:
    """Returns sums, numbers of pieces and the way, see `open_scorer`."""
    if not self.reads_once:
      scores = sentence_sums.score(
        self.found, sentences, scoring=scoring, within_word=within_word
      )
    else:
      if self._read is not sentences:
        self._directions = sentence_sums.score_directions(self.found, sentences)
        self._read = sentences
      scores = self._directions[scoring]
    self.found.forget()
    return *scores, sentence_sums.describe(self.found, scoring, within_word)


Scorer = FileScorer | StoreScorer | ModelScorer


def open_scorer(
  path: str,
  sentences: Sequence[str],
  scoring: str = 'sum',
  tokenizer: str | None = None,
  *,
  within_word: bool = False,
) -> Scorer:
  """Opens WEIGHTS: an ARPA file, a token store, or a model that is checked.

  STORE@1/N is a store of which only the first Nth of each document is counted.
  `scoring` is one of the scorer's `scorings`. Its `score` returns the sums of
  sentences in nats, the numbers of pieces that they count, both float
  [sentences], and the way of scoring, for people. Raises ValueError or OSError
  for weights that predict no tokens or are not scored so, and SentenceError for
  a sentence that they cannot read.
  """
  store, share = ngrams.split_share(path)
  if inputs.is_arpa(path) or folders.is_store(store):
    if scoring != 'sum' or within_word:
      option = '--within_word' if within_word else f'--scoring={scoring}'
      raise ValueError(f'{option}: {path} holds n-grams, expected a model')
    if inputs.is_arpa(path):
      return FileScorer(path)
    return StoreScorer(store, sentences, share)
  found = TrainedModel(path, tokenizer, use=None)
  sentence_sums.check_model(found, scoring, within_word=within_word)
  sentence_sums.encode(found, list(dict.fromkeys(sentences)))
  return ModelScorer(found)


def open_for_pairs(
  path: str,
  pairs: Sequence[minimal_pairs.MinimalPair],
  scoring: str = 'sum',
  tokenizer: str | None = None,
  *,
  within_word: bool = False,
) -> Scorer:
  """Opens a scorer as `open_scorer`; errors name a pair's file and line."""
  try:
    return open_scorer(
      path,
      minimal_pairs.sentences(pairs),
      scoring,
      tokenizer,
      within_word=within_word,
    )
  except sentence_sums.SentenceError as error:
    place = next(
      pair.place for pair in pairs if error.sentence in (pair.good, pair.bad)
    )
    raise ValueError(f'{place}: {error}') from None
