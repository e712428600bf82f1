import functools

import bert_cases
import gpt_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import decoding, gpt
from models.decoding import Sampling

both = pytest.mark.parametrize('pre_norm', [False, True], ids=['gpt', 'gpt2'])
VOCAB_SIZE = 200  # 56 rows of padding
SMALL = dict(num_layers=2, embed_dim=64, num_heads=2, mlp_dim=256)


@functools.cache
def make_case(pre_norm):
  """A model with clear preferences, prepared to decode."""
  model = gpt.Gpt(
    vocab_size=VOCAB_SIZE, max_length=64, pre_norm=pre_norm, **SMALL
  )
  ids = jnp.zeros((1, 1), jnp.int32)
  shapes = jax.eval_shape(
    functools.partial(model.init, train=False),
    jax.random.key(0),
    ids,
    ids == 0,
    ids,
  )['params']
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda p: 0.3 * rng.normal(size=p.shape).astype(np.float32),
    gpt_cases.nn.meta.unbox(shapes),
  )
  params['embeddings']['tokens']['embedding'][VOCAB_SIZE:] = 0
  return gpt.prepare_decoding(model, params)


def make_prompts(lengths, seed=0):
  rng = np.random.default_rng(seed)
  T = max(lengths)
  tokens = rng.integers(0, VOCAB_SIZE, (len(lengths), T)).astype(np.int32)
  return tokens, np.array(lengths)


def row_keys(count, seed=0):
  return jax.random.split(jax.random.key(seed), count)


def generate(pre_norm, tokens, lengths, **arguments):
  arguments = dict(max_new_tokens=12, rngs=row_keys(len(lengths))) | arguments
  chunks = decoding.generate(*make_case(pre_norm), tokens, lengths, **arguments)
  return np.concatenate(list(chunks), axis=1)


# The cache


@pytest.mark.parametrize(
  'pre_norm, layout',
  [(False, 'own'), (True, 'own'), (True, 'scanned')],
)
def test_cached_decoding_equals_the_full_forward(pre_norm, layout):
  """At every position, with prompts of different lengths in the batch."""
  model = gpt_cases.make_model(pre_norm=pre_norm)
  params = gpt_cases.init_params(pre_norm)
  batch = gpt_cases.make_batch()
  mask = batch['token_mask']
  inputs = [batch[k] for k in gpt_cases.INPUTS]
  expected = gpt_cases.forward(model, params, *inputs)
  if layout == 'own':
    model, params = gpt.prepare_decoding(model, params)
    assert 'layers' not in params
  cache = gpt.empty_cache(model, 4, 40)
  found, start = [], 0
  for width in (9, *(1,) * 28):
    part = [x[:, start : start + width] for x in inputs]
    outputs = gpt_cases.forward(model, params, *part, cache)
    cache = outputs.pop('cache')
    found.append(outputs)
    start += width
  assert int(cache.end) == start == 37
  np.testing.assert_array_equal(cache.mask[:, :37], mask)
  assert not cache.mask[:, 37:].any()
  for name in ('hidden', 'lm_logits'):
    ours = np.concatenate([outputs[name] for outputs in found], axis=1)
    bert_cases.assert_close(ours[mask], np.asarray(expected[name])[mask], 1e-5)


@both
def test_padding_left_or_right_of_a_prompt_is_not_seen(pre_norm):
  model, params = make_case(pre_norm)
  tokens, lengths = make_prompts((9, 3, 1, 7))
  T = tokens.shape[1]
  position = np.arange(T)
  after = np.array([[5], [6], [7], [8]], np.int32)
  logits = {}
  for side in ('left', 'right'):
    mask = position < lengths[:, None]
    rows, positions = tokens, np.tile(position, (4, 1))
    if side == 'left':
      shift = T - lengths[:, None]
      mask = position >= shift
      positions = np.maximum(position - shift, 0)
      rows = np.take_along_axis(tokens, positions, axis=1)
    cache = gpt.empty_cache(model, 4, 16)
    cache = gpt_cases.forward(model, params, rows, mask, positions, cache)[
      'cache'
    ]
    logits[side] = gpt_cases.forward(
      model, params, after, after > 0, lengths[:, None], cache
    )['lm_logits'][:, 0]
  bert_cases.assert_close(logits['left'], logits['right'], 1e-5)
  # And as each row alone, without a cache.
  text = np.zeros((4, T + 1), np.int32)
  text[:, :T] = tokens
  text[np.arange(4), lengths] = after[:, 0]
  positions = np.tile(np.arange(T + 1), (4, 1))
  whole = gpt_cases.forward(
    model, params, text, positions <= lengths[:, None], positions
  )['lm_logits']
  whole = np.asarray(whole)[np.arange(4), lengths]
  bert_cases.assert_close(logits['right'], whole, 1e-5)


def test_weights_prepared_in_bfloat16_change_nothing():
  model = gpt_cases.make_model(pre_norm=True, dtype=jnp.bfloat16)
  model = model.clone(scan_layers=False)
  params = gpt_cases.init_params(True)
  batch = gpt_cases.make_batch()
  inputs = [batch[k] for k in gpt_cases.INPUTS]
  outputs = gpt_cases.forward(model, params, *inputs)
  prepared, params = gpt.prepare_decoding(model, params)
  assert params['layers_1']['mlp']['in']['kernel'].dtype == jnp.bfloat16
  assert params['final_norm']['scale'].dtype == jnp.float32
  assert gpt.empty_cache(prepared, 1, 8).keys[1].dtype == jnp.bfloat16
  outputs_p = gpt_cases.forward(prepared, params, *inputs)
  bert_cases.assert_close(
    jax.tree.map(lambda x: np.asarray(x, np.float32), outputs_p),
    jax.tree.map(lambda x: np.asarray(x, np.float32), outputs),
    1e-6,
  )


# The loop


@both
def test_greedy_equals_hugging_face_token_for_token(
  torch, make_gpt_reference, pre_norm
):
  sizes = SMALL
  reference = make_gpt_reference(sizes, VOCAB_SIZE, pre_norm, noise=0.3)
  model = gpt.Gpt(
    vocab_size=VOCAB_SIZE, max_length=64, pre_norm=pre_norm, **sizes
  )
  arrays = {k: v.detach().numpy() for k, v in reference.state_dict().items()}
  params = gpt_cases.open_arrays(arrays, model).load()
  kinds = (1, 2, 7, 16, 17)
  tokens, lengths = make_prompts([kinds[i % 5] for i in range(50)])
  chunks = decoding.generate(
    model, params, tokens, lengths, max_new_tokens=20, rngs=row_keys(50)
  )
  ours = np.concatenate(list(chunks), axis=1)
  for length in kinds:
    rows = lengths == length
    prompts = torch.tensor(tokens[rows, :length].astype(np.int64))
    theirs = reference.generate(
      prompts,
      attention_mask=torch.ones_like(prompts),
      do_sample=False,
      max_new_tokens=20,
      pad_token_id=0,
    )
    np.testing.assert_array_equal(ours[rows], theirs[:, length:].numpy())
  assert len(np.unique(ours)) > 20  # not one token for ever


@pytest.mark.parametrize(
  'sampling', [decoding.GREEDY, Sampling(1.3, top_k=50, top_p=0.95)]
)
def test_rows_come_out_as_they_do_alone(sampling):
  tokens, lengths = make_prompts((9, 1, 16, 4))
  rngs = row_keys(4)
  together = generate(True, tokens, lengths, rngs=rngs, sampling=sampling)
  for i, length in enumerate(lengths):
    alone = generate(
      True,
      tokens[i : i + 1, :length],
      lengths[i : i + 1],
      rngs=rngs[i : i + 1],
      sampling=sampling,
    )
    np.testing.assert_array_equal(alone[0], together[i])


def test_the_same_keys_give_the_same_tokens():
  tokens, lengths = make_prompts((5, 5, 5, 5))
  tokens[:] = tokens[0]
  sampling = Sampling(temperature=2.0)
  run = functools.partial(generate, False, tokens, lengths, sampling=sampling)
  first = run()
  assert first.shape == (4, 12)
  np.testing.assert_array_equal(run(), first)
  np.testing.assert_array_equal(run(chunk=5), first)  # 5, 5 and 2
  assert (run(rngs=row_keys(4, seed=1)) != first).any(axis=1).all()
  assert len({tuple(row) for row in first}) == 4  # a key a row
  assert first.min() >= 0
  assert first.max() < VOCAB_SIZE


def test_rows_end_at_stop_ids():
  tokens, lengths = make_prompts((9, 3, 5, 16))
  free = generate(True, tokens, lengths)
  stop_ids = (int(free[0, 4]), int(free[1, 2]))
  ended = generate(True, tokens, lengths, stop_ids=stop_ids, chunk=4)
  longest = 0
  for row, whole in zip(ended, free, strict=True):
    (hits,) = np.isin(whole, stop_ids).nonzero()
    end = hits[0] + 1 if len(hits) else len(whole)
    longest = max(longest, end)
    np.testing.assert_array_equal(row[:end], whole[:end])
    assert (row[end:] == decoding.NO_TOKEN).all()
  assert ended.shape[1] == longest
  tokens[:], lengths[:] = tokens[0], lengths[0]
  only = generate(True, tokens, lengths, stop_ids=stop_ids, chunk=4)
  assert only.shape[1] <= 5  # nothing after all rows have ended


def test_tokens_come_in_chunks_and_few_programs_are_compiled():
  tokens, lengths = make_prompts((9, 3, 5, 5))
  arguments = dict(max_new_tokens=10, rngs=row_keys(4), chunk=4)
  run = functools.partial(decoding.generate, *make_case(True))
  chunks = list(run(tokens, lengths, **arguments))
  assert [chunk.shape for chunk in chunks] == [(4, 4), (4, 4), (4, 2)]
  programs = [f._cache_size() for f in (decoding._prefill, decoding._emit)]
  for lengths in ((2, 7, 3, 3), (17, 2, 9, 9), (4, 11, 1, 1)):
    tokens, counts = make_prompts(lengths)
    list(run(tokens, counts, **arguments))
  again = [f._cache_size() for f in (decoding._prefill, decoding._emit)]
  assert again == programs


def test_prompts_that_do_not_fit_are_refused():
  tokens, lengths = make_prompts((9, 3))
  for given, arguments, message in (
    (np.array([9, 0]), {}, r'lengths are \[9, 0\], expected 1 to 9'),
    (np.array([9, 10]), {}, r'lengths are \[9, 10\], expected 1 to 9'),
    (lengths[:1], {}, r'2 prompts, but lengths of shape \(1,\)'),
    (lengths, dict(max_new_tokens=57), '9 tokens and 57 new.*64 positions'),
    (lengths, dict(rngs=row_keys(3)), r'keys of shape \(3,\)'),
  ):
    with pytest.raises(ValueError, match=message):
      generate(True, tokens, given, **arguments)
  assert generate(True, tokens, lengths, max_new_tokens=56).shape == (2, 56)


# Choosing tokens


def brute_force(logits, sampling, vocab_size):
  """Probabilities of one row's tokens, in float64."""
  logits = np.array(logits[:vocab_size], np.float64) / sampling.temperature
  order = sorted(range(vocab_size), key=lambda token: -logits[token])
  if sampling.top_k:
    order = order[: sampling.top_k]
  weights = np.exp(logits - logits.max())
  total = sum(weights[token] for token in order)
  kept, mass = [], 0.0
  for token in order:
    if mass / total >= sampling.top_p:
      break
    kept.append(token)
    mass += weights[token]
  probabilities = np.zeros(vocab_size)
  probabilities[kept] = weights[kept] / mass
  return probabilities


SAMPLINGS = (
  Sampling(),
  Sampling(temperature=0.7),
  Sampling(top_k=5),
  Sampling(top_p=0.6),
  Sampling(1.8, top_k=12, top_p=0.9),
  Sampling(0.5, top_k=1),
  Sampling(top_p=1e-6),
  Sampling(top_p=1e-50),
  Sampling(top_k=1000),
)


@pytest.mark.parametrize('sampling', SAMPLINGS, ids=str)
def test_what_may_be_drawn_is_what_the_definitions_say(torch, sampling):
  from transformers.generation import logits_process as theirs

  rng = np.random.default_rng(0)
  logits = 2 * rng.normal(size=(64, 128)).astype(np.float32)
  logits[:, 100:] = 50  # padding that must not be drawn
  ours = np.asarray(
    jax.jit(
      lambda logits: jax.nn.softmax(
        decoding.filter_logits(logits, sampling, 100)
      )
    )(logits)
  )
  assert (ours[:, 100:] == 0).all()
  expected = np.stack([brute_force(row, sampling, 100) for row in logits])
  np.testing.assert_array_equal(ours[:, :100] > 0, expected > 0)
  np.testing.assert_allclose(ours[:, :100], expected, rtol=1e-5)
  scores = torch.tensor(logits[:, :100])
  for warper in (
    theirs.TemperatureLogitsWarper(float(sampling.temperature)),
    sampling.top_k and theirs.TopKLogitsWarper(sampling.top_k),
    sampling.top_p < 1 and theirs.TopPLogitsWarper(sampling.top_p),
  ):
    scores = warper(None, scores) if warper else scores
  np.testing.assert_allclose(
    ours[:, :100], torch.softmax(scores, -1).numpy(), rtol=1e-5
  )


def test_ties_are_kept_together():
  logits = np.array([[2.0, 1.0, 1.0, 1.0, 0.0]], np.float32)
  keep = jax.jit(decoding.filter_logits, static_argnums=(1, 2))
  for sampling in (Sampling(top_k=2), Sampling(top_p=0.6)):
    kept = np.isfinite(keep(logits, sampling, 5))
    assert kept.tolist() == [[True, True, True, True, False]], sampling


@pytest.mark.parametrize('sampling', SAMPLINGS[:5], ids=str)
def test_draws_have_the_probabilities(sampling):
  """By chi-squared: its mean is the degrees of freedom, its variance twice."""
  count, vocab_size = 40_000, 20
  logits = np.random.default_rng(1).normal(size=32).astype(np.float32)
  logits[vocab_size:] = 30
  draw = jax.jit(decoding.sample, static_argnums=(2, 3))
  tokens = draw(
    np.tile(logits, (count, 1)), row_keys(count), sampling, vocab_size
  )
  counts = np.bincount(tokens, minlength=vocab_size)
  expected = count * brute_force(logits, sampling, vocab_size)
  assert len(counts) == vocab_size
  assert (counts[expected == 0] == 0).all()
  some = expected > 0
  statistic = ((counts - expected)[some] ** 2 / expected[some]).sum()
  freedom = some.sum() - 1
  assert freedom >= 4
  assert statistic < freedom + 5 * np.sqrt(2 * freedom), statistic
  # Nor is it better than chance, as draws without chance would be.
  assert statistic > freedom / 20


def test_greedy_takes_the_likeliest_and_needs_no_chance():
  logits = np.random.default_rng(2).normal(size=(50, 128)).astype(np.float32)
  logits[:, 100:] = 30
  tokens = decoding.sample(logits, row_keys(50), decoding.GREEDY, 100)
  np.testing.assert_array_equal(tokens, logits[:, :100].argmax(axis=1))
  assert tokens.dtype == jnp.int32


@pytest.mark.parametrize(
  'fields', [dict(temperature=-1), dict(top_k=-1), dict(top_p=0.0)]
)
def test_bad_sampling_is_refused(fields):
  ((name, value),) = fields.items()
  with pytest.raises(ValueError, match=f'{name} is {value}, expected'):
    Sampling(**fields)
