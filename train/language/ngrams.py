"""N-gram models of token stores and of text files, by our counts or KenLM's."""

import contextlib
import gzip
import io
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from data import scratch
from data.ngrams import arpa, counts, texts
from data.ngrams.model import Model, perplexity
from data.store import corpus
from train.language import inputs

# KenLM's spelling of a word unknown to us: it keeps <unk> for its own.
_OTHER = '<other>'


class Scorer(NamedTuple):
  """A model of n-grams, and its ids of our words, int32 [V]."""

  model: Model
  ids: np.ndarray

  def log_probs(self, words: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities of a text's words but the first, in nats.

    The first has no history, not even a beginning.
    """
    starts = np.zeros(len(words), bool)
    starts[:1] = True
    return self.model.log_probs(self.ids[words], starts)[1:]


@contextlib.contextmanager
def counted(
  blocks: Iterable[np.ndarray], words: Sequence[str], order: int
) -> Iterator[counts.NgramCounts]:
  """Counts n-grams into temporary files, see `counts.count`."""
  with scratch.temporary('ngrams') as folder:
    yield counts.count(blocks, order, len(words), folder)


def split_share(path: str) -> tuple[str, float]:
  """Returns the store and the share of its documents that STORE@1/N names."""
  found = re.fullmatch(r'(.+)@1/([1-9]\d*)', path)
  return (found[1], 1 / int(found[2])) if found else (path, 1.0)


def of_store(
  store: corpus.Store,
  orders: Sequence[int],
  estimate: Callable[..., Model],
  kenlm: str | None = None,
  share: float = 1.0,
) -> list[Scorer]:
  """Returns models of a store's training documents, one of each order.

  `estimate` is (counts, words, order) -> model. With `kenlm`, a folder with its
  program lmplz, that estimates modified Kneser-Ney instead. Without, a `share`
  counts of each document only as much of its beginning.
  """
  words = texts.words_of_store(store)
  if kenlm is not None:
    return [_by_kenlm(store, words, order, kenlm) for order in orders]
  ids = np.arange(len(words.words), dtype=np.int32)
  blocks = texts.store_blocks(store, words, share)
  with counted(blocks, words.words, max(orders)) as found:
    return [Scorer(estimate(found, words.words, n), ids) for n in orders]


def read(path: str, store: corpus.Store) -> list[Scorer]:
  """Returns the model of an ARPA file, for the words of a store, in a list.

  The store's unknown word is the file's <other>, as in a file that `of_store`
  made by KenLM, or, where the file has none, <unk>. Raises ValueError if the
  model knows none of the words.
  """
  words, model = texts.words_of_store(store).words, arpa.read(path)
  if _OTHER in model.ids and _OTHER not in words:
    words = _with_other(words)
  return [_with_ids(model, words, path)]


def read_file(path: str) -> Model:
  """Returns the model of an ARPA file, see `arpa.read`."""
  return arpa.read(path)


def _with_ids(
  model: Model, words: Sequence[str], path: epath.PathLike
) -> Scorer:
  found = [model.ids.get(word, counts.UNKNOWN) for word in words]
  known = sum(i != counts.UNKNOWN for i in found[len(counts.SYMBOLS) :])
  if not known:
    raise ValueError(
      f'{path}: knows none of the {len(words) - len(counts.SYMBOLS):,} words of'
      f' the text, such as {words[-1]!r}: expected a model of such words'
    )
  return Scorer(model, np.array(found, np.int32))


def _with_other(words: Sequence[str]) -> list[str]:
  return [_OTHER, *words[1:]]


def _by_kenlm(
  store: corpus.Store, words: texts.NgramWords, order: int, kenlm: str
) -> Scorer:
  """Returns KenLM's model. Raises ChildProcessError if the program fails."""
  lmplz = inputs.kenlm_program(kenlm)
  spelt = _with_other(words.words)
  with scratch.temporary('ngrams') as folder:
    text, found = (folder / name for name in ('text', 'arpa'))
    with text.open('w', encoding='utf-8') as file:
      for tokens in texts.documents(store, held_out=False):
        ids = words.of_token[tokens].tolist()
        file.write(' '.join(spelt[i] for i in ids) + '\n')
    # The discounts of a small text cannot be estimated.
    options = ('-o', str(order), '-S', '25%', '-T', str(folder))
    with text.open() as stdin, found.open('w') as stdout:
      done = subprocess.run(
        (lmplz, *options, '--discount_fallback'),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
      )
    if done.returncode:
      raise ChildProcessError(
        f'{lmplz} failed ({done.returncode}):\n{done.stderr[-2000:]}'
      )
    return _with_ids(arpa.read(found), spelt, lmplz)


def of_files(
  paths: Sequence[epath.PathLike],
  order: int,
  estimate: Callable[..., Model],
  min_count: int,
) -> tuple[dict[str, float], Model]:
  """Makes a model of text files; returns (figures of this work, model)."""
  began = time.monotonic()
  words = texts.read_words(paths, min_count).words
  ids = {word: i for i, word in enumerate(words)}
  blocks = texts.file_blocks(paths, ids)
  with counted(blocks, words, order) as found:
    model = estimate(found, words, order)
    once = found.orders[0].counts
    num_words = int(once.sum() - once[counts.BEGIN])
  seconds = time.monotonic() - began
  figures = {'train_words': num_words, 'seconds': seconds}
  return figures | {'words_per_second': num_words / seconds}, model


def describe(model: Model) -> dict[str, int | str]:
  """Returns the figures of a model: method, order, n-grams of each order."""
  sizes = {
    f'{n}-grams': len(level.keys)
    for n, level in enumerate(model.levels, start=1)
  }
  return {'method': model.method, 'order': model.order, **sizes}


def score_files(
  model: Model, paths: Sequence[epath.PathLike]
) -> dict[str, float]:
  """Returns the perplexity of text files, each line a text.

  Each text begins after <s>, and its end is predicted. An unknown word counts
  with the probability of <unk>; the second perplexity is without such words.
  """
  scores, known = [], []
  for ids in texts.file_blocks(paths, model.ids):
    wanted = ids != counts.BEGIN
    found = model.log_probs(ids, ~wanted)
    scores.append(found[wanted])
    known.append(ids[wanted] != counts.UNKNOWN)
  if not scores:
    raise ValueError(f'{", ".join(map(str, paths))}: no words to score')
  scores, known = np.concatenate(scores), np.concatenate(known)
  return {
    'scored_words': len(scores),
    'unknown_words': int((~known).sum()),
    'impossible_words': int(np.isneginf(scores).sum()),
    'perplexity': perplexity(scores),
    'perplexity_of_known': perplexity(scores[known]),
  }


def write(model: Model, path: str) -> None:
  """Writes an ARPA file, perhaps .gz, which appears when it is whole."""
  with scratch.replacing(path) as partial, partial.open('wb') as raw:
    stream = raw
    if str(path).endswith('.gz'):
      stream = gzip.GzipFile('', 'wb', fileobj=raw, mtime=0)
    with io.TextIOWrapper(stream, encoding='utf-8', newline='\n') as file:
      arpa.write(model, file)
