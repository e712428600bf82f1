"""Logits, answers and scores of a task's model on a whole split."""

import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from etils import epath

from data.scoring import answers, kinds, measures, scores, spans, submissions
from data.tasks.examples import Prediction
from train.engine import sharding
from train.host import files, processes
from train.transfer.task_data import Split
from train.transfer.task_job import DEV, Predictor, TaskJob

# In a workdir: facts that predictions need beside the model; the predictions.
TASK_FILE = 'task.json'
PREDICTIONS_FOLDER = 'predictions'


def run_model(
  job: Predictor,
  params: Any,
  split: Split,
  after_batch: Callable[[], None] = lambda: None,
) -> tuple[list[np.ndarray], float]:
  """Returns each feature's unpadded logits, and the mean loss over labels."""
  size = job.config.eval.global_batch
  rows = sharding.local_rows(job.mesh, size)
  found: list[Any] = [None] * len(split.features)
  loss = np.zeros(2)

  def keep(outputs: Any) -> None:
    outputs = jax.device_get(outputs)
    loss[:] += outputs['loss']
    names = ('example_ids', 'example_mask', 'lengths', 'logits')
    for number, real, length, logits in zip(
      *(outputs[name] for name in names), strict=True
    ):
      if real:  # logits of tokens are [T, K]
        found[number] = logits[:length] if logits.ndim == 2 else logits
    after_batch()

  before = None
  for batch in split.batches.eval_batches(size, rows):
    outputs = job.predict_step(params, sharding.put_batch(batch, job.mesh))
    if before is not None:  # while the device computes the next batch
      keep(before)
    before = outputs
  keep(before)
  return found, float(loss[0] / max(loss[1], 1e-9))


def has_no_answers(split: Split) -> bool:
  """Whether the split has questions without answer."""
  return any(example.has_no_answer for example in split.examples)


def predict(
  job: Predictor,
  split: Split,
  logits: list[np.ndarray],
  *,
  no_answer: bool = False,
  threshold: float = 0.0,
) -> list[Prediction]:
  """Returns the predictions of a split's logits; see `spans.Options`."""
  settings = job.config.task
  of_spans = ('n_best', 'max_answer')  # keys that readers of words lack
  options = spans.Options(
    **{key: settings[key] for key in of_spans if key in settings},
    threshold=threshold,
    allow_no_answer=no_answer,
  )
  return kinds.decode(
    answers.Outputs(job.task, split.examples, split.features, logits, options)
  )


def tune_threshold(
  job: Predictor, dev: Split, logits: list[np.ndarray]
) -> float:
  """Returns dev's best threshold for no answer; 0 if all have answers."""
  if not has_no_answers(dev):
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
  """Returns metric -> value of a labelled split."""
  return scores.score(job.task, split.examples, predictions)


def score_all(
  job: TaskJob,
  params: Any,
  folder: epath.Path,
  dev_logits: list[np.ndarray] | None,
  stay_alive: Callable[[], None],
) -> tuple[dict[str, float], dict[str, list[float]]]:
  """Scores every labelled split, and writes the predictions into a folder.

  Returns 'eval/<task>[/<split>]/<metric>' -> value, and -> its 95 % interval.
  """
  figures, intervals = {}, {}
  task, predictions_folder = job.task, folder / PREDICTIONS_FOLDER
  threshold, no_answer = 0.0, has_no_answers(job.splits[DEV])
  for name in sorted(job.splits, key=lambda name: name != DEV):  # dev first
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
    prefix = f'eval/{task.name}' + ('' if name == DEV else f'/{name}')
    bounds = scores.bootstrap(task, split.examples, predictions)
    for metric, value in score(job, split, predictions).items():
      figures[f'{prefix}/{metric}'] = value
      intervals[f'{prefix}/{metric}'] = list(bounds[metric])
    if processes.is_first():
      predictions_folder.mkdir(parents=True, exist_ok=True)
      submissions.write(
        task,
        name,
        split.examples,
        predictions,
        predictions_folder / f'{name}.jsonl',
      )
    stay_alive()
  if processes.is_first():
    facts = {
      'task': task.name,
      'kind': task.kind,
      'labels': list(task.labels),
      'score_range': list(task.score_range),
      'num_choices': task.num_choices,
      'no_answer': no_answer,
      'threshold': threshold,
    }
    files.write_atomically(
      folder / TASK_FILE, json.dumps(facts, indent=2) + '\n'
    )
  return figures, intervals
