"""Masks of whole units on ERNIE's released lines, beside its rule."""

import jax
import numpy as np
import pytest

from data.examples import masking, transforms
from data.vocabulary import tokenization

RATES = masking.Rates(0.15, 0.8, 0.1, 'drawn')


def ernie_masks(bounds, draws):
  """ERNIE's rule for a row: actions 'keep', 'mask', 'random' by place.

  One uniform draw a token. A unit is predicted if its first token's draw is at
  most 0.15, and that draw also says what becomes of this token; each other
  token of the unit becomes what its own draw says.
  """
  actions, chosen = {}, False
  for place, bound in enumerate(bounds):
    draw = draws[place]
    if bound == -1:
      chosen = False
    elif bound == 0:
      chosen = draw <= 0.15
      draw /= 0.15
    if chosen:
      masked = 'random' if draw > 0.1 else 'keep'
      actions[place] = 'mask' if draw > 0.2 else masked
  return actions


@pytest.fixture(scope='module')
def demo(sesame_data):
  """The rows of both files, padded, and the vocabulary."""
  folder = sesame_data / 'ernie_demo'
  tokenizer = tokenization.load(folder / 'vocab.txt')
  rows = []
  for name in ('train', 'valid'):
    text = (folder / f'demo_{name}_set.txt').read_text()
    for line in text.splitlines():
      ids, _, _, bounds, _ = line.split(';')
      rows.append((ids.split(), bounds.split()))
  length = max(len(ids) for ids, _ in rows)
  tokens = np.zeros((len(rows), length), np.int32)
  bounds = np.full(tokens.shape, -1)
  for row, (ids, limits) in enumerate(rows):
    tokens[row, : len(ids)] = ids
    bounds[row, : len(ids)] = limits
  return tokens, bounds, tokenizer


def test_masks_are_those_of_ernie_s_rule(demo):
  tokens, bounds, tokenizer = demo
  rows, length = tokens.shape
  assert rows == 16_000
  specials = transforms.Specials(
    tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
  )
  keys = transforms.row_keys(jax.random.key(3), np.arange(rows))
  batch = {
    'tokens': tokens,
    'token_mask': tokens != tokenizer.pad_id,
    'example_mask': np.ones(rows, bool),
  }

  @jax.jit
  def mask(batch, keys, starts):
    draws = jax.vmap(lambda key: masking.mask_draws(key, length))(keys)
    result = masking.mask_units(
      batch,
      keys,
      specials=specials,
      vocab_size=tokenizer.vocab_size,
      rates=RATES,
      max_predictions=length,
      unit_starts=starts,
    )
    return draws, result

  draws, ours = jax.device_get(mask(batch, keys, bounds == 0))
  pick, action = ((draws[:, row] >> 8) + 0.5 for row in (0, 1))
  pick, action = pick / 2**24, 1 - action / 2**24
  # A first token's draw is our choice of the unit, and then our action.
  first = np.where(pick < 0.15, 0.15 * action, pick)
  uniform = np.where(bounds == 0, first, action)
  random = 1 + draws[:, 2] % np.uint32(tokenizer.vocab_size - 1)

  expected, predicted, kinds = (
    tokens.copy(),
    0,
    dict.fromkeys(('mask', 'random', 'keep'), 0),
  )
  for row, (limits, numbers) in enumerate(
    zip(bounds.tolist(), uniform.tolist(), strict=True)
  ):
    actions = ernie_masks(limits, numbers)
    places = list(actions)
    used = len(places)
    assert ours['mlm_positions'][row, :used].tolist() == places
    assert ours['mlm_weights'][row].sum() == used
    assert np.array_equal(ours['mlm_targets'][row, :used], tokens[row, places])
    for place, kind in actions.items():
      kinds[kind] += 1
      if kind != 'keep':
        symbol = tokenizer.mask_id if kind == 'mask' else random[row, place]
        expected[row, place] = symbol
    predicted += used
  assert np.array_equal(ours['tokens'], expected)

  share = predicted / np.count_nonzero(bounds >= 0)
  assert abs(share - 0.15) < 0.002
  for kind, rate in (('mask', 0.8), ('random', 0.1), ('keep', 0.1)):
    assert abs(kinds[kind] / predicted - rate) < 0.005
  # Rows of a run have room for nearly all: few lines lose a prediction.
  room = masking.max_predictions(length, RATES)
  counts = ours['mlm_weights'].sum(1)
  assert np.maximum(counts - room, 0).sum() < 1e-3 * predicted


def test_exact_counting_keeps_its_limits_with_units(demo):
  tokens, bounds, tokenizer = demo[0][:2000], demo[1][:2000], demo[2]
  rows, length = tokens.shape
  specials = transforms.Specials(
    tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
  )
  result = jax.device_get(
    jax.jit(
      lambda batch, starts: masking.mask_units(
        batch,
        transforms.row_keys(jax.random.key(0), np.arange(rows)),
        specials=specials,
        vocab_size=tokenizer.vocab_size,
        rates=RATES._replace(counting='exact'),
        max_predictions=20,
        unit_starts=starts,
      )
    )(
      {
        'tokens': tokens,
        'token_mask': tokens != tokenizer.pad_id,
        'example_mask': np.ones(rows, bool),
      },
      bounds == 0,
    )
  )
  used = result['mlm_weights'].sum(1).astype(int)
  sizes = np.count_nonzero(tokens, axis=1)
  limit = np.minimum(20, np.maximum(1, np.round(0.15 * sizes)))
  assert (used <= limit).all() and used.mean() > 0.97 * limit.mean()
  unit = np.cumsum(bounds != 1, axis=1)
  for row in range(rows):
    places = result['mlm_positions'][row, : used[row]]
    assert (bounds[row, places] >= 0).all()
    whole = np.isin(unit[row], unit[row, places])
    assert np.array_equal(np.flatnonzero(whole), places)
