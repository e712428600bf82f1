"""Masks of pieces, words and spans: rates, limits, references by loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.examples import masking, transforms

SPECIALS = transforms.Specials(pad=0, cls=2, sep=3, mask=4)
RATES = masking.Rates(0.15, 0.8, 0.1)
DRAWN = RATES._replace(counting='drawn')


def make_tokens(sizes, length, vocab_size, seed=0):
  """Rows [CLS] A [SEP] B [SEP] of the sizes, specials included."""
  rng = np.random.default_rng(seed)
  place = np.arange(length)
  sizes = np.asarray(sizes)[:, None]
  tokens = rng.integers(5, vocab_size, (len(sizes), length))
  tokens = np.where((place == sizes // 2) | (place == sizes - 1), 3, tokens)
  tokens = np.where(place == 0, 2, tokens)
  return {
    'tokens': np.where(place < sizes, tokens, 0).astype(np.int32),
    'token_mask': place < sizes,
    'example_mask': np.ones(len(sizes), bool),
  }


@functools.partial(
  jax.jit, static_argnames=('vocab_size', 'max_predictions', 'rates', 'span')
)
def mask(
  batch,
  key,
  vocab_size,
  max_predictions,
  continuations=None,
  *,
  rates=RATES,
  span=1,
):
  keys_B = transforms.row_keys(key, jnp.arange(len(batch['tokens'])))
  return masking.mask_units(
    batch,
    keys_B,
    specials=SPECIALS,
    vocab_size=vocab_size,
    rates=rates,
    max_predictions=max_predictions,
    continuations=continuations,
    longest_span=span,
  )


def test_max_predictions():
  expected = {128: 20, 512: 77, 20: 3, 8: 2}
  for length, count in expected.items():
    assert masking.max_predictions(length, RATES) == count
  assert masking.max_predictions(512, DRAWN) == 170
  assert masking.max_predictions(20, DRAWN) == 20


@pytest.mark.parametrize('words', [False, True])
def test_masking_keeps_its_limits(words):
  length, vocab_size, limit = 128, 1000, 12
  sizes = np.concatenate([np.arange(4, 129)] * 8)
  batch = make_tokens(sizes, length, vocab_size)
  batch['example_mask'][::10] = False
  continuations = np.arange(vocab_size) % 3 == 0 if words else None
  result = jax.device_get(
    mask(batch, jax.random.key(1), vocab_size, limit, continuations)
  )
  places, targets = result['mlm_positions'], result['mlm_targets']
  for n, size in enumerate(sizes):
    text = np.isin(np.arange(length), [0, size // 2, size - 1], invert=True)
    text &= np.arange(length) < size
    most = min(limit, max(1, round(0.15 * size)))
    changed = result['tokens'][n] != batch['tokens'][n]
    used = int(result['mlm_weights'][n].sum())
    if not batch['example_mask'][n]:
      assert used == 0
      continue
    assert used <= most if words else used == most
    chosen = places[n, :used]
    assert (np.diff(chosen) > 0).all() and text[chosen].all()
    assert np.array_equal(targets[n, :used], batch['tokens'][n, chosen])
    assert result['mlm_weights'][n].tolist() == [1.0] * used + [0.0] * (
      limit - used
    )
    assert not places[n, used:].any() and not targets[n, used:].any()
    assert set(np.flatnonzero(changed)) <= set(chosen.tolist())
  assert np.array_equal(result['token_mask'], batch['token_mask'])


def test_masking_rates():
  """A million predictions; every count within 5 sigma."""
  length, vocab_size, rows = 128, 50, 5000
  batch = make_tokens([length] * rows, length, vocab_size)
  where, actions = np.zeros(length), np.zeros(3)
  replaced = np.zeros(vocab_size)
  total = 0
  for step in range(11):
    result = jax.device_get(mask(batch, jax.random.key(step), vocab_size, 20))
    assert (result['mlm_weights'].sum(1) == 19).all()  # round(19.2)
    used = result['mlm_weights'] > 0
    places = result['mlm_positions']
    now = np.take_along_axis(result['tokens'], places, 1)[used]
    targets = result['mlm_targets'][used]
    where += np.bincount(places[used], minlength=length)
    is_mask, same = now == SPECIALS.mask, now == targets
    actions += [is_mask.sum(), same.sum(), (~is_mask & ~same).sum()]
    replaced += np.bincount(now[~is_mask & ~same], minlength=vocab_size)
    total += len(now)
  assert total > 1_000_000

  def within(count, rate, of):
    return np.abs(count - rate * of) < 5 * (rate * (1 - rate) * of) ** 0.5

  text = np.isin(np.arange(length), [0, 64, 127], invert=True)
  assert not where[~text].any()
  assert within(where[text], 1 / 125, total).all()
  # A random token is [MASK], or the old one, once in `vocab_size`.
  rates = [0.8 + 0.1 / 50, 0.1 + 0.1 / 50, 0.1 * 48 / 50]
  assert within(actions, np.array(rates), total).all()
  # Specials are among the random tokens, [MASK] counts as masked above.
  assert within(replaced[:4], 0.1 / 50, total).all()
  ordinary = np.arange(50) > 4
  assert within(replaced[ordinary], 0.1 / 50 * 44 / 45, total).all()


def test_a_share_may_be_computed():
  """As the fixed one, if it is the same; else other counts, in one program."""
  batch = make_tokens([128, 60, 9], 128, 500)
  keys = transforms.row_keys(jax.random.key(0), jnp.arange(3))

  @jax.jit
  def computed(rate):
    return masking.mask_units(
      batch,
      keys,
      specials=SPECIALS,
      vocab_size=500,
      rates=RATES._replace(predicted=rate),
      max_predictions=39,
    )

  fixed = masking.mask_units(
    batch,
    keys,
    specials=SPECIALS,
    vocab_size=500,
    rates=RATES,
    max_predictions=39,
  )
  found = computed(jnp.float32(0.15))
  for name, value in fixed.items():
    np.testing.assert_array_equal(found[name], value, err_msg=name)
  for rate in (0.3, 0.2):
    counts = computed(jnp.float32(rate))['mlm_weights'].sum(axis=1)
    assert counts.tolist() == [round(rate * n) for n in (128, 60, 9)]


def test_pieces_are_chosen_jointly_at_random():
  """Every pair of places is as likely as any other."""
  length, rows = 16, 40_000
  batch = make_tokens([length] * rows, length, 50)
  result = jax.device_get(mask(batch, jax.random.key(5), 50, 2))
  places = result['mlm_positions']
  pairs, counts = np.unique(places, axis=0, return_counts=True)
  assert len(pairs) == 13 * 12 // 2
  expected = rows / len(pairs)
  chi = ((counts - expected) ** 2 / expected).sum()
  assert abs(chi - (len(pairs) - 1)) < 5 * (2 * (len(pairs) - 1)) ** 0.5


@functools.partial(jax.jit, static_argnames=('rows', 'length'))
def draws_of(key, rows, length):
  """The random numbers of rows' tokens and of their spans."""
  keys = transforms.row_keys(key, jnp.arange(rows))
  return [
    jax.vmap(functools.partial(draws, length=length))(keys)
    for draws in (masking.mask_draws, masking.span_draws)
  ]


def units_of(row, continuations, draws, longest):
  """The places of each unit of a row, by loops."""
  tokens, size = row['tokens'], int(row['token_mask'].sum())
  words = []
  for n in range(size):
    if tokens[n] in (2, 3):
      continue
    follows = continuations is not None and continuations[tokens[n]]
    if follows and words and words[-1][-1] == n - 1:
      words[-1].append(n)
    else:
      words.append([n])
  if longest == 1:
    return words
  shares = np.cumsum(1 / np.arange(1, longest + 1))
  units, left = [], 0
  sizes = iter((draws >> 8) / 2**24)
  for word in words:
    if not left:
      left = 1 + int((next(sizes) >= shares[:-1] / shares[-1]).sum())
      units.append(list(word))
    elif word[0] == units[-1][-1] + 1:
      units[-1] += word
    else:  # behind [SEP]
      units.append(list(word))
    left -= 1
  return units


def reference_masking(row, units, draws, limit, vocab, rates):
  """Positions and new tokens of one row, by loops, from the same draws."""
  draws = draws.astype(int)
  tokens = row['tokens']
  size, length = int(row['token_mask'].sum()), len(tokens)
  bits = (length - 1).bit_length()
  chosen = []
  if rates.counting == 'exact':
    count = min(limit, max(1, round(0.15 * size)))
    units = sorted(
      units, key=lambda unit: (draws[0, unit[0]] >> (bits + 1), unit[0])
    )
    for unit in units:
      if len(chosen) + len(unit) <= count:
        chosen += unit
    lowest = 0
  else:
    lowest = 1
    for unit in units:
      if (draws[0, unit[0]] >> 8) / 2**24 < 0.15:
        chosen += unit
  new = tokens.copy()
  for n in sorted(chosen)[:limit]:
    rate = (draws[1, n] >> 8) / 2**24
    if rate < 0.8:
      new[n] = SPECIALS.mask
    elif rate < 0.9:
      new[n] = lowest + draws[2, n] % (vocab - lowest)
  return sorted(chosen), new


@pytest.mark.parametrize('rates', [RATES, DRAWN], ids=['exact', 'drawn'])
@pytest.mark.parametrize(
  ('words', 'span'), [(False, 1), (True, 1), (True, 3), (False, 2)]
)
@pytest.mark.parametrize('length', [50, 128])
def test_masking_matches_reference(words, span, length, rates):
  vocab_size, limit, rows = 300, masking.max_predictions(length, rates), 200
  rng = np.random.default_rng(1)
  batch = make_tokens(rng.integers(4, length + 1, rows), length, vocab_size)
  continuations = np.arange(vocab_size) % 5 < 3 if words else None
  key = jax.random.key(2)
  result = jax.device_get(
    mask(
      batch,
      key,
      vocab_size,
      limit,
      continuations,
      rates=rates,
      span=span,
    )
  )
  draws, of_spans = jax.device_get(draws_of(key, rows, length))
  passed_over = 0
  for n in range(rows):
    row = {name: array[n] for name, array in batch.items()}
    units = units_of(row, continuations, of_spans[n], span)
    chosen, new = reference_masking(
      row, units, draws[n], limit, vocab_size, rates
    )
    used = int(result['mlm_weights'][n].sum())
    assert result['mlm_positions'][n, :used].tolist() == chosen[:limit]
    assert np.array_equal(result['tokens'][n], new)
    for unit in units:  # units are whole
      assert len(set(unit) & set(chosen)) in (0, len(unit))
    size = int(row['token_mask'].sum())
    passed_over += used < min(limit, max(1, round(0.15 * size)))
  if rates.counting == 'exact':
    assert bool(passed_over) == words or span > 1


def test_drawn_counting_is_ernies_rule():
  """A single draw a token decides in ERNIE, restated here from its rule.

  The unit's first token is predicted up to 0.15; up to 0.015 it is kept, up to
  0.03 random, above hidden. The others take a draw of their own: up to 0.1
  kept, up to 0.2 random, above hidden.
  """
  length, rows, vocab_size = 128, 500, 300
  batch = make_tokens([length] * rows, length, vocab_size)
  continuations = np.arange(vocab_size) % 5 < 2
  key = jax.random.key(3)
  limit = masking.max_predictions(length, DRAWN)
  result = jax.device_get(
    mask(batch, key, vocab_size, limit, continuations, rates=DRAWN)
  )
  draws, _ = jax.device_get(draws_of(key, rows, length))
  order, action = (draws[:, i].astype(np.int64) >> 8 for i in (0, 1))
  order, action = order / 2**24, 1 - action / 2**24
  predicted = []
  for n in range(rows):
    row = {name: array[n] for name, array in batch.items()}
    hidden, changed = [], []
    for unit in units_of(row, continuations, None, 1):
      first = unit[0]
      # The first token's draw is uniform below 0.15 where it is predicted.
      is_picked = order[n, first] < 0.15
      single = 0.15 * action[n, first] if is_picked else order[n, first]
      for place in unit:
        if not is_picked:
          continue
        predicted.append((n, place))
        own = single if place == first else action[n, place]
        bounds = (0.015, 0.03) if place == first else (0.1, 0.2)
        if own > bounds[1]:
          hidden.append(place)
        elif own > bounds[0]:
          changed.append(place)
    is_mask = result['tokens'][n] == SPECIALS.mask
    is_mask &= batch['tokens'][n] != SPECIALS.mask
    assert (
      set(hidden)
      <= set(np.flatnonzero(is_mask).tolist())
      <= {
        *hidden,
        *changed,  # [MASK] is one of the random tokens
      }
    )
    same = np.setdiff1d(np.arange(length), hidden + changed)
    assert (result['tokens'][n, same] == batch['tokens'][n, same]).all()
  rows_, slots = np.nonzero(result['mlm_weights'])
  places = result['mlm_positions'][rows_, slots]
  assert predicted == list(zip(rows_.tolist(), places.tolist(), strict=True))


@pytest.mark.parametrize('span', [1, 3])
def test_share_of_drawn_predictions(span):
  length, rows, vocab_size = 128, 4000, 300
  batch = make_tokens([length] * rows, length, vocab_size)
  continuations = np.arange(vocab_size) % 3 == 0
  limit = masking.max_predictions(length, DRAWN)
  result = jax.device_get(
    mask(
      batch,
      jax.random.key(0),
      vocab_size,
      limit,
      continuations,
      rates=DRAWN,
      span=span,
    )
  )
  used = result['mlm_weights'].sum(axis=1)
  assert used.sum() / (rows * (length - 3)) == pytest.approx(0.15, abs=0.002)
  assert (used == limit).mean() < 1e-3 and used.std() > 5


def test_sizes_of_spans():
  draws = jax.random.bits(jax.random.key(0), (100_000,), jnp.uint32)
  sizes = np.asarray(masking.span_sizes(draws, 3))
  shares = np.bincount(sizes, minlength=4)[1:] / len(sizes)
  np.testing.assert_allclose(shares, np.array([6, 3, 2]) / 11, atol=0.006)
  assert (np.asarray(masking.span_sizes(draws, 1)) == 1).all()
