"""Logits, answers and scores of a task's model on a whole split."""

import collections
import json
from collections.abc import Callable, Mapping, Sequence

import jax
import ml_collections
import numpy as np
from etils import epath

from data.scoring import answers, kinds, measures, scores, spans, submissions
from data.tasks.examples import Prediction
from models.layers import Params
from train.engine import sharding
from train.host import files, processes
from train.transfer import task_data
from train.transfer.program import TaskProgram
from train.transfer.task_data import DEV, Split

# In a workdir: facts that predictions need beside the model; the predictions.
TASK_FILE = 'task.json'
PREDICTIONS_FOLDER = 'predictions'
# Ends a metric's name, see `oracles`.
ORACLE = '_oracle'


def run_model(
  program: TaskProgram,
  params: Params,
  split: Split,
  after_batch: Callable[[], None] = lambda: None,
) -> tuple[list[np.ndarray], float]:
  """Returns each feature's unpadded logits, and the mean loss over labels."""
  size = program.config.eval.global_batch
  rows = sharding.local_rows(program.mesh, size)
  found: list[np.ndarray | None] = [None] * len(split.features)
  loss = np.zeros(2)

  def keep(outputs: Mapping[str, jax.Array]) -> None:
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
    outputs = program.predict_step(
      params, sharding.put_batch(batch, program.mesh)
    )
    if before is not None:  # while the device computes the next batch
      keep(before)
    before = outputs
  keep(before)
  return found, float(loss[0] / max(loss[1], 1e-9))


def has_no_answers(split: Split) -> bool:
  """Whether the split has questions without answer."""
  return any(example.has_no_answer for example in split.examples)


def predict(
  program: TaskProgram,
  split: Split,
  logits: list[np.ndarray],
  *,
  no_answer: bool = False,
  threshold: float = 0.0,
) -> list[Prediction]:
  """Returns the predictions of a split's logits; see `spans.Options`."""
  options = span_options(program.config.task)._replace(
    threshold=threshold, allow_no_answer=no_answer
  )
  return kinds.decode(
    answers.Outputs(
      program.task, split.examples, split.features, logits, options
    )
  )


def span_options(settings: ml_collections.ConfigDict) -> spans.Options:
  """Returns the options of a config's section `task`."""
  of_spans = ('n_best', 'max_answer')  # keys that readers of words lack
  return spans.Options(
    **{key: settings[key] for key in of_spans if key in settings}
  )


def tune_threshold(
  program: TaskProgram, dev: Split, logits: list[np.ndarray]
) -> float:
  """Returns dev's best threshold for no answer; 0 if all have answers."""
  if not has_no_answers(dev):
    return 0.0
  return spans.tune_threshold(
    dev.examples,
    predict(program, dev, logits, no_answer=True),
    lambda example, answer: measures.answer_score(
      answer, [text for text, _ in example.answers]
    )[1],
  )


def score(
  program: TaskProgram, split: Split, predictions: list[Prediction]
) -> dict[str, float]:
  """Returns metric -> value of a labelled split."""
  return scores.score(program.task, split.examples, predictions)


def score_dev(
  program: TaskProgram, params: Params, stay_alive: Callable[[], None]
) -> tuple[dict[str, float], dict[str, list[np.ndarray]]]:
  """Scores dev, and the sets of the languages that have a dev set.

  Returns metric -> value, of another language SPLIT/METRIC -> value of the
  task's first metric; and split -> logits.
  """
  dev = program.splits[DEV]
  logits, loss = run_model(program, params, dev, stay_alive)
  answers = predict(
    program,
    dev,
    logits,
    no_answer=has_no_answers(dev),
    threshold=tune_threshold(program, dev, logits),
  )
  figures, known = {'loss': loss} | score(program, dev, answers), {DEV: logits}
  metric = program.task.metrics[0]
  for chooses, scored in language_pairs(program):
    for split in {each.name: each for each in (chooses, scored)}.values():
      logits, _ = run_model(program, params, split, stay_alive)
      answers = predict(program, split, logits)
      figures[f'{split.name}/{metric}'] = score(program, split, answers)[metric]
      known[split.name] = logits
  return figures, known


def language_pairs(program: TaskProgram) -> list[tuple[Split, Split]]:
  """Returns (dev, split to report) of each language that has a labelled dev.

  The second is its test set, or without a labelled one dev itself.
  """
  found = []
  for language in program.task.languages:
    splits = [
      split
      for split in task_data.of_languages(program.splits, language)
      if split.is_labelled
    ]
    if splits[0].name.startswith(DEV):
      found.append((splits[0], splits[-1]))
  return found


def oracles(
  program: TaskProgram, history: Callable[[str], Sequence[float]]
) -> dict[str, float]:
  """Returns the scores of languages if their own dev sets chose the model.

  `history` is metric -> its values at all evaluations. Of each language of
  `language_pairs`, 'eval/<task>/<split>/<metric>_oracle' is the value at the
  evaluation with the first best value on the language's dev set.
  """
  found = {}
  for chooses, scored in language_pairs(program):
    choosing, values = (
      history(
        f'eval/{program.task.name}/{split.name}/{program.task.metrics[0]}'
      )
      for split in (chooses, scored)
    )
    best = choosing.index(max(choosing))
    name = f'eval/{program.task.name}/{scored.name}/{program.task.metrics[0]}'
    found[name + ORACLE] = values[best]
  return found


def constant_scores(program: TaskProgram) -> dict[str, float]:
  """Returns the scores of one answer for all, the commonest in training.

  They are 'eval/<task>[/<split>]/<metric>' of each labelled split of a task
  with labels; {} of other tasks.
  """
  task = program.task
  if program.kind.unit != 'text' or not task.labels:
    return {}
  train = collections.Counter(
    each.label for each in program.splits['train'].examples
  )
  answer, figures = max(task.labels, key=lambda label: train[label]), {}
  for name, split in program.splits.items():
    if name == 'train' or not split.is_labelled:
      continue
    found = scores.score(
      task,
      split.examples,
      [Prediction(each.id, answer) for each in split.examples],
    )
    where = task.name if name == DEV else f'{task.name}/{name}'
    figures |= {f'eval/{where}/{metric}': v for metric, v in found.items()}
  return figures


def score_all(
  program: TaskProgram,
  params: Params,
  folder: epath.Path,
  known: Mapping[str, list[np.ndarray]],
  stay_alive: Callable[[], None],
) -> tuple[dict[str, float], dict[str, list[float]]]:
  """Scores every labelled split, and writes the predictions into a folder.

  `known` is split -> logits of those that need no computing. Returns
  'eval/<task>[/<split>]/<metric>' -> value, and -> its 95 % interval.
  """
  figures, intervals = {}, {}
  task, predictions_folder = program.task, folder / PREDICTIONS_FOLDER
  threshold, no_answer = 0.0, has_no_answers(program.splits[DEV])
  for name in sorted(program.splits, key=lambda name: name != DEV):  # dev first
    split = program.splits[name]
    if name == 'train' or not split.is_labelled:
      continue
    logits = known.get(name)
    if logits is None:
      logits, _ = run_model(program, params, split, stay_alive)
    if name == DEV:
      threshold = tune_threshold(program, split, logits)
    predictions = predict(
      program, split, logits, no_answer=no_answer, threshold=threshold
    )
    prefix = f'eval/{task.name}' + ('' if name == DEV else f'/{name}')
    bounds = scores.bootstrap(task, split.examples, predictions)
    for metric, value in score(program, split, predictions).items():
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
