"""The losses of a task's program, against PyTorch's and by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
import scored_cases
import task_batches
import torch

from configs.sections import task as task_section
from train.transfer import task_losses
from train.transfer.program import TaskProgram


def make_task(kind, labels=(), **fields):
  return scored_cases.task(kind, name='made', labels=labels, **fields)


def settings_of(**changes):
  config = task_section.get_config()
  config.task.update(changes)
  return config


def mean_losses(objective, outputs, batch):
  sums, _ = objective.losses(outputs, batch)
  totals = objective.weights(batch)
  return {
    name: float(value / totals[name]) for name, (value, _) in sums.items()
  }


def random_logits(*shape):
  return np.random.default_rng(1).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize('weights', [(), (0.5, 2.0, 0.1)])
def test_classes(weights):
  logits, labels = random_logits(4, 3), np.array([2, 0, 1, 1], np.int32)
  task = make_task('classification', ('a', 'b', 'c'))
  objective = TaskProgram(settings_of(class_weights=weights), task)
  expected = torch.nn.functional.cross_entropy(
    torch.from_numpy(logits),
    torch.from_numpy(labels).long(),
    weight=torch.tensor(weights) if weights else None,
  )
  found = mean_losses(objective, {'logits': logits}, task_batches.make(labels))
  assert found == {'task': pytest.approx(float(expected), rel=1e-5)}


def test_rows_that_fill_a_batch_up_do_not_count():
  logits, labels = random_logits(4, 3), np.array([2, 0, 1, 1], np.int32)
  objective = TaskProgram(
    settings_of(), make_task('classification', ('a', 'b', 'c'))
  )
  real = np.array([True, True, False, False])
  found = mean_losses(
    objective, {'logits': logits}, task_batches.make(labels, real=real)
  )
  expected = torch.nn.functional.cross_entropy(
    torch.from_numpy(logits[:2]), torch.from_numpy(labels[:2]).long()
  )
  assert found['task'] == pytest.approx(float(expected), rel=1e-5)


def test_tags_count_where_they_are():
  logits = random_logits(4, 6, 3)
  labels = np.random.default_rng(2).integers(-1, 3, (4, 6)).astype(np.int32)
  objective = TaskProgram(
    settings_of(), make_task('tagging', ('O', 'B-X', 'I-X'))
  )
  expected = torch.nn.functional.cross_entropy(
    torch.from_numpy(logits).reshape(-1, 3),
    torch.from_numpy(labels).long().reshape(-1),
    ignore_index=-1,
  )
  found = mean_losses(objective, {'logits': logits}, task_batches.make(labels))
  assert found['task'] == pytest.approx(float(expected), rel=1e-5)


def test_spans_look_at_real_tokens_only():
  logits = random_logits(4, 6, 2)
  labels = np.array([[0, 0], [1, 2], [2, 2], [0, 1]], np.int32)
  objective = TaskProgram(settings_of(), make_task('span'))
  batch = task_batches.make(labels)
  masked = np.where(np.asarray(batch['token_mask'])[..., None], logits, -1e9)
  expected = sum(
    float(
      torch.nn.functional.cross_entropy(
        torch.from_numpy(masked[..., i]),
        torch.from_numpy(labels[:, i]).long(),
      )
    )
    for i in (0, 1)
  )
  found = mean_losses(objective, {'logits': logits}, batch)
  assert found['task'] == pytest.approx(expected / 2, rel=1e-5)


def test_scores_by_squared_error_or_soft_classes():
  scores = np.array([0.0, 2.25, 5.0, 4.4], np.float32)
  task = make_task('regression', score_range=(0.0, 5.0))
  logits = random_logits(4, 1)
  objective = TaskProgram(settings_of(), task)
  found = mean_losses(objective, {'logits': logits}, task_batches.make(scores))
  assert found['task'] == pytest.approx(
    float(np.square(logits[:, 0] - scores).mean()), rel=1e-5
  )

  targets = np.asarray(task_losses.soft_targets(jnp.asarray(scores), 6))
  logits = random_logits(4, 6)
  objective = TaskProgram(settings_of(soft_classes=6), task)
  expected = torch.nn.functional.cross_entropy(
    torch.from_numpy(logits), torch.tensor(targets)
  )
  found = mean_losses(objective, {'logits': logits}, task_batches.make(scores))
  assert found['task'] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize('shape', [(4,), (4, 2)])
@pytest.mark.parametrize('positions', [0, 7])
def test_the_language_models_loss_is_a_mean_of_means(shape, positions):
  labels = np.array([1, 0, 1, 1], np.int32)
  task = make_task('choice', num_choices=2) if len(shape) == 2 else None
  task = task or make_task('classification', ('a', 'b'))
  objective = TaskProgram(settings_of(lm_weight=0.5), task)
  batch = task_batches.make(labels, shape)
  outputs = {
    'logits': random_logits(4, 2),
    'lm_logits': jnp.asarray(random_logits(*shape, 6, 10)),
  }
  softmax = np.array(outputs['lm_logits'])
  if positions:  # in the same softmax
    scores = 2 + random_logits(*shape, 6, positions)
    outputs['position_logits'] = jnp.asarray(scores)
    softmax = np.concatenate([softmax, scores], axis=-1)
  tokens, mask = (
    np.array(batch[name]).reshape(-1, 6) for name in ('tokens', 'token_mask')
  )
  rows = []
  for row in range(len(tokens)):
    count = int(mask[row].sum())
    logits = softmax.reshape(-1, *softmax.shape[-2:])[row]
    rows.append(
      float(
        torch.nn.functional.cross_entropy(
          torch.from_numpy(logits[: count - 1]),
          torch.from_numpy(tokens[row, 1:count]).long(),
        )
      )
    )
  found = mean_losses(objective, outputs, batch)
  assert found['lm'] == pytest.approx(0.5 * np.mean(rows), rel=1e-5)


@pytest.mark.parametrize(
  ('task', 'changes', 'message'),
  [
    (
      make_task('classification', ('a', 'b')),
      {'class_weights': (1.0,)},
      'expected one for each of the 2 labels',
    ),
    (make_task('choice'), {'class_weights': (1.0,)}, 'class_weights'),
    (
      make_task('regression', score_range=(0.0, 5.0)),
      {'soft_classes': 5},
      'needs 6 classes',
    ),
  ],
)
def test_what_does_not_fit_is_refused(task, changes, message):
  with pytest.raises(ValueError, match=message):
    TaskProgram(settings_of(**changes), task)


def test_a_batch_without_labels_has_no_loss():
  objective = TaskProgram(
    settings_of(), make_task('classification', ('a', 'b'))
  )
  batch = task_batches.make(np.zeros(4, np.int32)) | {
    'label_mask': jnp.zeros(4, bool)
  }
  assert mean_losses(objective, {'logits': random_logits(4, 2)}, batch) == {
    'task': 0.0
  }
