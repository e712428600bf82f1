"""A task's model on all of a split: logits, answers, scores."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from data.tasks import measures, scores, spans
from data.tasks.examples import Prediction, SpanExample
from train import sharding
from train.transfer import answers
from train.transfer.task_data import Split
from train.transfer.task_job import Predictor


def run_model(
  job: Predictor, params: Any, split: Split
) -> tuple[list[np.ndarray], float]:
  """Returns each feature's logits, without padding, and the mean loss.

  Args:
    job: the job.
    params: of its model.
    split: what to read. Where it tells no answers, the loss means nothing.
  """
  size = job.config.eval.global_batch
  rows = sharding.local_rows(job.mesh, size)
  found: list[Any] = [None] * len(split.features)
  loss = np.zeros(2)
  per_token = job.task.kind in ('tagging', 'span')

  def keep(outputs: Mapping[str, np.ndarray]) -> None:
    nonlocal loss
    loss = loss + outputs['loss'].astype(np.float64)
    for number, real, length, logits in zip(
      outputs['example_ids'],
      outputs['example_mask'],
      outputs['lengths'],
      outputs['logits'],
      strict=True,
    ):
      if real:
        found[number] = logits[:length] if per_token else logits

  before = None
  for batch in split.batches.eval_batches(size, rows):
    outputs = job.predict_step(params, sharding.put_batch(batch, job.mesh))
    if before is not None:  # computed while this one is
      keep(jax.device_get(before))
    before = outputs
  keep(jax.device_get(before))
  return found, float(loss[0] / max(loss[1], 1e-9))


def has_no_answers(split: Split) -> bool:
  """Returns whether the split has questions, and some have no answer."""
  return any(
    isinstance(example, SpanExample)
    and example.is_labelled
    and not example.answers
    for example in split.examples
  )


def predict(
  job: Predictor,
  split: Split,
  logits: list[np.ndarray],
  *,
  no_answer: bool = False,
  threshold: float = 0.0,
) -> list[Prediction]:
  """Returns the answers that logits give; see `answers.answer`."""
  return answers.answer(
    job.task,
    split.examples,
    split.features,
    logits,
    job.config.task,
    no_answer=no_answer,
    threshold=threshold,
  )


def tune_threshold(
  job: Predictor, dev: Split, logits: list[np.ndarray]
) -> float:
  """Returns the threshold for no answer that is best on dev; 0 elsewhere."""
  if job.task.kind != 'span' or not has_no_answers(dev):
    return 0.0
  return spans.tune_threshold(
    dev.examples,
    predict(job, dev, logits, no_answer=True),
    lambda example, answer: measures.answer_score(
      answer, [text for text, _ in example.answers]
    )[1],
  )


def score(
  job: Predictor, split: Split, predictions: list[Prediction]
) -> dict[str, float]:
  """Returns the scores of a labelled split, 'metric' -> value."""
  return scores.score(job.task, split.examples, predictions)
