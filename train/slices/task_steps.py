"""The training step of a fine-tuning, planned without its data."""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import ml_collections
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from data.examples import pipeline
from data.tasks import registry
from data.tasks.examples import (
  ChoiceExample,
  DocumentExample,
  Example,
  RoleExample,
  SpanExample,
  TaggedExample,
  Task,
  TextExample,
)
from train.engine import sharding
from train.engine.memory import batch_shapes
from train.engine.state import TrainState
from train.run import settings
from train.run.training_phases import Phase
from train.transfer import assemble, bodies, finetune, task_data, task_plan
from train.transfer.program import TaskProgram
from train.vectors.vector_cache import VectorCache
from train.vectors.word_table import WordTable

NUM_WORDS = 50_000
LONG_WORD = 'x' * 50  # more characters of a word are not read


@dataclasses.dataclass(frozen=True)
class StepPlan:
  """The training steps of a run, planned for a mesh.

  Attributes:
    phases: one for each step to compile.
    shapes: the state as ShapeDtypeStructs with shardings.
    lower: phase -> its step, lowered.
    flops: phase -> model FLOPs of its step.
    kept: phase -> bytes that one micro-batch keeps for the backward pass.
    notes: name -> text, rows of a report.
  """

  config: ml_collections.ConfigDict
  mesh: Mesh
  phases: Sequence[Phase]
  shapes: TrainState
  num_parameters: int
  lower: Callable[[Phase], jax.stages.Lowered]
  flops: Callable[[Phase], int]
  kept: Callable[[Phase], int]
  notes: Mapping[str, str] = dataclasses.field(default_factory=dict)


def plan(
  config: ml_collections.ConfigDict,
  devices: Sequence[jax.Device],
  num_words: int,
) -> StepPlan:
  """Plans the step of a batch of the longest rows, `task.max_length` tokens.

  For a language model, no array is read. For one of ELMo's task models, the
  rows have words, whose table has `num_words` vectors of `task.word_dim`; no
  file of vectors is read, and a language model below computes its layers for a
  made-up example. The number of steps follows from the official number of
  examples. Raises ValueError for several tasks, and for a kind of task that
  `_EXAMPLES` lacks.
  """
  job, batch = open_job(config, devices, num_words)
  (program,), mesh = job.tasks, job.mesh
  rows, length = config.train.global_batch, config.task.max_length
  everywhere = NamedSharding(mesh, PartitionSpec())
  arguments = [jnp.int32(0)]  # the seed
  if config.train.plateau is not None:
    arguments.append(jnp.float32(1))

  def lower(phase: Phase) -> jax.stages.Lowered:
    del phase
    shapes = [
      jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere)
      for x in arguments
    ]
    batch_of_mesh = batch_shapes(batch, mesh)
    return job.steps['train'].lower(job.shapes, batch_of_mesh, *shapes)

  steps = _count_steps(config, program.task)
  return StepPlan(
    config=config,
    mesh=mesh,
    phases=(Phase(steps, length, rows, 'continue'),),
    shapes=job.shapes,
    num_parameters=job.num_parameters,
    lower=lower,
    flops=lambda phase: program.step_flops(batch),
    kept=lambda phase: 0,  # the bound of the memory's time leaves them out
    notes=dict(program.describe())
    | {
      'rows': f'made up, of {length} {_unit(config)} (task.max_length), each'
      ' batch alike',
      'steps': 'of the official number of examples; patience may end a run'
      ' earlier',
    },
  )


def open_job(
  config: ml_collections.ConfigDict,
  devices: Sequence[jax.Device],
  num_words: int,
) -> tuple[finetune.FineTuning, pipeline.Batch]:
  """Returns the fine-tuning of a config and a batch of it, see `plan`."""
  task = _find_task(config)
  task_plan.check_settings(config)
  mesh = sharding.make_mesh(config.mesh, devices)
  task_plan.check_batches(config, mesh)
  rows, length = config.train.global_batch, config.task.max_length
  found = {'train': [_EXAMPLES[task.kind](task, _words(length))]}
  if _unit(config) == 'words':
    program = _open_words(config, task, num_words, found)
  else:
    program = _open_tokens(config, task, found)
  batch = program.splits['train'].batches.train_batch(
    0, pipeline.ALL_ROWS, rows, 0, total_steps=1
  )
  return finetune.FineTuning([program], mesh), batch


def _unit(config: ml_collections.ConfigDict) -> str:
  return 'words' if config.model.name in bodies.BODIES else 'tokens'


def _open_words(
  config: ml_collections.ConfigDict,
  task: Task,
  num_words: int,
  found: Mapping[str, list[Example]],
) -> TaskProgram:
  """Returns the program of one of ELMo's task models, made-up rows read."""
  without_file = settings.with_overrides(config, {'task.word_vectors': None})
  body = bodies.program_of(config)
  body.check_files(without_file, (task,))
  table = WordTable(
    tuple(map(str, range(num_words))) if config.task.word_dim else (),
    config.task.word_dim,
    config.task.lower_words,
  )
  weights, source = config.init.weights, None
  if weights is not None:
    source = VectorCache(weights, config.data.tokenizer)
  with tempfile.TemporaryDirectory() as cache:
    program = body(
      settings.with_overrides(config, {'data.cache': cache}),
      task,
      source,
      table,
    )
    program.splits = program.open_splits(('train',), found)
  return program


def _open_tokens(
  config: ml_collections.ConfigDict,
  task: Task,
  found: Mapping[str, list[Example]],
) -> TaskProgram:
  """Returns the program of a language model, made-up rows read."""
  # All rows are padded to the most tokens.
  config = settings.with_overrides(config, {'data.bucket': False})
  (program,) = bodies.program_of(config).open(config, (task,), None)
  program.splits = program.open_splits(('train',), found)
  return program


def _find_task(config: ml_collections.ConfigDict) -> Task:
  """Returns the task of a config, or raises a ValueError for other configs."""
  if names := task_data.task_names(config):
    raise ValueError(f'--config is of {len(names)} tasks, expected one')
  if config.task.name == 'own':
    raise ValueError('--config is of a task of your own, expected another one')
  task = registry.find(config.task.name)
  if task.kind not in _EXAMPLES:
    raise ValueError(
      f'--config: {task.name} is a task of the kind {task.kind}, expected one'
      f' of {", ".join(_EXAMPLES)}'
    )
  return task


def _count_steps(config: ml_collections.ConfigDict, task: Task) -> int:
  train, size = config.train, task.sizes.get('train')
  if train.steps is not None:
    return train.steps
  if size is None:
    raise ValueError(
      f'the number of examples of {task.name} is not known here: pass'
      ' --config.train.steps'
    )
  size = min(size, config.data.train_limit or size)
  count = assemble.COUNTS[train.count]
  return max(1, count(size, train.global_batch, train.num_epochs)[1])


def _words(count: int) -> tuple[str, ...]:
  """Returns made-up words, one of them of the most characters."""
  return (LONG_WORD, *['word'] * (count - 1))


def _text(task: Task, words: Sequence[str]) -> Example:
  label = task.labels[0] if task.labels else task.score_range[0]
  return TextExample('0', (' '.join(words),) * task.num_texts, label)


def _choice(task: Task, words: Sequence[str]) -> Example:
  text = ' '.join(words)
  return ChoiceExample('0', text, '', (text,) * (task.num_choices or 4), 0)


def _sentence(task: Task, words: Sequence[str]) -> Example:
  tag = 'O' if 'O' in task.labels else task.labels[0]
  return TaggedExample('0', tuple(words), (tag,) * len(words))


def _roles(task: Task, words: Sequence[str]) -> Example:
  tags = ('B-V', *['O'] * (len(words) - 1))
  return RoleExample('0', tuple(words), tags, predicate=0)


def _question(task: Task, words: Sequence[str]) -> Example:
  del task
  return SpanExample('0', 'word', ' '.join(words), ((words[0], 0),))


def _document(task: Task, words: Sequence[str]) -> Example:
  """Returns a document of 50 sentences, which a step of training reads."""
  sentences = 50 * (tuple(words),)
  return DocumentExample(
    '0',
    sentences,
    tuple(('',) * len(words) for _ in range(50)),
    task.labels[0],
    (((0, 0), (1, 1)),),
  )


# Kind of a task -> (task, words) -> an example of these words.
_EXAMPLES = {
  'classification': _text,
  'regression': _text,
  'choice': _choice,
  'tagging': _sentence,
  'roles': _roles,
  'span': _question,
  'coreference': _document,
}
