"""The teacher of a distillation: a fine-tuned model, and its outputs.

Letters of shapes: N examples, W words of all examples, S tokens of all rows, K
outputs of the model.
"""

import contextlib
import functools
import hashlib
import io
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath
from ml_collections import config_dict
from scipy import special

from configs.sections import task as task_section
from data import hub, scratch
from data.scoring import answers
from data.scoring.kinds import KINDS
from data.store import folders
from data.tasks.examples import Example, Task
from models.layers import Params
from models.pretrained import published
from train.engine import sharding, state
from train.run import workdirs
from train.transfer import encoders, predictors, task_data, task_outputs
from train.transfer.program import TaskProgram

OUTPUTS_FILE = 'teacher.npz'  # in a student's workdir, and in the user's cache
# Fields of tasks that teacher and student must share, and their names.
SHARED = {
  'kind': 'the kind',
  'labels': 'the labels',
  'num_texts': 'the number of texts',
  'num_choices': 'the number of choices',
}


class Teacher(NamedTuple):
  """A fine-tuned model whose parameters are not read yet.

  Attributes:
    path: as given by `init.teacher`.
    folder: where it lies.
    program: its task, on this process's first device.
    load: () -> its parameters.
  """

  path: str
  folder: epath.Path
  program: TaskProgram
  load: Callable[[], Params]


def open_teacher(config: ml_collections.ConfigDict, task: Task) -> Teacher:
  """Opens the model of `init.teacher`, without reading its arrays.

  Raises FileNotFoundError or ValueError, naming the key, if there is no
  finished model, or its task or labels are others than those of `task`.
  """
  path = config.init.teacher
  if not path:
    raise ValueError(
      'init.teacher is empty: name the workdir of a finished fine-tuning on'
      f' {task.name}, or a folder of such a model'
      ' (--config.init.teacher=WORKDIR)'
    )
  try:
    teacher = _open(config, task)
    _check_task(teacher.program, task)
  except (FileNotFoundError, ValueError) as error:
    raise type(error)(f'init.teacher={path}: {error}') from error
  return teacher


def _open(config: ml_collections.ConfigDict, task: Task) -> Teacher:
  path = config.init.teacher
  folder = hub.find(path)
  if published.is_published(folder):
    program = _published(config, task)
    return Teacher(path, folder, program, program.initial.load)
  saved = workdirs.read_config(folder)
  of_several = saved is not None and 'task' in saved
  of_several = of_several and task_data.task_names(saved)
  member = predictors.open_member(folder, task.name if of_several else None)
  load = functools.partial(member.program.load, folder)
  return Teacher(path, folder, member.program, load)


def _published(
  config: ml_collections.ConfigDict, task: Task
) -> encoders.EncoderProgram:
  """Returns the program of published weights with the head of a task."""
  asked = task_section.get_config()
  for key, value in config.task.items():
    if key in task_data.READING:
      asked.task[key] = value
  asked.own, asked.init.weights = config.own, config.init.teacher
  program = encoders.open_encoder(asked, task, None)
  weights, head = program.initial, encoders.HEADS[program.kind.unit]
  if not any(path.startswith(f'{head}/') for path in weights.shapes):
    raise ValueError(
      f'it has no {head}, which answers {task.name}: fine-tune it first'
      ' (python -m train.main --config transfer:task=NAME), and name that'
      ' workdir'
    )
  labels = tuple(weights.labels[key] for key in sorted(weights.labels, key=int))
  if task.labels and labels != task.labels:
    raise ValueError(
      f'found the labels {_short(labels)} in its config.json, expected those of'
      f' {task.name} in their order: {_short(task.labels)}'
    )
  outputs = weights.shapes[f'{head}/kernel'].shape[-1]
  if outputs != program.num_outputs:
    raise ValueError(
      f'found a {head} of {outputs} outputs, expected {program.num_outputs} of'
      f' {task.name}'
    )
  mesh = sharding.make_mesh(
    config_dict.ConfigDict(dict.fromkeys(sharding.AXES, 1)),
    jax.local_devices()[:1],
  )
  program.prepare(mesh)
  return program


def _check_task(program: TaskProgram, task: Task) -> None:
  """Raises ValueError if a teacher's task is another one."""
  theirs = program.task
  for field, name in SHARED.items():
    found, expected = getattr(theirs, field), getattr(task, field)
    if found != expected:
      raise ValueError(
        f'{name} of its task, {theirs.name}, is {_short(found)}, expected'
        f' {_short(expected)}, as of {task.name}'
      )
  if theirs.name != task.name and 'own' not in (theirs.name, task.name):
    raise ValueError(
      f'it answers {theirs.name}, expected a model of {task.name}'
    )
  if program.config.task.crf:
    raise ValueError(
      f'its tags are read as paths (task.crf={program.config.task.crf!r}),'
      " expected each tag alone (task.crf='')"
    )


def _short(value: object) -> str:
  if not isinstance(value, tuple):
    return repr(value)
  shown = ', '.join(map(repr, value[:6]))
  return f'({shown}, ... {len(value)} in all)' if value[6:] else f'({shown})'


def check_student(teacher: Teacher, student: TaskProgram) -> None:
  """Checks that a student's outputs are those of the teacher, else ValueError.

  Outputs of texts and of words are the same in any vocabulary; the ends of
  spans are tokens.
  """
  found = f'init.teacher={teacher.path}: '
  theirs, ours = teacher.program, student
  if theirs.num_outputs != ours.num_outputs:
    raise ValueError(
      f'{found}it has {theirs.num_outputs} outputs for'
      f' {theirs.task.name}, this run {ours.num_outputs}: expected equal ones,'
      ' as by the same task.soft_classes'
    )
  if ours.kind.unit != 'part':
    return
  for program in (theirs, ours):
    if not isinstance(program, encoders.EncoderProgram):
      raise ValueError(
        f'{found}the ends of a span are tokens, and model.name='
        f'{program.config.model.name!r} reads words: expected a BERT as teacher'
        ' and as student'
      )
  if theirs.tokenizer.fingerprint != ours.tokenizer.fingerprint:
    raise ValueError(
      f'{found}its vocabulary is another one'
      f' ({theirs.tokenizer.description}, {theirs.tokenizer.vocab_size} pieces,'
      f' {theirs.tokenizer.fingerprint[:8]}), expected that of the student'
      f' ({ours.tokenizer.vocab_size} pieces,'
      f' {ours.tokenizer.fingerprint[:8]}): the ends of a span are tokens'
    )
  for key in task_data.READING:
    values = theirs.config.task.get(key), ours.config.task.get(key)
    if values[0] != values[1]:
      raise ValueError(
        f'{found}it has task.{key}={values[0]}, this run {values[1]}: expected'
        ' equal ones, as the ends of a span are tokens of the same rows'
      )


def compute(
  teacher: Teacher, params: Params, examples: Sequence[Example]
) -> np.ndarray:
  """Returns the logits of examples, float32 [R, K], without dropout.

  R is N of texts, W of words and S of parts of texts; K of choices is their
  number. A text in several windows has one row, see `_mean_of`.
  """
  program = teacher.program
  split = program.open_splits(['test'], {'test': list(examples)})['test']
  with sharding.scope(program.mesh, program.config.mesh.rules):
    logits, _ = task_outputs.run_model(program, params, split)
  unit = KINDS[program.task.kind].unit
  if unit == 'text':
    windows = answers.windows_of(split.features, logits)
    return np.stack([_mean_of(each) for each in windows]).astype(np.float32)
  if unit == 'part':
    return np.concatenate(logits).astype(np.float32)
  features, starts = split.features, first_words(examples)
  found = np.full((starts[-1], program.num_outputs), np.nan, np.float32)
  for number, rows in enumerate(logits):
    words = features.word_index[features.place(number)][: len(rows)]
    places = np.flatnonzero(words >= 0)
    first = starts[features.examples[number]]
    found[first + words[places]] = rows[places]
  return found


def _mean_of(windows: np.ndarray) -> np.ndarray:
  """Returns the logits [K] of a text from its windows' [windows, K].

  Their probabilities are the mean of the windows', as in predictions. What
  probabilities do not tell and distances of logits see, the logarithm of the
  sum of exponentials, is the mean of the windows', too. A score is a mean.
  """
  windows = windows.astype(np.float64)
  if len(windows) == 1 or windows.shape[-1] == 1:
    return windows.mean(axis=0)
  constant = special.logsumexp(windows, axis=-1).mean()
  return answers.mean_of_probabilities(windows) + constant


def first_words(examples: Sequence[Example]) -> np.ndarray:
  """Returns the number of each example's first word, and of all: [N + 1]."""
  counts = [len(example.words) for example in examples]
  return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def digest_of(examples: Sequence[Example]) -> str:
  """Returns a SHA-256 of examples."""
  sha = hashlib.sha256()
  for example in examples:
    sha.update(repr(example).encode())
  return sha.hexdigest()


def source_of(
  teacher: Teacher, params: Params, examples: Sequence[Example]
) -> tuple[str, str]:
  """Returns SHA-256s of all that outputs depend on, see `KeptOutputs`."""
  program = teacher.program
  facts = {
    'parameters': state.digest(params),
    'windows': 'their mean',  # earlier revisions kept each of them
    'model': program.config.model.to_json(),
    'reading': {key: program.config.task.get(key) for key in task_data.READING},
    **program.facts(),
  }
  text = json.dumps(facts, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest(), digest_of(examples)


def _shared_folder(source: tuple[str, str]) -> pathlib.Path:
  """Returns the folder in the user's cache for outputs of a `source_of`.

  Devices of different kinds round differently, so each kind has its own.
  """
  name = '-'.join((jax.default_backend(), *(part[:16] for part in source)))
  return folders.default_cache('teachers').expanduser() / name


class KeptOutputs(NamedTuple):
  """A teacher's outputs as they lie in a student's workdir.

  Attributes:
    outputs: float32 [R, K], see `compute`.
    teacher: digest of the teacher.
    examples: digest of the examples.
  """

  outputs: np.ndarray
  teacher: str
  examples: str

  @property
  def source(self) -> tuple[str, str]:
    """The digests."""
    return self.teacher, self.examples

  @property
  def digest(self) -> str:
    """The SHA-256 of the outputs."""
    return hashlib.sha256(self.outputs.tobytes()).hexdigest()

  def write(self, workdir: epath.PathLike) -> None:
    """Writes the file of a workdir."""
    text = io.BytesIO()
    np.savez(text, **self._asdict())
    scratch.write_bytes(epath.Path(workdir) / OUTPUTS_FILE, text.getvalue())

  def share(self) -> None:
    """Keeps a copy for other students, unless the user's cache has no room."""
    folder = _shared_folder(self.source)
    with contextlib.suppress(OSError):
      folder.mkdir(parents=True, exist_ok=True)
      self.write(folder)

  @classmethod
  def shared(cls, source: tuple[str, str]) -> 'KeptOutputs | None':
    """Reads the copy that another student left; None without a sound one."""
    with contextlib.suppress(OSError, ValueError):
      found = cls.read(_shared_folder(source))
      if found is not None and found.source == source:
        return found
    return None

  @classmethod
  def read(cls, workdir: epath.PathLike) -> 'KeptOutputs | None':
    """Reads the file of a workdir; None without one, ValueError for damage."""
    file = epath.Path(workdir) / OUTPUTS_FILE
    if not file.exists():
      return None
    try:
      with np.load(io.BytesIO(file.read_bytes())) as found:
        outputs = found['outputs']
        return cls(outputs, *(str(found[name]) for name in cls._fields[1:]))
    except Exception as error:
      raise ValueError(
        f'{file} is damaged ({error}): remove it, and the teacher is asked'
        ' again'
      ) from error
