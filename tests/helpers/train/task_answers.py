"""What a fine-tuned model answers to its dev set."""

import numpy as np

from data.inputs import batches
from train.engine import sharding
from train.transfer import predictors, task_data


def answers(config, workdir):
  """Returns a batch of dev, and our logits of it."""
  _, job, _ = predictors.open_member(workdir)
  params = job.load(workdir)
  job.task = task_data.open_task(config)
  split = job.open_splits(['dev'])['dev']
  assert isinstance(split.batches, batches.Batches)
  batch = next(split.batches.eval_batches(8))
  with sharding.scope(job.mesh, job.config.mesh.rules):
    found = job.predict_step(params, sharding.put_batch(batch, job.mesh))
  return batch, np.asarray(found['logits'])
