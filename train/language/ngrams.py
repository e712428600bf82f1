"""Perplexity of an n-gram model beside a neural one."""

import math
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from data.store import corpus
from train.engine import evaluate
from train.language import inputs, scoring
from train.params import trained
from train.pretrain import run_stores
from train.run import workdirs


def documents(store: corpus.Store, *, held_out: bool) -> Iterator[np.ndarray]:
  """Yields the tokens of each document of a split that has two or more."""
  bounds = np.asarray(store.sentences)[np.asarray(store.documents)]
  for document in np.flatnonzero(np.asarray(store.held_out) == held_out):
    tokens = np.asarray(store.tokens[bounds[document] : bounds[document + 1]])
    if len(tokens) > 1:
      yield tokens


def ngram_log_probs(
  store: corpus.Store, *, order: int, kenlm: str
) -> list[np.ndarray]:
  """Returns the log-probabilities of held-out documents, in nats.

  Each of `documents` has float64 [tokens - 1], without its first token. KenLM's
  programs in the folder `kenlm` count the n-grams, n = `order`, of the store's
  training documents. Raises ChildProcessError if a program fails.
  """
  lmplz, query = inputs.kenlm_programs(kenlm)
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    train, held_out, arpa, found = (
      folder / name for name in ('train', 'held_out', 'arpa', 'found')
    )
    _write(train, documents(store, held_out=False))
    _write(held_out, documents(store, held_out=True))
    # The discounts of a small text cannot be estimated.
    build = (lmplz, '-o', str(order), '-S', '25%', '-T', folder)
    _run((*build, '--discount_fallback'), train, arpa)
    # Without symbols for a document's beginning and end.
    _run((query, '-n', '-v', 'word', arpa), held_out, found)
    values = _parse(found.read_text())
  sizes = [len(tokens) for tokens in documents(store, held_out=True)]
  if len(values) != sum(sizes):
    raise ChildProcessError(
      f'{query} scored {len(values):,} tokens of {sum(sizes):,}'
    )
  return [text[1:] for text in np.split(values, np.cumsum(sizes)[:-1])]


def _write(path: pathlib.Path, texts: Iterator[np.ndarray]) -> None:
  with path.open('w') as file:
    for tokens in texts:
      file.write(' '.join(map(str, tokens.tolist())) + '\n')


def _run(arguments: tuple, source: pathlib.Path, target: pathlib.Path) -> None:
  with source.open() as stdin, target.open('w') as stdout:
    done = subprocess.run(
      arguments, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True
    )
  if done.returncode:
    raise ChildProcessError(
      f'{arguments[0]} failed ({done.returncode}):\n{done.stderr[-2000:]}'
    )


def _parse(text: str) -> np.ndarray:
  """Returns nats from query's output: 'word=id matched log10', by tabs."""
  words = [word for word in text.split('\t') if '=' in word]
  return np.array([float(word.split()[-1]) for word in words]) * math.log(10)


def compare(
  workdir: str, *, order: int, kenlm: str, stride: int | None = None
) -> dict[str, Any]:
  """Returns perplexities of held-out documents: unigrams, n-grams, the model.

  Each document is a text of its own; its first token is not predicted. The
  model, a GPT, GPT-2 or LSTM, sees as many tokens as it has positions, the
  n-grams n - 1. The token store of `workdir` must still exist. For `order` and
  `kenlm` see `ngram_log_probs`; `stride` is by default half of the positions.
  """
  found = trained.load(workdir, expected=trained.SCORING)
  store = run_stores.open_store(workdirs.read_config(workdir))
  if store.tokenizer.fingerprint != found.tokenizer.fingerprint:
    raise ValueError(f'{store.folder} is not of the tokenizer of {workdir}')
  context = found.model.max_length
  stride = max(1, context // 2) if stride is None else stride
  unigram = evaluate.unigram_log_probs(store.counts)
  held_out = list(documents(store, held_out=True))
  options = {'context': context, 'stride': stride}
  texts = {
    'unigram': [unigram[tokens[1:]] for tokens in held_out],
    'ngram': ngram_log_probs(store, order=order, kenlm=kenlm),
    'model': [
      scoring.score_tokens(found.model, found.params, tokens, **options)
      for tokens in held_out
    ],
  }
  perplexities = {
    f'{name}_perplexity': math.exp(-np.concatenate(values).mean(dtype=float))
    for name, values in texts.items()
  }
  ratio = perplexities['model_perplexity'] / perplexities['ngram_perplexity']
  return {
    'documents': len(held_out),
    'scored_tokens': sum(len(tokens) - 1 for tokens in held_out),
    'train_tokens': int(store.counts.sum()),
    'order': order,
    **options,
    **perplexities,
    'model_to_ngram': ratio,
  }
