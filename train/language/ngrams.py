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
from train.language import scoring
from train.params import trained
from train.pretrain import plan
from train.run import settings

PROGRAMS = ('lmplz', 'query')


def documents(store: corpus.Store, *, held_out: bool) -> Iterator[np.ndarray]:
  """Yields the tokens of each document of two or more of one split."""
  bounds = np.asarray(store.sentences)[np.asarray(store.documents)]
  for document in np.flatnonzero(np.asarray(store.held_out) == held_out):
    tokens = np.asarray(store.tokens[bounds[document] : bounds[document + 1]])
    if len(tokens) > 1:
      yield tokens


def ngram_log_probs(
  store: corpus.Store, *, order: int, kenlm: str
) -> list[np.ndarray]:
  """Returns the log-probabilities of each held-out document, but its first.

  Args:
    store: its training documents are what the n-grams are counted in.
    order: n.
    kenlm: folder with the programs lmplz and query.

  Returns:
    For each of `documents`: float64 [tokens - 1], in nats.

  Raises:
    FileNotFoundError: if a program is missing.
    ChildProcessError: if one fails.
  """
  lmplz, query = (pathlib.Path(kenlm) / name for name in PROGRAMS)
  for program in (lmplz, query):
    if not program.exists():
      raise FileNotFoundError(
        f'no {program.name} in --kenlm={kenlm}: build KenLM and name the folder'
        ' of its programs'
      )
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    train, held_out, arpa, found = (
      folder / name for name in ('train', 'held_out', 'arpa', 'found')
    )
    _write(train, documents(store, held_out=False))
    _write(held_out, documents(store, held_out=True))
    # A fallback of the discounts where the text is too small to estimate them.
    build = (lmplz, '-o', str(order), '-S', '25%', '-T', folder)
    _run((*build, '--discount_fallback'), train, arpa)
    # Each document as it stands: without marks of its beginning and end.
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
  """Returns the nats of what query prints: 'word=id matched log10', by tabs."""
  words = [word for word in text.split('\t') if '=' in word]
  return np.array([float(word.split()[-1]) for word in words]) * math.log(10)


def compare(
  workdir: str, *, order: int, kenlm: str, stride: int | None = None
) -> dict[str, Any]:
  """Returns the perplexities of three predictors of the held-out documents.

  Every document is a text of its own, whose first token is not predicted. The
  model sees all that fits into its positions, the n-grams their n - 1 tokens.

  Args:
    workdir: of a GPT or GPT-2; its token store has to be where it was.
    order: n.
    kenlm: see `ngram_log_probs`.
    stride: of the model's windows, see `score.windows_of`; by default half of
      its positions.

  Raises:
    ValueError, FileNotFoundError, ChildProcessError: as the parts do.
  """
  found = trained.load(workdir, expected=trained.SCORING)
  store = plan.open_store(settings.read_workdir_config(workdir))
  if store.tokenizer.fingerprint != found.tokenizer.fingerprint:
    raise ValueError(f'{store.folder} is not of the tokenizer of {workdir}')
  context = found.model.max_length
  stride = max(1, context // 2) if stride is None else stride
  unigram = evaluate.unigram_log_probs(store.counts)
  held_out = list(documents(store, held_out=True))
  texts = {
    'unigram': [unigram[tokens[1:]] for tokens in held_out],
    'ngram': ngram_log_probs(store, order=order, kenlm=kenlm),
    'model': [
      scoring.score_tokens(
        found.model,
        found.params,
        tokens,
        context=context,
        stride=stride,
      )
      for tokens in held_out
    ],
  }
  perplexities = {
    f'{name}_perplexity': math.exp(-np.concatenate(values).mean(dtype=float))
    for name, values in texts.items()
  }
  return {
    'documents': len(held_out),
    'scored_tokens': sum(len(tokens) - 1 for tokens in held_out),
    'train_tokens': int(store.counts.sum()),
    'order': order,
    'context': context,
    'stride': stride,
    **perplexities,
    'model_to_ngram': perplexities['model_perplexity']
    / perplexities['ngram_perplexity'],
  }
