"""Pairs of sentences: a NumPy reference, shares, and no leak."""

import functools
import itertools
import pathlib
import types

import jax
import numpy as np
import pytest
import threadpoolctl
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.ensemble import HistGradientBoostingClassifier

from data.examples import masking, pipeline, transforms
from data.examples.pairs import PairExamples

SPECIALS = transforms.Specials(pad=0, cls=2, sep=3, mask=4)
RATES = masking.Rates(0.15, 0.8, 0.1)
FIRST_ID = 10  # a token's id is FIRST_ID + its place in the store


def make_store(folder, seed=0, num_documents=2000, mean_sentences=7.0):
  """Documents of mixed lengths, many short; sentences of 1 to 100 tokens."""
  rng = np.random.default_rng(seed)
  scale = rng.choice([0.3, 1, 4], num_documents)
  counts = 1 + rng.geometric(1 / (scale * mean_sentences + 1)) - 1
  long = rng.random(counts.sum()) < 0.5
  sizes = rng.geometric(np.where(long, 1 / 24, 1 / 10))
  sentences = np.cumsum(np.append(0, sizes))
  return types.SimpleNamespace(
    folder=pathlib.Path(folder),
    meta={'digest': f'{seed:064}'},
    tokens=(FIRST_ID + np.arange(sentences[-1])).astype(np.uint32),
    sentences=sentences,
    documents=np.cumsum(np.append(0, counts)),
    held_out=np.zeros(num_documents, bool),
    languages=('',),
    language_bounds=np.array([0, num_documents]),
  )


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return make_store(tmp_path_factory.mktemp('store'))


def _sample(batch, key, length, short_seq_prob):
  keys_B = transforms.row_keys(key, batch['example_ids'])
  return transforms.sample_pairs(
    batch,
    keys_B,
    length=length,
    specials=SPECIALS,
    short_seq_prob=short_seq_prob,
  )


sample = jax.jit(_sample, static_argnames=('length', 'short_seq_prob'))
# A tenth of the time of a run, half as much again for the compilation.
sample_many = jax.jit(
  _sample,
  static_argnames=('length', 'short_seq_prob'),
  compiler_options={'xla_backend_optimization_level': 1},
)


def host_batches(store, length, batch_size, steps):
  examples = {length: PairExamples(store, length, held_out=False)}
  phases = ((steps, length, batch_size, 'continue'),)
  for step in range(steps):
    yield pipeline.train_batch(examples, phases, 0, step)


def many_pairs(store, length, short_seq_prob, batch_size, steps):
  """Host batches and their pairs, joined."""
  results = []
  for step, batch in enumerate(host_batches(store, length, batch_size, steps)):
    pairs = sample_many(batch, jax.random.key(step), length, short_seq_prob)
    results.append({**batch, **jax.device_get(pairs)})
  return {
    name: np.concatenate([r[name] for r in results]) for name in batch | pairs
  }


@pytest.fixture(scope='module')
def pairs(store):
  return many_pairs(store, 128, 0.1, 2000, 60)


def layout(pairs):
  """Sizes of A and B, and the places in the store of their first tokens."""
  size_b = pairs['token_types'].sum(1) - 1
  size_a = pairs['token_mask'].sum(1) - 3 - size_b
  row = np.arange(len(size_a))
  place = pairs['tokens'].astype(int) - FIRST_ID
  return size_a, size_b, place[row, 1], place[row, size_a + 2]


def test_layout_of_a_pair(pairs):
  size_a, size_b, start_a, start_b = layout(pairs)
  assert (size_a > 0).all() and (size_b[pairs['nsp_weights'] > 0] > 0).all()
  place = np.arange(128)
  a, b = size_a[:, None], size_b[:, None]
  in_a = (place >= 1) & (place <= a)
  in_b = (place >= a + 2) & (place < a + b + 2)
  # Text order is that of the store, token by token.
  expected = np.where(in_a, start_a[:, None] + place - 1 + FIRST_ID, 0)
  expected = np.where(
    in_b, start_b[:, None] + place - a - 2 + FIRST_ID, expected
  )
  expected = np.where(place == 0, SPECIALS.cls, expected)
  expected = np.where(
    (place == a + 1) | (place == a + b + 2), SPECIALS.sep, expected
  )
  assert np.array_equal(pairs['tokens'], expected)
  assert np.array_equal(
    pairs['token_types'], (place >= a + 2) & (place <= a + b + 2)
  )
  assert np.array_equal(pairs['token_mask'], place <= a + b + 2)
  assert np.array_equal(pairs['positions'], place + 0 * a)
  assert (pairs['tokens'][~pairs['token_mask']] == SPECIALS.pad).all()


def test_labels_tell_what_was_done(store, pairs):
  size_a, size_b, start_a, start_b = layout(pairs)
  negative = pairs['nsp_labels'] == 1
  told = pairs['nsp_weights'] > 0
  assert set(np.unique(pairs['nsp_weights'])) == {0.0, 1.0}
  assert not negative[~told].any()
  bounds = store.sentences[store.documents]

  def document(place):
    return np.searchsorted(bounds, place, side='right') - 1

  ids = pairs['document_ids']
  for place in (start_a, start_a + size_a - 1):
    assert np.array_equal(document(place), ids)
  has_b = size_b > 0
  expected = np.where(negative, pairs['other_document_ids'], ids)
  for place in (start_b, start_b + size_b - 1):
    assert np.array_equal(document(place)[has_b], expected[has_b])
  assert (expected != ids)[negative].all()
  # What continues A lies after it, a truncated part apart at most, and a
  # sentence starts in between.
  true = ~negative & told
  gap = (start_b - start_a - size_a)[true]
  assert (gap >= 0).all() and (gap <= 16).all() and (gap == 0).any()
  first = np.searchsorted(store.sentences, (start_a + size_a)[true])
  assert (store.sentences[first] <= start_b[true]).all()


def test_shares_of_labels_and_short_rows(store, pairs):
  told = pairs['nsp_weights'] > 0
  count = told.sum()
  assert count > 70_000
  negative = pairs['nsp_labels'][told].sum()
  assert abs(negative - count / 2) < 5 * (count / 4) ** 0.5
  # Of windows with text enough for any target, more than a tenth fall short.
  tokens = pairs['token_mask'].sum(1)[pairs['lengths'] == 144]
  assert 0.12 < (tokens < 128).mean() < 0.2
  assert tokens.min() >= 3 + 2 and tokens.max() == 128


def boosted_score(looks, labels, half):
  """The share of labels behind `half` that a model of those before it tells."""
  # One thread: two that wait for each other on a busy machine take 5 x as long.
  with threadpoolctl.threadpool_limits(1):
    model = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    model.fit(looks[:half], labels[:half])
    return model.score(looks[half:], labels[half:])


@pytest.mark.parametrize(
  ('mean_sentences', 'short_seq_prob', 'steps'),
  [
    pytest.param(3.0, 0.1, 60, marks=pytest.mark.slow),
    (12.0, 0.5, 30),
  ],
)
def test_looks_do_not_tell_the_label(
  tmp_path, mean_sentences, short_seq_prob, steps
):
  """A classifier that sees only lengths and sentence bounds learns nothing."""
  store = make_store(tmp_path, 1, 5000, mean_sentences)
  # Enough rows that 100,000 pairs have a label that counts.
  pairs = many_pairs(store, 128, short_seq_prob, 5000, steps)
  size_a, size_b, start_a, start_b = layout(pairs)
  is_start = np.zeros(len(store.tokens) + 1, bool)
  is_start[store.sentences] = True
  ends = [is_start[start_a + size_a], is_start[start_b + size_b]]
  looks = np.stack(
    [
      size_a,
      size_b,
      size_a + size_b,
      is_start[start_a],
      is_start[start_b],
      *ends,
    ],
    axis=1,
  )
  told = np.flatnonzero(pairs['nsp_weights'])[:100_000]
  assert len(told) == 100_000
  looks, labels = looks[told], pairs['nsp_labels'][told]
  # The test would see a leak: the bounds are not all alike.
  assert (looks[:, 3:].mean(0) > 0.02).all()
  assert (looks[:, 3:].mean(0) < 0.98).all()
  short = looks[:, 2] <= 64
  for chosen in (slice(None), short):
    look, label = looks[chosen], labels[chosen]
    half = len(label) // 2
    score = boosted_score(look, label, half)
    # At chance up to 4 sigma, which is below 0.52 throughout.
    assert score < 0.5 + 4 * (0.25 / (len(label) - half)) ** 0.5
    assert score < 0.52


def test_scripts_do_not_tell_the_label(tmp_path):
  """A classifier of the scripts in both texts learns nothing."""
  bounds = np.array([0, 900, 1200, 1300, 1340])
  scores = []
  for name, languages in (('apart', bounds), ('one', bounds[[0, -1]])):
    store = make_store(tmp_path / name, 2, 1340)
    (tmp_path / name).mkdir()
    store.languages = tuple('abcd'[: len(languages) - 1])
    store.language_bounds = languages
    pairs = many_pairs(store, 32, 0.1, 1000, 30)
    told = pairs['nsp_weights'] > 0
    # The script is the language; a bag of each text's scripts.
    place = pairs['tokens'].astype(int)[told] - FIRST_ID
    starts = store.sentences[store.documents[bounds]]
    script = np.searchsorted(starts, place, side='right')
    script[place < 0] = 0
    bags = [
      (script == s) & (pairs['token_types'][told] == part)
      for s in (1, 2, 3, 4)
      for part in (0, 1)
    ]
    looks = np.stack([bag.sum(1) for bag in bags], axis=1)
    assert (looks.sum(0) > 0).all()
    labels = pairs['nsp_labels'][told]
    half = len(labels) // 2
    scores.append(boosted_score(looks, labels, half))
    chance = max(labels[half:].mean(), 1 - labels[half:].mean())
    sigma = (0.25 / (len(labels) - half)) ** 0.5
    if name == 'apart':
      assert scores[0] < chance + 4 * sigma
  # The test would see a leak: scripts of partners from any language tell it.
  assert scores[1] > 0.6


def reference_length(boundaries, usable, draws, most, short_seq_prob):
  """Tokens of text of one row, by loops, from the same draws."""
  bounds = [0, *boundaries, usable]
  sizes = [end - start for start, end in itertools.pairwise(bounds)]
  excess = sum(size**2 for size in sizes) // (2 * usable)
  full = min(usable, most)

  def taken(tokens):
    alone = 64 * sum(size >= tokens for size in sizes) // len(sizes)
    return (tokens + excess) * (192 + alone)

  weights = [
    1024 * taken(full) // taken(min(target, full))
    for target in range(2, most + 1)
  ]
  rest = round(1024 * (most - 1) * (1 - short_seq_prob) / short_seq_prob)
  at, target = draws[0] % (sum(weights) + rest), 2
  for weight in weights:
    at -= weight
    if at < 0:
      break
    target += 1
  if target >= min(usable, most):
    return most
  firsts = [place for place in bounds[:-1] if place + target <= usable]
  first = firsts[draws[1] % len(firsts)]
  ends = [place for place in bounds if place > first]
  reached = [place for place in ends[1:] if place >= first + target]
  return min(most, (reached or ends[-1:])[0] - first)


def reference_pair(row, draws, length, short_seq_prob):
  """One pair, by loops, from the same draws."""
  draws = [int(draw) for draw in draws]
  width = len(row['window'])
  size = int(row['lengths'])
  usable = min(size, width - 1)
  boundaries = [n for n in range(1, usable) if row['sentence_starts'][n]]
  if boundaries and size < width:
    usable -= draws[2] % (usable - boundaries[-1])
  target = reference_length(
    boundaries, usable, draws[:2], length - 3, short_seq_prob
  )
  longer = 0 if target < length - 3 else length // 8
  chunk = min(usable, target + longer)
  if boundaries:
    boundary = boundaries[draws[3] % len(boundaries)]
  else:
    boundary = 1 + draws[3] % max(usable - 1, 1)
  lows = [
    low for low in range(usable - chunk + 1) if low < boundary < low + chunk
  ] or [0]
  low = lows[draws[4] % len(lows)]
  a = list(range(low, boundary))
  b = list(range(boundary, low + chunk))

  # Which of the two is cut at each turn; the coins go to A's cuts first.
  sizes, cuts = [len(a), len(b)], []
  while sum(sizes) > target:
    longer = 0 if sizes[0] > sizes[1] else 1
    sizes[longer] -= 1
    cuts.append(longer)
  coins = [draw & 1 for draw in draws[7:]]
  for longer, coin in zip(sorted(cuts), coins, strict=False):
    text = (a, b)[longer]
    text.pop(0 if coin else -1)
  front = b[0] - boundary if b else 0

  def bounds(starts, size):
    return [bool(s) or n == size for n, s in enumerate(starts)]

  here = bounds(row['sentence_starts'], size)
  there = bounds(row['other_starts'], row['other_lengths'])
  candidates = []
  for start in range(width):
    first, last = start + front, start + front + len(b)
    if not row['other_starts'][start] or not b:
      continue
    if last > min(row['other_lengths'], width - 1):
      continue
    if (there[first], there[last]) == (here[b[0]], here[b[-1] + 1]):
      candidates.append(start)
  told = bool(boundaries and candidates and row['example_mask'])
  negative = told and draws[5] & 1 == 1
  text_b = [int(row['window'][n]) for n in b]
  if negative:
    first = candidates[draws[6] % len(candidates)] + front
    text_b = row['other_window'][first : first + len(b)].tolist()
  text_a = [int(row['window'][n]) for n in a]
  tokens = [SPECIALS.cls, *text_a, SPECIALS.sep, *text_b, SPECIALS.sep]
  types = [0] * (len(a) + 2) + [1] * (len(b) + 1)
  padding = [0] * (length - len(tokens))
  return {
    'tokens': tokens + padding,
    'token_types': types + padding,
    'token_mask': [True] * len(tokens) + [False] * len(padding),
    'nsp_labels': int(negative),
    'nsp_weights': float(told),
  }


@pytest.mark.parametrize(
  ('length', 'short_seq_prob'),
  [
    (8, 0.5),
    (32, 0.3),
    (33, 0.3),
    (128, 0.1),
  ],
)
def test_pairs_match_reference(store, length, short_seq_prob):
  (batch,) = host_batches(store, length, 300, 1)
  # Windows of one and two tokens, and rows that are no examples.
  batch['lengths'][:20] = 1 + np.arange(20) % 2
  batch['other_lengths'][20:40] = 1 + np.arange(20) % 2
  for size, starts in (
    ('lengths', 'sentence_starts'),
    ('other_lengths', 'other_starts'),
  ):
    batch[starts] &= np.arange(batch[starts].shape[1]) < batch[size][:, None]
  batch['example_mask'][40:60] = False
  key = jax.random.key(3)
  pairs = jax.device_get(sample(batch, key, length, short_seq_prob))

  @jax.jit
  def draws_of(key, ids):
    draw = functools.partial(transforms.pair_draws, length=length)
    return jax.vmap(draw)(transforms.row_keys(key, ids))

  draws = jax.device_get(draws_of(key, batch['example_ids']))
  for n in range(300):
    row = {name: array[n] for name, array in batch.items()}
    expected = reference_pair(row, draws[n], length, short_seq_prob)
    for name, value in expected.items():
      assert np.array_equal(pairs[name][n], value), (n, name)
  assert not pairs['nsp_weights'][40:60].any()
  assert not pairs['nsp_weights'][:20].any()
  assert pairs['nsp_labels'].any() and pairs['nsp_weights'].any()


def test_the_example_of_the_docstring():
  """Windows of sentences a, b, c and x, y, z; see `sample_pairs`."""
  width, first_other = 18, 100
  starts, other_starts = np.zeros((2, width), bool)
  starts[[4, 9]] = other_starts[[3, 9]] = True
  # No short target, the second boundary, the second place, label 1, and coins:
  # the front of A, the back of B.
  draws = np.array([0, 0, 0, 1, 1, 1, 0, 1, 0], np.uint32)
  pair = functools.partial(
    transforms._sample_pair,
    length=16,
    specials=transforms.Specials(0, -1, -2, -3),
    short_seq_prob=0.0,
    negatives=True,
  )
  row = jax.jit(pair)(
    np.arange(1, 1 + width, dtype=np.int32),
    starts,
    np.int32(width),
    first_other + np.arange(1, 1 + width, dtype=np.int32),
    other_starts,
    np.int32(width),
    np.bool_(True),
    draws,
  )
  assert row['tokens'].tolist() == [
    -1,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    -2,
    *range(first_other + 10, first_other + 16),
    -2,
  ]
  assert row['token_types'].tolist() == [0] * 9 + [1] * 7
  assert (row['nsp_labels'], row['nsp_weights']) == (1, 1)


def test_two_separators_take_the_place_of_a_token(store):
  """Of a row that is longer by one, all else is equal."""
  (batch,) = host_batches(store, 33, 200, 1)
  keys = transforms.row_keys(jax.random.key(1), batch['example_ids'])

  @functools.partial(jax.jit, static_argnames=('length', 'separators'))
  def made(length, separators):
    specials = SPECIALS._replace(separators=separators)
    return transforms.sample_pairs(
      batch, keys, length=length, specials=specials, short_seq_prob=0.2
    )

  one, two = jax.device_get((made(32, 1), made(33, 2)))
  for name in ('nsp_labels', 'nsp_weights'):
    np.testing.assert_array_equal(one[name], two[name])
  for row in range(200):
    text = two['tokens'][row]
    first = np.flatnonzero(text == SPECIALS.sep)[0]
    assert text[first + 1] == SPECIALS.sep and two['token_mask'][row, first + 1]
    assert two['token_types'][row, : first + 2].sum() == 0
    for name in ('tokens', 'token_types', 'token_mask'):
      np.testing.assert_array_equal(
        np.delete(two[name][row], first + 1), one[name][row], err_msg=name
      )


def whole_transform(batch, key, length):
  keys_B = transforms.row_keys(key, batch['example_ids'])
  pairs = transforms.sample_pairs(
    batch, keys_B, length=length, specials=SPECIALS, short_seq_prob=0.1
  )
  continuations = np.arange(5000) % 3 == 0
  masked = {}
  for name, whole in (('pieces', None), ('words', continuations)):
    masked[name] = masking.mask_units(
      pairs,
      keys_B,
      specials=SPECIALS,
      vocab_size=5000,
      rates=RATES,
      max_predictions=masking.max_predictions(length, RATES),
      continuations=whole,
    )
  return masked


def test_rows_stand_alone(store):
  """Any sharding, order and batch size give the same rows, and no traffic."""
  (batch,) = host_batches(store, 64, 64, 1)
  for name in ('window', 'other_window'):
    batch[name] %= 4990
    batch[name] += FIRST_ID
  key = jax.random.key(0)
  transform = functools.partial(whole_transform, length=64)
  whole = jax.device_get(jax.jit(transform)(batch, key))

  mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ('data', 'fsdp'))
  rows = NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))
  sharded = jax.device_put(batch, rows)
  step = jax.jit(transform, out_shardings=rows).lower(sharded, key).compile()
  text = step.as_text()
  for word in ('all-', 'collective-', 'reduce-scatter'):
    assert word not in text
  assert len(jax.devices()) == 8
  split = step(
    sharded, jax.device_put(key, NamedSharding(mesh, PartitionSpec()))
  )

  order = np.random.default_rng(0).permutation(64)[:24]
  some = jax.jit(transform)({n: a[order] for n, a in batch.items()}, key)
  for kind in whole:
    for name, array in whole[kind].items():
      assert np.array_equal(array, split[kind][name]), name
      assert np.array_equal(array[order], some[kind][name]), name


def test_keys_matter(store):
  (batch,) = host_batches(store, 64, 64, 1)
  one, two = (
    jax.device_get(sample(batch, jax.random.key(n), 64, 0.1)) for n in range(2)
  )
  assert (one['tokens'] != two['tokens']).any(axis=1).mean() > 0.9
  # The two transforms draw apart from one another under equal keys.
  key = jax.random.key(0)
  draws = jax.device_get(
    jax.jit(
      lambda key: (transforms.pair_draws(key, 64), masking.mask_draws(key, 64))
    )(key)
  )
  assert not set(draws[0].tolist()) & set(draws[1].ravel().tolist())
