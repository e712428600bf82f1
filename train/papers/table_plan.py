"""The runs that fill the cells of a published table, or reasons against."""

import dataclasses
import difflib
import functools
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import ml_collections
from etils import epath

from configs.sections import task as task_section
from configs.sections import task_models as task_models_section
from configs.tables import base
from configs.tables.base import Column, Part, Table, TaskModel
from data import hub
from data.tasks import registry
from train.host import files
from train.host.files import Json
from train.papers.table_rows import Line, slug
from train.run import settings
from train.run.settings import FlatConfig, Grid, Value

# Possible names of GLUE's folder among other sets.
GLUE_FOLDERS = ('glue', 'GLUE', 'glue_data')
LIMIT = 'data.train_limit'
HasSplit = Callable[[str, str, str], bool]  # of (task, data, split)


@dataclasses.dataclass(frozen=True)
class Run:
  """A sweep for cells of a row.

  Attributes:
    part: the task and its settings; the metrics belong to one cell.
    config: NAME:ARGUMENTS.
    overrides: key of the config -> value.
    grid: key of the config -> values; of all combinations the best counts.
  """

  line: Line
  part: Part
  folder: epath.Path
  config: str
  overrides: FlatConfig
  num_seeds: int
  grid: Grid = dataclasses.field(default_factory=dict)

  @property
  def key(self) -> tuple[str, str, str]:
    """Row, task and label, unique in a table."""
    return self.line.name, self.part.task, self.part.label

  @property
  def model(self) -> TaskModel | None:
    """The task model that reads the weights; None: they are fine-tuned."""
    return _model_of(self.line, self.part)

  @property
  def summary(self) -> epath.Path:
    """The file of a finished run."""
    from train.run import workdirs  # imports processes, which no plan needs

    return self.folder / workdirs.SUMMARY_FILE

  @property
  def command(self) -> str:
    """The shell command of the run."""
    if self.part.task == base.PRETRAINING:
      return f'# {self.line.name}: results.json of {self.line.weights}'
    words = ['python', '-m', 'train.sweep', '--config', self.config]
    words += [
      f'--config.{key}={value}' for key, value in self.overrides.items()
    ]
    if self.grid:
      texts = (f'{k}={",".join(map(str, v))}' for k, v in self.grid.items())
      words += ['--grid', ';'.join(texts)]
    words += ['--seeds', str(self.num_seeds), '--workdir', str(self.folder)]
    return shlex.join(words)


class Cell(NamedTuple):
  """A cell to fill; `reason` says why its runs are impossible, or is empty."""

  line: Line
  column: Column
  runs: tuple[Run, ...]
  reason: str


@dataclasses.dataclass(frozen=True)
class CellRequest:
  """A table and how to fill it.

  `data` is the folder of the labelled sets, or tfds; None if it is not given.
  Without `num_seeds` the table says the number. `overrides` hold for all cells.
  """

  table: Table
  out: epath.Path
  data: str | None = None
  num_seeds: int | None = None
  overrides: FlatConfig = dataclasses.field(default_factory=dict)

  @property
  def stem(self) -> str:
    """The name of the table's files."""
    return self.table.id.replace('/', '_')

  @property
  def folder(self) -> epath.Path:
    """The folder of the table's rows."""
    return self.out / self.stem


def find_cells(
  request: CellRequest, lines: Sequence[Line], has_split: HasSplit
) -> list[Cell]:
  """Returns every cell to fill, row by row."""
  has_split = functools.cache(has_split)
  return [
    _find_cell(request, line, column, has_split)
    for line in lines
    if line.is_own or line.row.family or line.row.missing
    for value, column in zip(
      line.row.values, request.table.columns, strict=True
    )
    if (column.parts or column.missing)
    and column.family in ('', line.row.family or line.family)
    and (line.is_own or value != '' or not _task_without_model(line, column))
  ]


def _task_without_model(line: Line, column: Column) -> str:
  """Returns the first task that none of a row's task models has, or ''."""
  models = line.row.models
  without = (p.task for p in column.parts if models and p.task not in models)
  return next(without, '')


def _find_cell(
  request: CellRequest, line: Line, column: Column, has_split: HasSplit
) -> Cell:
  runs = tuple(
    _find_run(request, line, _part_of(line, part), has_split)
    for part in column.parts
  )
  reason = line.row.missing or column.missing
  if not reason and (task := _task_without_model(line, column)):
    reason = f'needs a task model for {task}, which is not there yet'
  reason = reason or _lacks_weights(line)
  if not reason:
    lacking = dict.fromkeys(
      lack for run in runs for lack in _lacks_of_run(request, run, has_split)
    )
    reason = f'needs {", ".join(lacking)}' if lacking else ''
  return Cell(line, column, runs, reason)


def _model_of(line: Line, part: Part) -> TaskModel | None:
  return line.row.models.get(part.task.partition('+')[0])


def _part_of(line: Line, part: Part) -> Part:
  """Returns the part that a row runs: of tasks trained together, all of them.

  Their run's summary names the task before each metric.
  """
  if part.task not in line.row.together:
    return part
  metrics = tuple(f'{part.task}/{metric}' for metric in part.metrics)
  task = '+'.join(line.row.together)
  return dataclasses.replace(part, task=task, metrics=metrics)


def _lacks_weights(line: Line) -> str:
  row = line.row
  if row.family == base.NO_WEIGHTS:
    return ''
  if line.weights is None:
    if line.is_own:
      return 'was begun before, and needs its weights again'
    return f"needs --weights '{row.name}=WEIGHTS': {row.needs}"
  is_file = line.family == base.VECTORS
  takes_any = not row.family and (row.share or not is_file)
  if row.family == line.family or takes_any:
    return ''
  held = (
    'holds vectors of words' if is_file else f'is of the family {line.family}'
  )
  needed = {
    '': 'a language model',
    base.VECTORS: 'a file of vectors of words',
  }.get(row.family, f'weights of the family {row.family}')
  return f'needs {needed}, and {line.weights} {held}'


def _lacks_of_run(
  request: CellRequest, run: Run, has_split: HasSplit
) -> Iterable[str]:
  line, part = run.line, run.part
  if part.task == base.PRETRAINING:
    found = _read_pretraining(line.weights)
    if found is None or not set(part.metrics) <= set(found['metrics']):
      figures = ', '.join(part.metrics)
      yield (
        f'a pre-training run whose results.json has {figures};'
        f' {line.weights} has none'
      )
    return
  for key in line.row.requires:
    if request.overrides.get(key) is None:
      yield f'--config.{key}=VALUE'
  is_tuned = run.model is None
  if is_tuned and line.family == 'elmo' and 'recipe=frozen' not in run.config:
    yield 'a model that can be trained whole, and an ELMo is read frozen'
  elif is_tuned and line.family != 'bert' and part.task in base.SPANS:
    yield f'a BERT, which alone answers {part.task}'
  elif request.data is None:
    yield '--data DIR'
  else:
    place = 1 if '+' in part.task else 0  # behind the task
    splits = {metric.split('/')[place]: None for metric in part.metrics}
    source = run.overrides['data.source']
    missing = [
      split
      for split in ('train', *splits)
      if not has_split(part.task, source, split)
    ]
    if missing:
      yield f'{part.task} ({", ".join(missing)}), which {source} has not'


def _find_run(
  request: CellRequest, line: Line, part: Part, has_split: HasSplit
) -> Run:
  row = line.row
  source = request.data
  if source is not None and part.task != base.PRETRAINING:
    folders = [source, *(str(epath.Path(source) / n) for n in GLUE_FOLDERS)]
    found = (each for each in folders if has_split(part.task, each, 'train'))
    source = next(found, source)
  args = [*row.args, *part.args]
  model = _model_of(line, part)
  if model is not None:  # it has a recipe of its own
    args = [arg for arg in args if not arg.startswith('recipe=')]
    args.append(f'model={model.name}')
  elif not any(arg.startswith('recipe=') for arg in args):
    paper = 'gpt' if line.family in base.LEFT_TO_RIGHT else 'bert'
    args.insert(0, f'recipe={paper}')  # that of the papers, not the default
  if row.untrained:
    args.append(f'model={row.untrained}')
  name = f'{part.task}-{part.label}' if part.label else part.task
  overrides = _weights_of(line) | {'data.source': source}
  foreign = _foreign_keys(reads_words=model is not None)
  if line.family in (base.VECTORS, base.NO_WEIGHTS):
    foreign |= {'task.word_vectors'}  # the row's own, or none
  given = {
    key: value for key, value in request.overrides.items() if key not in foreign
  }
  settings_ = {
    **{k: v for k, v in part.overrides.items() if k not in foreign},
    **_settings_of(model, line),
    **row.overrides,
  }
  if settings_.get('task.word_dim') == 0:  # layers in their place
    given.pop('task.word_vectors', None)
  overrides |= settings_ | given
  if row.share not in (None, 1):
    is_there = source is not None and has_split(part.task, source, 'train')
    size = count_examples(part.task, source if is_there else None)
    overrides[LIMIT] = size and max(1, round(row.share * size))
  grid = request.table.grids.get(line.family, {})
  if part.task == base.PRETRAINING or model is not None:
    grid = {}
  return Run(
    line=line,
    part=part,
    folder=request.folder / slug(row.name) / name,
    config=f'transfer:{",".join((f"task={part.task}", *args))}',
    overrides=overrides,
    num_seeds=request.num_seeds or part.seeds or request.table.seeds,
    grid={key: grid[key] for key in grid if key not in overrides},
  )


def _weights_of(line: Line) -> dict[str, str | None]:
  """Returns {key of the config: weights}."""
  if line.family == base.NO_WEIGHTS:
    return {}
  if line.family == base.VECTORS:
    return {'task.word_vectors': line.weights}
  return {
    'data.tokenizer' if line.row.untrained else 'init.weights': line.weights
  }


def _settings_of(model: TaskModel | None, line: Line) -> dict[str, Value]:
  """Returns the published settings of a task model for the weights of a row."""
  if model is None:
    return {}
  is_alone = line.family in (base.VECTORS, base.NO_WEIGHTS)
  return {
    **model.overrides,
    **(model.alone if is_alone else model.mixed),
  }


@functools.cache
def count_examples(task: str, source: str | None) -> int | None:
  """Returns the official number of training examples, else that of the files.

  None without both.
  """
  found = registry.find(task)
  official = found.sizes.get('train')
  if official is not None or source is None:
    return official
  return len(registry.load(found, source, 'train'))


@functools.cache
def _foreign_keys(*, reads_words: bool) -> frozenset[str]:
  """Returns the keys that a config has only if it does not read words so."""
  words, tuned = (
    frozenset(settings.flatten(make()))
    for make in (task_models_section.get_config, task_section.get_config)
  )
  return tuned - words if reads_words else words - tuned


def check_overrides(request: CellRequest, cells: Sequence[Cell]) -> None:
  """Refuses a user's key that no run of a table has."""
  runs = [run for cell in cells for run in cell.runs]
  if LIMIT in request.overrides and request.table.has_curves:
    raise ValueError(
      f'--config.{LIMIT}: in {request.table.id} each row has its share of the'
      ' training examples'
    )
  for key in request.overrides:
    if runs and not any(key in run.overrides for run in runs):
      raise ValueError(
        f'--config.{key}: no row of {request.table.id} has this key'
      )


def _read_pretraining(weights: str) -> dict[str, Json] | None:
  if weights.startswith(hub.SCHEME):
    return None
  path = epath.Path(weights) / 'results.json'
  if not path.exists():
    return None
  found = files.read_json(path)
  return found if 'metrics' in found else None


def collect_pretraining(run: Run) -> dict[str, Json]:
  """Returns a summary of a pre-training run's results."""
  found = _read_pretraining(run.line.weights)
  return {
    'task': base.PRETRAINING,
    'runs': [{'seed': found.get('seed', 0), 'metrics': found['metrics']}],
    'device': found.get('device', ''),
    'revision': found.get('revision', ''),
    'weights': run.line.weights,
  }


def select(
  cells: Sequence[Cell], lines: Sequence[Line], only: Sequence[str]
) -> list[Cell]:
  """Returns the cells selected by a command's --only; all by default.

  Each of `only` is 'ROW', 'COLUMN', 'TASK', 'ROW,COLUMN' or 'ROW,TASK'.
  """
  if not only:
    return list(cells)

  def names(cell: Cell) -> set[str]:
    tasks = {run.part.task for run in cell.runs}
    columns = {cell.column.name, *(tasks if len(tasks) == 1 else ())}
    row = cell.line.name
    return {row, *columns, *(f'{row},{column}' for column in columns)}

  wanted = []
  for text in only:
    found = [cell for cell in cells if text in names(cell)]
    if not found:
      rows = {line.name for line in lines}
      columns = {cell.column.name for cell in cells}
      tasks = {run.part.task for cell in cells for run in cell.runs}
      near = difflib.get_close_matches(text, rows | columns | tasks, cutoff=0.4)
      hint = f'; did you mean {" or ".join(near)}?' if near else ''
      raise ValueError(
        f'--only {text}: there is no such cell{hint}. Rows are'
        f' {"; ".join(sorted(rows))}. Columns are {", ".join(sorted(columns))}.'
      )
    wanted += [cell for cell in found if cell not in wanted]
  return wanted


def resolve(run: Run) -> ml_collections.ConfigDict:
  """Returns the config of a run; ValueError for an override's unknown key."""
  return settings.with_overrides(
    settings.load_config(run.config), run.overrides
  )
