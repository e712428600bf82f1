"""Distillation: a task's student learns from its teacher's outputs.

B examples, T position, K classes, choices or tags.
"""

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath

from data.examples import pipeline
from data.inputs.batches import Batches
from data.tasks import files
from data.tasks.examples import Example, Task, TextExample, TextTask
from train.engine import soft_targets
from train.host import processes
from train.host.console import say
from train.run import settings
from train.transfer import predictors, task_data, task_losses, teachers
from train.transfer.program import Found, TaskProgram
from train.transfer.task_data import Split
from train.transfer.task_losses import Array, Batch, Outputs
from train.transfer.teachers import KeptOutputs

LOSSES = ('probabilities', 'logits')
TEACHER = 'teacher_logits'  # of a batch


def soft_losses(
  config: ml_collections.ConfigDict, loss: str, outputs: Outputs, batch: Batch
) -> Array:
  """Returns the distances of outputs to the teacher's, [B], of words [B, T].

  Args:
    config: the section `distill`.
    loss: of labels, a name in `task_losses.LOSSES`.
    outputs: float32 logits, [B, K], of words [B, T, K], of spans [B, T, 2].
    batch: `teacher_logits` of the same shape, and `token_mask` [B, T].
  """
  logits, teacher = outputs['logits'], batch[TEACHER]
  squared = jnp.square(logits - teacher)
  if loss == 'scores' and logits.shape[-1] == 1:
    return squared[:, 0]
  if loss != 'spans':
    if config.loss == 'logits':
      return squared.sum(axis=-1)
    return soft_targets.divergence(logits, teacher, config.temperature)
  mask = batch['token_mask'][..., None]
  if config.loss == 'logits':
    return jnp.where(mask, squared, 0).sum(axis=(1, 2)) / 2
  lowest = jnp.finfo(jnp.float32).min / 2  # which T < 1/2 would make infinite
  of_ends = (
    jnp.where(mask, x, lowest * min(config.temperature, 1)).swapaxes(1, 2)
    for x in (logits, teacher)
  )
  return soft_targets.divergence(*of_ends, config.temperature).mean(axis=-1)


class TaughtBatches:
  """Batches of a training set with the teacher's logits beside the labels.

  Attributes:
    outputs: float32 [R, K], see `teachers.compute`; until they are there, NaN.
  """

  def __init__(
    self, batches: Batches, unit: str, starts: np.ndarray, num_outputs: int
  ):
    """Takes the batches of examples.

    Args:
      batches: without the teacher.
      unit: of the task's kind, `Kind.unit`.
      starts: of words, see `teachers.first_words`.
      num_outputs: K.
    """
    self.batches, self._unit, self._starts = batches, unit, starts
    features = batches.features
    texts = int(features.examples[-1]) + 1
    rows = {'text': texts, 'part': len(features.tokens)}
    rows = rows[unit] if unit in rows else int(starts[-1])
    self.outputs = np.broadcast_to(np.float32(np.nan), (rows, num_outputs))

  def train_lengths(
    self, batch_size: int, seed: int, total_steps: int
  ) -> dict[int, int]:
    """Returns what `Batches.train_lengths` does."""
    return self.batches.train_lengths(batch_size, seed, total_steps)

  def train_batch(
    self,
    step: int,
    rows: np.ndarray | slice,
    batch_size: int,
    seed: int,
    total_steps: int,
  ) -> pipeline.Batch:
    """Returns `Batches.train_batch` with `teacher_logits`, float32.

    They are shaped [B, K], of words and parts [B, T, K], 0 at other tokens.
    """
    batch = self.batches.train_batch(step, rows, batch_size, seed, total_steps)
    _, chosen = self.batches.order.batch(step, batch_size, seed, total_steps)
    return batch | {TEACHER: self._outputs_of(chosen[rows], batch)}

  def _outputs_of(
    self, chosen: np.ndarray, batch: pipeline.Batch
  ) -> np.ndarray:
    features, mask = self.batches.features, batch['token_mask']
    if self._unit == 'text':  # of all windows of a text
      return self.outputs[features.examples[chosen]]
    places = features.offsets[chosen][:, None] + np.arange(mask.shape[1])
    places = np.where(mask, places, 0)
    if self._unit == 'word':
      words = features.word_index[places]
      mask = mask & (words >= 0)
      first = self._starts[features.examples[chosen]]
      places = np.where(mask, first[:, None] + words, 0)
    return np.where(mask[..., None], self.outputs[places], np.float32(0))


class Distilled(TaskProgram):
  """A task's program that learns from a teacher beside its labels.

  It stands before the class of a program, see `student_of`. The loss 'soft' is
  the mean of `soft_losses` over all training rows, words or windows, with and
  without labels.

  Attributes:
    teacher: the opened teacher; None in a run that goes on with its outputs,
      and in predictions.
    workdir: of a run that goes on, else None.
    kept: the teacher's outputs; None before they are read or computed.
    taught: the training set with its batches; None before it is read.
  """

  teacher: teachers.Teacher | None = None
  workdir: epath.Path | None = None
  kept: KeptOutputs | None = None
  taught: Split | None = None

  def __init__(self, config: ml_collections.ConfigDict, task: Task, *args):
    """Takes the arguments of the program below."""
    super().__init__(config, task, *args)
    self._label_weight = config.distill.label_weight
    self._is_taught = self._label_weight < 1
    if self._is_taught:
      self.loss_names = (*self.loss_names, 'soft')

  # ---- Opening --------------------------------------------------------------

  @classmethod
  def check_keys(cls, config: ml_collections.ConfigDict) -> None:  # noqa: D102
    super().check_keys(config)
    loss = config.distill.loss
    settings.expect(config, loss in LOSSES, 'distill.loss', f'one of {LOSSES}')
    settings.expect(
      config,
      not config.task.crf,
      'task.crf',
      "'': a student learns each word's tag alone",
    )
    settings.expect(
      config,
      not task_data.task_names(config),
      'task.names',
      'none: a teacher answers one task',
    )

  @classmethod
  def check_files(  # noqa: D102
    cls, config: ml_collections.ConfigDict, tasks: Sequence[Task]
  ) -> None:
    cls.open(config, tasks, None)

  @classmethod
  def open(  # noqa: D102
    cls,
    config: ml_collections.ConfigDict,
    tasks: Sequence[Task],
    workdir: epath.Path | None,
  ) -> list['Distilled']:
    (task,) = tasks
    if workdir is not None:
      (program,) = super().open(config, tasks, workdir)
      program.workdir = workdir
      return [program]
    if task.kind == 'coreference':
      raise ValueError(
        'task.name: a document has no outputs that a student could learn:'
        ' expected classes, scores, choices, tags or spans'
      )
    teacher = teachers.open_teacher(config, task)
    if config.distill.text is not None:
      _check_text(config.distill.text)
    (program,) = super().open(_begun(config, teacher), tasks, None)
    program.config = _with_keys_of(program.config, config)
    program.teacher = teacher
    teachers.check_student(teacher, program)
    return [program]

  # ---- Reading --------------------------------------------------------------

  @classmethod
  def open_sets(  # noqa: D102
    cls,
    programs: Sequence['Distilled'],
    names: Sequence[Sequence[str]],
    found: Found = None,
  ) -> list[dict[str, Split]]:
    (program,), (names_of,) = programs, names
    found = dict(found or {})
    if 'train' in names_of:
      found['train'] = program._read_examples()
    (splits,) = super().open_sets(programs, names, found)
    if 'train' in splits:
      splits['train'] = program.taught = program._teach(splits['train'])
    return [splits]

  def _read_examples(self) -> list[Example]:
    """Returns the training set, and the further rows without labels."""
    examples = task_data.read_split(self.config, self.task, 'train')
    text = self.config.distill.text
    if text is None:
      return examples
    return examples + read_unlabelled(self.task, text)

  def _teach(self, split: Split) -> Split:
    """Returns the training set with batches that have the teacher's logits."""
    starts = np.zeros(1, np.int64)
    if self.kind.unit == 'word':
      starts = teachers.first_words(split.examples)
    outputs = self.task.num_choices or self.num_outputs
    batches = TaughtBatches(split.batches, self.kind.unit, starts, outputs)
    taught = dataclasses.replace(split, batches=batches)
    if self.workdir is None:
      return taught
    kept = KeptOutputs.read(self.workdir)
    if kept is None:
      self.teacher = teachers.open_teacher(self.config, self.task)
    elif kept.examples != teachers.digest_of(split.examples):
      raise ValueError(
        f'{self.workdir / teachers.OUTPUTS_FILE} has the outputs of other'
        ' examples than data.source and distill.text hold now: put these files'
        ' back, or pass another --workdir'
      )
    elif kept.outputs.shape != batches.outputs.shape:
      raise ValueError(
        f'{self.workdir / teachers.OUTPUTS_FILE} has outputs'
        f' {kept.outputs.shape}, expected {batches.outputs.shape}: an earlier'
        ' revision kept those of each window. Pass another --workdir'
      )
    else:
      self.kept, batches.outputs = kept, kept.outputs
    return taught

  def _ask_teacher(self, there: KeptOutputs | None = None) -> None:
    """Computes the teacher's outputs, unless they are known.

    `there` are those in the workdir, perhaps of a run that ended before its
    first checkpoint.
    """
    if self.kept is not None:
      return
    begun, params = time.time(), self.teacher.load()
    examples = self.taught.examples
    source = teachers.source_of(self.teacher, params, examples)
    if there is None or there.source != source:
      there = KeptOutputs.shared(source)
      told = 'are those that another student left'
      if there is None:
        outputs = teachers.compute(self.teacher, params, examples)
        there = KeptOutputs(outputs, *source)
        told = f'took {time.time() - begun:.1f} s'
        if processes.is_first():
          there.share()
      say(f"The teacher's outputs of {len(examples):,} examples {told}.")
    self.kept, self.taught.batches.outputs = there, there.outputs

  # ---- Messages and files ---------------------------------------------------

  def describe(self) -> list[tuple[str, str]]:  # noqa: D102
    distill, init = self.config.distill, self.config.init
    rows = super().describe()
    if init.weights is None and 'layers' in init and init.layers:
      rows = [('weights', f"the teacher's, layers {init.layers}")]
    apart = 'squared distances of logits'
    if distill.loss == 'probabilities':
      apart = f'probabilities at the temperature {distill.temperature:g}'
    return [
      *rows,
      (
        'teacher',
        f'{init.teacher}: {apart}, weight {1 - self._label_weight:g}; of the'
        f' labels {self._label_weight:g}',
      ),
    ]

  def write(self, workdir: epath.Path) -> None:
    """Writes the program's facts, and the teacher's outputs."""
    super().write(workdir)
    there = KeptOutputs.read(workdir)
    self._ask_teacher(there)
    if there is None or there.source != self.kept.source:
      self.kept.write(workdir)

  def files(self) -> dict[str, str]:  # noqa: D102
    found = super().files()
    if self.taught is None:  # in predictions
      return found
    self._ask_teacher()
    return found | {"the teacher's outputs": self.kept.digest}

  # ---- The loss -------------------------------------------------------------

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[dict, dict]:
    """Returns the losses of the program, in training the teacher's too."""
    sums, metrics = super().losses(outputs, batch)
    if self._is_taught and TEACHER in batch:
      outputs = {**outputs, 'logits': outputs['logits'].astype(jnp.float32)}
      values = soft_losses(self.config.distill, self._loss, outputs, batch)
      weights = self._soft_weights(batch)
      sums['soft'] = (jnp.sum(values * weights), weights.sum())
    return sums, metrics

  def weights(self, batch: Batch) -> dict[str, Array]:
    """Returns each loss's divisor, with the share of labels and teacher."""
    totals = super().weights(batch)
    if not self._is_taught:
      return totals
    rows = task_losses.row_weights(batch).sum()
    soft = rows if self.sums_words else self._soft_weights(batch).sum()
    share = self._label_weight
    # A loss without a share is divided by infinity.
    totals['task'] = totals['task'] / share if share else jnp.float32(jnp.inf)
    return totals | {'soft': jnp.maximum(soft, 1) / (1 - share)}

  def _soft_weights(self, batch: Batch) -> Array:
    """Returns 1 of each row, or word, that the teacher answers: [B], [B, T]."""
    weights = task_losses.row_weights(batch)
    if self.kind.unit != 'word':
      return weights
    return weights[:, None] * batch['tag_mask']


@functools.cache
def student_of(program: type[TaskProgram]) -> type[Distilled]:
  """Returns the class of a program's students."""
  return type(f'Distilled{program.__name__}', (Distilled, program), {})


def _begun(
  config: ml_collections.ConfigDict, teacher: teachers.Teacher
) -> ml_collections.ConfigDict:
  """Returns a config whose student begins with parts of the teacher, if any."""
  if 'layers' not in config.init or config.init.weights is not None:
    return config
  key = 'init.weights' if config.init.layers else 'data.tokenizer'
  if key == 'data.tokenizer' and config.data.tokenizer is not None:
    return config
  return settings.with_overrides(config, {key: str(teacher.folder)})


def _with_keys_of(
  config: ml_collections.ConfigDict, given: ml_collections.ConfigDict
) -> ml_collections.ConfigDict:
  """Returns a config with the keys that `_begun` may have set, as given."""
  config = config.copy_and_resolve_references()
  with config.unlocked(), config.ignore_type():
    config.init.weights = given.init.weights
    config.data.tokenizer = given.data.tokenizer
  return config


# ---- Rows without labels ----------------------------------------------------

# Fields of an example -> their values where the label is unknown.
_NO_LABEL: Mapping[str, tuple] = {
  'label': None,
  'tags': None,
  'answers': (),
  'is_labelled': False,
}


def _check_text(path: str) -> None:
  is_set = files.is_named(path)
  if not (is_set or epath.Path(path).expanduser().exists()):
    raise FileNotFoundError(f'distill.text={path}: there is no such file')


def read_unlabelled(task: Task, path: str) -> list[Example]:
  """Returns the examples of `distill.text` without their labels.

  Raises ValueError, naming the line, for text that is no example of the task.
  """
  file = files.path_of(path).expanduser()
  if file.suffix == '.txt' and isinstance(task, TextTask):
    found = _read_lines(task, file)
  else:
    found = predictors.read_input(task, file, 'test', 'distill.text')
  return [_without_label(example) for example in found]


def _without_label(example: Example) -> Example:
  names = {field.name for field in dataclasses.fields(example)}
  changes = {name: _NO_LABEL[name] for name in names & _NO_LABEL.keys()}
  return dataclasses.replace(example, **changes)


def _read_lines(task: Task, file: epath.Path) -> list[TextExample]:
  """Returns an example of each line that is not empty, texts apart by tabs."""
  examples = []
  for number, line in enumerate(file.read_text().splitlines(), 1):
    if not line.strip():
      continue
    texts = tuple(text.strip() for text in line.split('\t'))
    example = TextExample(f'{file.name}:{number}', texts, None)
    for problem in example.problems(task):
      raise ValueError(f'{file}, line {number}: {problem}')
    examples.append(example)
  if not examples:
    raise ValueError(f'{file}: found no line of text, expected some')
  return examples
