"""Hidden tokens and soft classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import task_batches
import transfer_cases

from train.architectures.architecture import Vocabulary
from train.transfer import task_losses


def test_a_score_is_shared_by_its_two_nearest_classes():
  scores = np.array([0.0, 2.25, 5.0, 4.4], np.float32)
  targets = np.asarray(task_losses.soft_targets(jnp.asarray(scores), 6))
  np.testing.assert_allclose(targets @ np.arange(6), scores, rtol=1e-6)
  np.testing.assert_allclose(targets.sum(-1), 1, rtol=1e-6)
  assert ((targets > 0).sum(-1) <= 2).all()


def test_hidden_tokens_are_drawn_anew_at_each_step():
  labels = np.array([1, 0, 1, 1], np.int32)
  real = np.array([True, True, True, False])
  batch = task_batches.make(labels, (4, 2), length=40, real=real)
  vocabulary = Vocabulary.of_size(10)

  def hide(step):
    keys = jax.random.split(jax.random.key(step), 4)
    found = task_losses.hide(batch, keys, vocabulary)
    return jax.tree.map(np.asarray, found)

  first, second = hide(0), hide(1)
  assert (first['masked_tokens'] != second['masked_tokens']).any()
  np.testing.assert_array_equal(
    first['masked_tokens'], hide(0)['masked_tokens']
  )
  tokens = np.asarray(batch['tokens'])
  assert not first['mlm_weights'][-1].any()
  used = first['mlm_weights'][:-1] > 0
  where = np.take_along_axis(tokens, first['mlm_positions'], axis=-1)
  assert (where[:-1] == first['mlm_targets'][:-1])[used].all()
  assert used.any(axis=-1).all()
  # Choices of an example are hidden apart.
  assert (first['mlm_positions'][:, 0] != first['mlm_positions'][:, 1]).any()


@pytest.mark.parametrize('kind', ['gpt', 'bert'])
@pytest.mark.parametrize('choices', [None, 2])
def test_next_and_hidden_tokens_are_scored_without_all_logits(kind, choices):
  """Sum and gradient are those of the logits, which only scoring keeps."""
  no_dropout = {'dropout_rate': 0.0, 'attention_dropout_rate': 0.0}
  if kind == 'gpt':
    encoder = transfer_cases.make_gpt(**no_dropout)
  else:
    encoder = transfer_cases.make_bert(('pooler', 'mlm'), **no_dropout)
  model = transfer_cases.make_model(
    encoder, num_outputs=1 if choices else 3, lm=True
  )
  batch = transfer_cases.make_batch(choices=choices)
  size = len(batch['label'])
  batch |= {'example_mask': np.arange(size) < size - 1}
  inputs, loss = transfer_cases.inputs_of(batch), task_losses.lm_loss
  params = transfer_cases.draw_params(model, batch)
  if kind == 'bert':
    vocabulary = Vocabulary.of_size(encoder.vocab_size)
    keys = jax.random.split(jax.random.key(0), size)
    batch |= task_losses.hide(batch, keys, vocabulary)
    hidden = (batch[name] for name in task_losses.HIDDEN)
    inputs, loss = [*inputs, None, None, *hidden], task_losses.mlm_loss

  def total(params, without):
    outputs = transfer_cases.run(model, params, inputs, jax.random.key(0))
    assert 'lm_head' in outputs
    kept = {key: x for key, x in outputs.items() if key not in without}
    return loss(kept, batch)[0]

  found, expected = (
    jax.value_and_grad(total)(params, without)
    for without in (('lm_logits',), ('lm_head',))
  )
  assert float(expected[0]) > 1
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6),
    found,
    expected,
  )
