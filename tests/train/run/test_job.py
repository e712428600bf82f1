"""The rules of a run's final model, of its end and of its rate."""

import numpy as np
import pytest
import torch

from train.run.job import Keep


@pytest.mark.parametrize('plateau', [0, 1, 3])
def test_the_rate_is_that_of_torch(plateau):
  rng = np.random.default_rng(plateau)
  keep = Keep('f1', best=True, patience=None, plateau=plateau)
  halved = 0
  for size in (1e-5, 1e-4, 0.1):  # about the threshold of 1e-4, and far above
    scores = (0.7 + size * rng.normal(size=40).cumsum()).tolist()
    scores[7] = scores[6]
    scores[11] = float('nan')
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
      optimizer, mode='max', factor=0.5, patience=plateau, eps=0.0
    )
    for count, score in enumerate(scores, start=1):
      scheduler.step(score)
      rate = keep.rate(scores[:count])
      assert rate == optimizer.param_groups[0]['lr']
    halved += rate < 1
  assert halved


def test_without_a_plateau_the_rate_stays():
  keep = Keep('f1', best=True, patience=3)
  assert keep.rate([0.5] * 9) == 1.0
  assert keep.is_over([0.5] * 4)
  assert keep._replace(plateau=1).rate([]) == 1.0


def test_the_first_of_equal_scores_is_the_best():
  keep = Keep('f1', best=True, patience=2)
  assert keep.is_best([0.5])
  assert not keep.is_best([0.5, 0.5])
  assert not keep._replace(best=False).is_best([0.5, 0.6])
  assert not keep.is_over([0.5, 0.4])
  assert keep.is_over([0.5, 0.4, 0.5])
