"""A task's model on all of a split: logits, answers, scores."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from etils import epath

from data.scoring import measures, scores, spans, submissions
from data.tasks.examples import Prediction, SpanExample
from train.engine import sharding
from train.host import files, processes
from train.transfer import answers
from train.transfer.task_data import Split
from train.transfer.task_job import DEV, Predictor, TaskJob

# Of a workdir: what predictions need besides the model, and those of the run.
TASK_FILE = 'task.json'
PREDICTIONS_FOLDER = 'predictions'


def run_model(
  job: Predictor,
  params: Any,
  split: Split,
  after_batch: Callable[[], None] = lambda: None,
) -> tuple[list[np.ndarray], float]:
  """Returns each feature's logits, without padding, and the mean loss.

  Args:
    job: the job.
    params: of its model.
    split: what to read. Where it tells no answers, the loss means nothing.
    after_batch: called when a batch is done; what it raises ends all.
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
      after_batch()
    before = outputs
  keep(jax.device_get(before))
  after_batch()
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


def score_all(
  job: TaskJob,
  params: Any,
  workdir: epath.Path,
  dev_logits: list[np.ndarray] | None,
  stay_alive: Callable[[], None],
) -> tuple[dict[str, float], dict[str, list[float]]]:
  """Scores every labelled split, and writes what was predicted.

  Args:
    job: the job.
    params: to score.
    workdir: the run's.
    dev_logits: theirs of dev, where they are known.
    stay_alive: called after each batch and each split.

  Returns:
    'eval/<task>[/<split>]/<metric>' -> value, and -> its 95 % interval.
  """
  figures, intervals = {}, {}
  threshold = 0.0
  no_answer = has_no_answers(job.splits[DEV])
  folder = workdir / PREDICTIONS_FOLDER
  order = sorted(job.splits, key=lambda name: name != DEV)  # dev first
  for name in order:
    split = job.splits[name]
    if name == 'train' or not split.is_labelled:
      continue
    logits = dev_logits if name == DEV else None
    if logits is None:
      logits, _ = run_model(job, params, split, stay_alive)
    if name == DEV:
      threshold = tune_threshold(job, split, logits)
    predictions = predict(
      job, split, logits, no_answer=no_answer, threshold=threshold
    )
    prefix = f'eval/{job.task.name}'
    if name != DEV:
      prefix += f'/{name}'
    found = score(job, split, predictions)
    figures |= {f'{prefix}/{metric}': found[metric] for metric in found}
    bounds = scores.bootstrap(job.task, split.examples, predictions)
    intervals |= {
      f'{prefix}/{metric}': list(bounds[metric]) for metric in bounds
    }
    if processes.is_first():
      folder.mkdir(exist_ok=True)
      submissions.write(
        job.task, name, split.examples, predictions, folder / f'{name}.jsonl'
      )
    stay_alive()
  if processes.is_first():
    facts = {
      'task': job.task.name,
      'kind': job.task.kind,
      'labels': list(job.task.labels),
      'score_range': list(job.task.score_range),
      'num_choices': job.task.num_choices,
      'no_answer': no_answer,
      'threshold': threshold,
    }
    files.write_atomically(
      workdir / TASK_FILE, json.dumps(facts, indent=2) + '\n'
    )
  return figures, intervals
