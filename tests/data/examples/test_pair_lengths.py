"""Rows of pairs are as long as those of the released program, on real text."""

import functools
import random

import jax
import numpy as np
import pytest

from data.examples import pipeline, transforms
from data.examples.pairs import PairExamples
from data.store import build, corpus

SPECIALS = transforms.Specials(pad=0, cls=101, sep=102, mask=103)
BINS = 8  # eighths of the longest row


@pytest.fixture(scope='module')
def stores(sesame_data, tmp_path_factory):
  """Articles of some thousand tokens, and the openings of novels."""
  folder = tmp_path_factory.mktemp('texts')
  novels = sorted((sesame_data / 'novels').glob('*.txt'))
  for path in novels[:8]:
    (folder / path.name).write_text(path.read_text()[:120_000])
  articles = sesame_data / 'wikitext-2' / 'wiki.valid.tokens'
  vocabulary = sesame_data / 'fixtures/vocab/bert-base-uncased-vocab.txt'
  opened = {}
  for name, source, document_break in (
    ('articles', articles, r' = [^=].*[^=] = $'),
    ('novels', folder / '*.txt', 'file'),
  ):
    out = folder / f'store of {name}'
    build.build_store(
      str(source),
      str(vocabulary),
      out,
      document_break=document_break,
      workers=1,
      progress=False,
    )
    opened[name] = corpus.open_store(out)
  return opened


def sentence_sizes(store):
  """Tokens of each sentence of each training document."""
  sizes = np.diff(store.sentences)
  bounds = zip(store.documents[:-1], store.documents[1:], strict=True)
  return [
    sizes[first:last].tolist()
    for (first, last), held_out in zip(bounds, store.held_out, strict=True)
    if not held_out
  ]


def released_pass(documents, number, target, most, rng):
  """Yields the tokens of text of each row of one pass over a document.

  google-research/bert, create_pretraining_data.py: sentences are gathered until
  they reach the target or the document ends. The first of them, so many as
  chance will have, are A. Half of the rows, and all that are a single sentence,
  get B from a random place of another document, as many sentences as reach the
  target, and put back what was to be B. What exceeds `most` is cut.
  """
  document = documents[number]
  place = 0
  while place < len(document):
    gathered = []
    while place < len(document) and sum(gathered) < target:
      gathered.append(document[place])
      place += 1
    in_a = 1
    if len(gathered) > 1:
      in_a = rng.randint(1, len(gathered) - 1)
    size_a, size_b = sum(gathered[:in_a]), sum(gathered[in_a:])
    if len(gathered) == 1 or rng.random() < 0.5:
      for _ in range(10):
        other = rng.randrange(len(documents))
        if other != number:
          break
      sentence = rng.randrange(len(documents[other]))
      size_b = 0
      while True:
        size_b += documents[other][sentence]
        sentence += 1
        if sentence == len(documents[other]) or size_a + size_b >= target:
          break
      place -= len(gathered) - in_a
    yield min(size_a + size_b, most)


def released_shares(store, length, short_seq_prob, every):
  """Returns the share of the rows in each bin, expected over the targets.

  Args:
    store: of the text.
    length: T.
    short_seq_prob: of a pass.
    every: of the short targets, only so many-th are read.
  """
  documents, most, rng = sentence_sizes(store), length - 3, random.Random(0)
  short = range(2 + every // 2, most + 1, every)
  chances = {target: short_seq_prob / len(short) for target in short}
  chances[most] = chances.get(most, 0) + 1 - short_seq_prob
  rows = np.zeros(BINS)
  for target, chance in chances.items():
    for number in range(len(documents)):
      sizes = released_pass(documents, number, target, most, rng)
      rows += chance * count(np.array(list(sizes)) + 3, length)
  return rows / rows.sum()


def count(sizes, length):
  edges = np.arange(BINS + 1) * length / BINS
  return np.histogram(sizes, bins=edges + 0.5)[0]


def our_shares(store, length, short_seq_prob, steps=48, rows=256):
  """Returns the same of our rows, and how many of them have an NSP label."""

  # A tenth of the time of a run, half as much again for the compilation.
  @functools.partial(
    jax.jit, compiler_options={'xla_backend_optimization_level': 1}
  )
  def sample(batch, key):
    keys_B = transforms.row_keys(key, batch['example_ids'])
    pairs = transforms.sample_pairs(
      batch,
      keys_B,
      length=length,
      specials=SPECIALS,
      short_seq_prob=short_seq_prob,
    )
    return pairs['token_mask'].sum(1), pairs['nsp_weights'].mean()

  phases = ((steps, length, rows, 'continue'),)
  examples = {length: PairExamples(store, length, held_out=False)}
  sizes, told = [], []
  for step in range(steps):
    batch = pipeline.train_batch(examples, phases, 0, step)
    size, share = sample(batch, jax.random.key(step))
    sizes.append(np.asarray(size))
    told.append(float(share))
  sizes = np.concatenate(sizes)
  return count(sizes, length) / len(sizes), np.mean(told)


@pytest.mark.parametrize('text', ['articles', 'novels'])
@pytest.mark.parametrize(('length', 'every'), [(128, 6), (512, 16)])
def test_rows_are_as_long_as_the_releases(stores, text, length, every):
  released = released_shares(stores[text], length, 0.1, every)
  # Far from a tenth of the rows.
  assert released[:-1].sum() > 0.14
  found, told = our_shares(stores[text], length, transforms.SHORT_SEQ_PROB)
  np.testing.assert_allclose(found, released, rtol=0, atol=0.02)
  assert told > 0.85


def test_full_rows_only(stores):
  released = released_shares(stores['articles'], 128, 0.0, 500)
  found, _ = our_shares(stores['articles'], 128, 0.0, steps=12)
  np.testing.assert_allclose(found, released, rtol=0, atol=0.02)
