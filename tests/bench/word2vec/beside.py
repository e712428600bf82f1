"""Trains word2vec or fastText beside gensim's on the same words, scores both.

  pip install gensim==4.4.0
  python tests/bench/word2vec/beside.py --text 'novels/*.txt' \
    --data $SESAME_DATA/word_similarity --out DIR [--seeds 3] \
    [--kind cbow|fasttext] [--direction]

The text is lower-cased into DIR, and both read its training words out of our
token store, with the same settings. Printed are the share of right analogies
(30,000 words), Spearman's correlation with WordSim-353, and words a second:
all words of the text and of all epochs, over the time of training alone.
"""

import argparse
import csv
import functools
import glob
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from data.store import build, corpus

BUCKETS = 2_000_000  # fastText's, of skip-gram
TOKENIZER = 'train:words:100000'
SENTENCE = 1_000  # words; gensim reads sentences, we documents


def lower(pattern: str, folder: pathlib.Path) -> None:
  """Copies files in lower case."""
  folder.mkdir(parents=True, exist_ok=True)
  for name in sorted(glob.glob(pattern)):
    path = pathlib.Path(name)
    (folder / path.name).write_text(path.read_text('utf-8').lower(), 'utf-8')


class Sentences:
  """The training words of a store, for gensim."""

  def __init__(self, store: corpus.Store):
    self._store = store

  def __iter__(self) -> Iterator[list[str]]:
    store = self._store
    pieces = store.tokenizer.pieces
    bounds = store.sentences[store.documents]
    for document in np.flatnonzero(~store.held_out):
      for first in range(*bounds[document : document + 2], SENTENCE):
        last = min(first + SENTENCE, bounds[document + 1])
        yield [pieces[i] for i in store.tokens[first:last].tolist()]


def train_gensim(options: argparse.Namespace, store, seed: int):
  """Returns gensim's vectors and seconds."""
  from gensim.models import FastText, Word2Vec

  is_cbow = options.kind == 'cbow'
  family = Word2Vec
  if options.kind == 'fasttext':
    # gensim draws by word2vec's power; fastText's program and ours by 1/2.
    family = functools.partial(
      FastText, bucket=BUCKETS, min_n=3, max_n=6, ns_exponent=0.5
    )
  model = family(
    vector_size=100,
    window=5,
    min_count=5,
    negative=5,
    sample=options.sample,
    sg=not is_cbow,
    alpha=0.05 if is_cbow else 0.025,
    workers=options.workers,
    seed=seed,
  )
  sentences = list(Sentences(store))
  model.build_vocab(sentences)
  began = time.perf_counter()
  model.train(
    sentences, total_words=model.corpus_total_words, epochs=options.epochs
  )
  return model.wv, time.perf_counter() - began


def train_ours(options: argparse.Namespace, out: pathlib.Path, seed: int):
  """Returns our vectors and seconds, of `train.main`."""
  from gensim.models import KeyedVectors

  workdir = out / f'{options.kind}-{seed}'
  config = 'word2vec_novels' + ':cbow' * (options.kind == 'cbow')
  subprocess.run(
    [
      sys.executable,
      '-m',
      'train.main',
      '--config',
      config,
      f'--config.data.source={out}/text/*.txt',
      f'--config.data.tokenizer={TOKENIZER}',
      f'--config.data.folder={out}/store',
      f'--config.train.num_epochs={float(options.epochs)}',
      f'--config.train.seed={seed}',
      f'--config.objective.sample={options.sample}',
      f'--workdir={workdir}',
      *[f'--config.model.buckets={BUCKETS}'] * (options.kind == 'fasttext'),
      *options.override,
    ],
    check=True,
  )
  with (workdir / 'ledger.csv').open() as file:
    rows = list(csv.DictReader(file))
  seconds = sum(float(row[name]) for row in rows for name in ('data', 'train'))
  vectors = KeyedVectors.load_word2vec_format(
    workdir / 'vectors.bin', binary=True
  )
  return vectors, seconds


def score(vectors, data: pathlib.Path) -> tuple[float, float]:
  """Returns the shares of right analogies and WordSim-353's correlation."""
  questions = next(data.rglob('questions-words.txt'))
  pairs = next(data.rglob('EN-WS-353-ALL.txt'))
  analogies, _ = vectors.evaluate_word_analogies(
    str(questions), restrict_vocab=30_000
  )
  similarity = vectors.evaluate_word_pairs(str(pairs))[1][0]
  return 100 * analogies, float(similarity)


def direction(vectors, data: pathlib.Path) -> tuple[float, float]:
  """Returns what a direction that all words share does.

  The mean cosine of two of 3,000 words among the first 30,000, and the share of
  right analogies without the mean vector of these.
  """
  words = vectors.index_to_key[:30_000]
  rows = np.stack([vectors[word] for word in words]).astype(np.float64)
  units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
  some = units[np.random.default_rng(0).choice(len(units), 3_000, False)]
  cosines = some @ some.T
  mean = (cosines.sum() - len(some)) / (len(some) * (len(some) - 1))
  centred = type(vectors)(vectors.vector_size)
  centred.add_vectors(words, (rows - rows.mean(0)).astype(np.float32))
  return float(mean), score(centred, data)[0]


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(description=__doc__)
  add = parser.add_argument
  add('--text', required=True, help='a glob of text files')
  add('--data', required=True, type=pathlib.Path, help='analogies and pairs')
  add('--out', required=True, type=pathlib.Path)
  add('--kind', choices=('skipgram', 'cbow', 'fasttext'), default='skipgram')
  add('--sample', type=float, default=1e-4)
  add('--epochs', type=int, default=5)
  add('--seeds', type=int, default=1)
  add('--workers', type=int, default=2, help='threads of gensim')
  add('--direction', action='store_true', help='that all words share, too')
  add('--only', choices=('ours', 'gensim'), help='train one of both')
  add('override', nargs='*', help='further options of train.main')
  options = parser.parse_args()
  if not (options.out / 'text').exists():
    lower(options.text, options.out / 'text')
  store = build.ensure_store(
    f'{options.out}/text/*.txt', TOKENIZER, options.out / 'store'
  )
  words = int(store.counts.sum()) * options.epochs
  rows = {}
  for seed in range(1, options.seeds + 1):
    for name in [options.only] if options.only else ['ours', 'gensim']:
      if name == 'ours':
        vectors, seconds = train_ours(options, options.out, seed)
      else:
        vectors, seconds = train_gensim(options, store, seed)
      row = (*score(vectors, options.data), words / seconds)
      rows.setdefault(name, []).append(row)
      print(
        f'{options.kind} {name} seed {seed}: analogies {row[0]:.1f} %,'
        f' WordSim-353 {row[1]:.3f}, {row[2]:,.0f} words/s',
        flush=True,
      )
      if options.direction:
        mean, centred = direction(vectors, options.data)
        print(
          f'  mean cosine of two words {mean:.2f}, analogies without the mean'
          f' vector {centred:.1f} %',
          flush=True,
        )
  for name, found in rows.items():
    means, spread = np.mean(found, axis=0), np.std(found, axis=0)
    print(
      f'{options.kind} {name}: analogies {means[0]:.1f} ± {spread[0]:.1f} %,'
      f' WordSim-353 {means[1]:.3f} ± {spread[1]:.3f},'
      f' {means[2]:,.0f} words/s'
    )


if __name__ == '__main__':
  main()
