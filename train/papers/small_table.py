"""A paper's arguments, tried by pre-trainings that the table runs itself.

Each row is pre-trained for several seeds (`Row.pretraining`), and each of these
fine-tuned for several seeds a column. OUT/pretraining has the first, which
tables share, OUT/TABLE/ROW_seed_N the second. A cell is the mean over all; an
argument is the difference of two rows, with its interval.
"""

import dataclasses
import hashlib
import json
import pathlib
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from etils import epath
from ml_collections import ConfigDict

from configs.tables import base
from configs.tables.base import Table
from data.store import folders
from train.host import console, files, processes
from train.host.files import Json
from train.papers import (
  contrast_figure,
  contrasts,
  small_hours,
  small_page,
  table_figures,
  table_plan,
  table_rendering,
  table_rows,
  tables,
)
from train.papers.table_plan import Cell, CellRequest, Run
from train.papers.table_rows import Line
from train.run import settings, training_phases, workdirs
from train.run.settings import FlatConfig

# Of the command that it takes.
OPTIONS = ('data', 'only', 'seeds', 'rerun', 'run', 'dry_run')
TEXTS = {  # folder below --data -> its source, and what it holds
  'novels': ('en={folder}/*.txt', 'books, each a .txt'),
  'wikitext-2': ('en=wikitext:{folder}/wiki.train.tokens', 'WikiText-2'),
}
PAIRS_LIMIT = 100  # of each paradigm


class Pretraining(NamedTuple):
  """A pre-training that rows share.

  Attributes:
    config: NAME:ARGUMENTS.
    changes: of the config, key -> value.
    folder: its workdir.
    store: of the text, by the tokenizer of its family.
  """

  config: str
  changes: FlatConfig
  seed: int
  folder: epath.Path
  store: epath.Path

  @property
  def diverged(self) -> epath.Path:
    """Returns the file that says why it ended without results."""
    return self.folder.with_name(f'{self.folder.name}_diverged.txt')

  @property
  def results(self) -> dict[str, Json] | None:
    """The content of its results.json; None if it is not finished."""
    return workdirs.read_results(self.folder)

  @property
  def facts(self) -> dict[str, Json]:
    """What is known of it."""
    results = self.results or {}
    kept = ('steps', 'seconds', 'metrics', 'device', 'revision')
    found = {key: results[key] for key in kept if key in results}
    if self.diverged.exists():
      found['diverged'] = _first_line(self.diverged)
    told = {'name': self.name, 'seed': self.seed, 'folder': self.folder.name}
    return told | {'command': self.command} | found

  def answers(self, name: str) -> epath.Path:
    """Returns the file of its answers to the pairs of a name."""
    return self.folder.with_name(f'{self.folder.name}_{name}.json')

  def resolve(self) -> ConfigDict:
    """Returns its config."""
    overrides = {'train.seed': self.seed, 'data.folder': str(self.store)}
    return settings.with_overrides(
      settings.load_config(self.config), {**self.changes, **overrides}
    ).lock()

  @property
  def name(self) -> str:
    """The config with its changes."""
    return _name(self.config, self.changes)

  @property
  def command(self) -> str:
    """The shell command of the run."""
    words = ['python', '-m', 'train.main', '--config', self.config]
    words += [f'--config.{key}={v}' for key, v in self.changes.items()]
    words += [f'--config.train.seed={self.seed}']
    words += [f'--config.data.folder={self.store}']
    return shlex.join([*words, '--workdir', str(self.folder)])

  def preparing(self, text: str) -> str:
    """Returns the shell command that makes the store."""
    data = self.resolve().data
    words = ['python', '-m', 'data.prepare', '--source', text]
    words += ['--tokenizer', data.tokenizer, f'--held_out={data.held_out:g}']
    return shlex.join([*words, '--out', str(self.store)])


Chosen = frozenset[tuple[str, str]]  # (row, column)


class Work(NamedTuple):
  """What does the long parts; tests replace it.

  Attributes:
    pretrain: fills the folder of a pre-training of a text.
    ask: returns the summary of a workdir's answers to pairs in a folder.
    score: returns that of a pre-training's perplexity by an objective.
  """

  pretrain: Callable[[Pretraining, str], None]
  ask: Callable[[epath.Path, epath.Path], dict[str, Json]]
  score: Callable[[Pretraining, str], dict[str, Json]]
  engine: tables.Engine = tables.Engine()


def _digest(config: ConfigDict) -> str:
  """Returns what tells pre-trainings apart, but for their seeds."""
  flat = settings.counting(config)
  text = json.dumps([*sorted(flat.items())], default=str)
  return hashlib.sha256(text.encode()).hexdigest()[:8]


def pretrain(run: Pretraining, text: str) -> None:
  """Pre-trains, or goes on; the store of the text is made first."""
  from data.store import build
  from train.pretrain import job
  from train.run import training

  config = run.resolve()
  job.check_config(config)
  build.ensure_store(
    text,
    config.data.tokenizer,
    pathlib.Path(run.store),
    held_out=config.data.held_out,
  )
  planned = job.make(config, run.folder)
  if planned is not None:
    training.train(planned, run.folder, began=time.time())


def ask(workdir: epath.Path, pairs: epath.Path) -> dict[str, Json]:
  """Returns the shares of minimal pairs that a language model gets right."""
  import numpy as np

  from train.host import device
  from train.language import minimal_pairs, sentence_scorers

  found = minimal_pairs.limited(minimal_pairs.read(str(pairs)), PAIRS_LIMIT)
  scorer = sentence_scorers.open_for_pairs(str(workdir), found)
  sums, _, way = scorer.score(minimal_pairs.sentences(found), scoring='sum')
  shares = minimal_pairs.figures(found, *np.split(sums, 2))
  return {
    'task': 'minimal_pairs',
    'runs': [{'seed': 0, 'metrics': {pairs.name: shares['mean']}}],
    'scoring': way,
    'pairs': len(found),
    'device': device.describe(),
    'revision': device.revision(),
  }


def score(run: Pretraining, objective: str) -> dict[str, Json]:
  """Returns the perplexity of the run's held-out text by an objective.

  A step with a learning rate of 0, by this objective, leaves the weights as
  they are, and is then scored. Rows are never packed, so that all models are
  scored on the same windows.
  """
  from train.architectures import families
  from train.host import device
  from train.pretrain import job
  from train.run import training

  still = {'learning_rate': 0.0, 'warmup_steps': 0, 'schedule': 'constant'}
  config = settings.with_overrides(
    run.resolve(),
    {f'optim.{key}': value for key, value in still.items()}
    | {
      'train.objective': objective,
      'train.steps': 1,
      'init.weights': str(run.folder),
      'data.packed': None,
    },
  )
  with tempfile.TemporaryDirectory() as folder:
    workdir = epath.Path(folder) / 'run'
    job.check_config(config)
    training.train(job.make(config, workdir), workdir, began=time.time())
    metrics = workdirs.read_results(workdir)['metrics']
  name = families.objective_of(config).perplexities[objective]
  return {
    'task': objective,
    'runs': [
      {'seed': run.seed, 'metrics': {objective: metrics[f'eval/{name}']}}
    ],
    'device': device.describe(),
    'revision': device.revision(),
  }


WORK = Work(pretrain, ask, score)


def make(
  table: Table,
  out: epath.PathLike,
  *,
  data: str | None = None,
  only: Sequence[str] = (),
  seeds: int | None = None,
  rerun: bool = False,
  run: bool = True,
  dry_run: bool = False,
  unused: Sequence[str] = (),
) -> bool:
  """Runs what is missing, and writes OUT/TABLE.md, .tex, .png and .json.

  `only` are cells, each 'ROW', 'COLUMN', its task or 'ROW,COLUMN'. `data` is a
  folder of the labelled sets, and of blimp and the table's `texts`.
  `seeds` are the fine-tunings of a pre-training and column. `dry_run` prints
  the commands of what is missing, and what it takes. Returns whether all runs
  succeeded.
  """
  if unused:
    raise ValueError(f'--table {table.id}: takes no {" ".join(unused)}')
  out = epath.Path(out)
  files.check_folder('--out', out)
  made = SmallTable(table, out, data, seeds, WORK)
  chosen = made.choose(only)
  plan = made.plan(chosen, rerun=rerun)
  if dry_run:
    made.tell(plan)
    return True
  failed = {}
  if run and not plan.is_finished:
    failed = made.fill(plan, rerun=rerun)
  made.write(failed)
  return not failed


def read_differences(
  table: Table, out: epath.Path
) -> list[contrasts.Difference]:
  """Returns the arguments of a table as far as its runs in OUT are finished."""
  return SmallTable(table, out, None, None, WORK).read().differences


class TrainedLine(NamedTuple):
  """A row, by the name `row`, from one of its pre-trainings."""

  row: str
  line: Line
  pretraining: Pretraining


class Missing(NamedTuple):
  """What is there and what is missing.

  Attributes:
    chosen: the cells to fill.
    cells: of all rows.
    changed: of `tables.find_changes`.
    pretrainings: to run first; the first seed of each row comes before the
      second of any, so that a stopped table tells something of all rows.
    runs: to run then.
    asked: pre-trainings, and the names of the pairs to ask them.
  """

  chosen: Chosen
  cells: list[Cell]
  changed: dict[tables.Key, str]
  pretrainings: list[Pretraining]
  runs: list[Run]
  asked: list[tuple[Pretraining, list[str]]]

  @property
  def is_finished(self) -> bool:
    """Whether nothing is missing."""
    return not (self.pretrainings or self.runs or self.asked)


class Found(NamedTuple):
  """The figures of the finished runs, and the reasons that others are missing.

  Attributes:
    cells: of all rows.
  """

  cells: list[Cell]
  reasons: table_rendering.Reasons
  values: contrasts.Values
  differences: list[contrasts.Difference]


class SmallTable:
  """A table, its rows from each of their pre-trainings, and their folders."""

  def __init__(
    self,
    table: Table,
    out: epath.Path,
    data: str | None,
    seeds: int | None,
    work: Work,
  ) -> None:
    self.table, self._data, self._work = table, data, work
    self._request = CellRequest(table, out, data, seeds)
    # Name of a column -> of a folder below --data, or an objective.
    self._questions = {
      column.name: column.pairs or column.held_out
      for column in table.columns
      if column.pairs or column.held_out
    }
    self._objectives = {column.held_out for column in table.columns}
    place = out / 'pretraining'
    # Tables share pre-trainings of the same text.
    is_shared = table.texts == Table.texts
    prefix = '' if is_shared else f'{"_".join(table.texts)}_'
    self.lines: dict[str, TrainedLine] = {}
    # Folder of a pre-training -> the first of its rows.
    self._firsts: dict[epath.Path, str] = {}
    for row in self._request.table.rows:
      if not row.pretraining:  # it is only quoted
        continue
      config = settings.with_overrides(
        settings.load_config(row.pretraining), row.changes
      )
      is_words = row.family == base.VECTORS
      vocabulary = table_rows.slug(config.data.tokenizer)
      store = place / f'store_{prefix}{vocabulary}'
      stem = f'{config.model.name}_{prefix}{_digest(config)}'
      for seed in range(table.pretrainings):
        # Fine-tunings lie in a folder of this name. With another pre-training
        # a row has other folders, so that its cells never show old scores.
        name = f'{row.name} ({stem}), seed {seed}'
        folder = place / f'{stem}_seed_{seed}'
        weights = folder / 'vectors.txt' if is_words else folder
        self._firsts.setdefault(folder, row.name)
        self.lines[name] = TrainedLine(
          row.name,
          Line(
            dataclasses.replace(row, name=name), False, str(weights), row.family
          ),
          Pretraining(row.pretraining, row.changes, seed, folder, store),
        )

  def choose(self, only: Sequence[str]) -> Chosen:
    """Returns the cells of `only`, see `make`; all by default."""
    every = [
      (row.name, column.name)
      for row in self.table.rows
      if row.pretraining
      for column in self.table.columns
    ]
    chosen = []
    for text in only:
      found = [
        each
        for each in every
        if text in (*each, ','.join(each), each[1].partition('/')[0])
      ]
      if not found:
        names = '; '.join(
          dict.fromkeys(name for each in every for name in each)
        )
        raise ValueError(
          f'--only {text}: there is no such cell; rows and columns are {names}'
        )
      chosen += found
    return frozenset(chosen if only else every)

  def plan(self, chosen: Chosen, *, rerun: bool) -> Missing:
    """Returns what rows lack; resolves every config.

    ValueError for a key that a config lacks, and for a fine-tuning that its
    pre-training cannot read, before the first is run.
    """
    engine, cells = self._work.engine, self._find_cells()
    changed = tables.find_changes(cells, engine)
    wanted = [
      cell
      for cell in cells
      if (self.lines[cell.line.name].row, cell.column.name) in chosen
    ]
    runs = tables.missing_runs(wanted, changed, rerun=rerun)
    needing = {run.line.name for run in runs}
    for cell in wanted:
      for run in cell.runs:
        if run.part.task != base.PRETRAINING:
          self._check_length(run, engine.resolve(run))
        elif not run.summary.exists():
          needing.add(cell.line.name)
    asked: dict[epath.Path, tuple[Pretraining, list[str]]] = {}
    pretrainings: dict[epath.Path, Pretraining] = {}
    for name, each in self.lines.items():
      run = each.pretraining
      left = [
        question
        for column, question in self._questions.items()
        if (each.row, column) in chosen
        and self._is_asked(each)
        and not run.answers(question).exists()
      ]
      if left:
        asked[run.folder] = run, left
      if not rerun and run.diverged.exists():
        continue
      if run.results is None and (left or name in needing):
        pretrainings[run.folder] = run
    return Missing(
      chosen,
      cells,
      changed,
      sorted(pretrainings.values(), key=lambda each: each.seed),
      runs,
      [*asked.values()],
    )

  def _find_cells(self) -> list[Cell]:
    return table_plan.find_cells(
      self._request,
      [each.line for each in self.lines.values()],
      self._work.engine.has_split,
    )

  def _check_length(self, run: Run, config: ConfigDict) -> None:
    if run.line.family == base.VECTORS:  # its task model reads any number
      return
    found, pretraining = config.task.max_length, self._pretraining(run)
    longest = pretraining.resolve().model.max_length
    if found > longest:
      raise ValueError(
        f'{run.part.task}: task.max_length={found}: expected {longest} at most,'
        f' model.max_length of {pretraining.name}'
      )

  def tell(self, plan: Missing) -> None:
    """Prints the commands of what is missing, and what it takes."""
    text = self._source
    of_stores = {each.store: each for each in plan.pretrainings}
    for store, one in of_stores.items():
      if not folders.is_store(store):
        print(one.preparing(text))
    for each in plan.pretrainings:
      print(each.command)
    for run in plan.runs:
      print(run.command)
    for each, names in plan.asked:
      for name in names:
        if name in self._objectives:
          print(f'# {each.folder}: held-out perplexity by {name}')
          continue
        words = ['python', '-m', 'train.minimal_pairs', str(each.folder)]
        words += [f'{self._data or "DATA"}/{name}', '--limit', str(PAIRS_LIMIT)]
        print(shlex.join(words))
    tunings = sum(run.num_seeds for run in plan.runs)
    finished = self._finished_durations(plan.cells)
    seconds = small_hours.add_up(self._missing_durations(plan), finished)
    source = (
      'by the runs that are finished'
      if finished
      else f'guessed at {small_hours.SPEED / 1e9:.0f} GFLOP/s'
    )
    console.say(
      f'{len(plan.pretrainings)} pre-trainings of {_steps(plan):,} steps in all'
      f' and {tunings} fine-tunings. About {seconds / 3600:.1f} hours,'
      f' {source}.'
    )

  def _missing_durations(self, plan: Missing) -> list[small_hours.Duration]:
    durations = [
      small_hours.of_pretraining(each.resolve()) for each in plan.pretrainings
    ]
    for run in plan.runs:
      durations += [self._guess_tuning(run)] * run.num_seeds
    for each, names in plan.asked:
      durations += [self._guess_answers(each, name) for name in names]
    return durations

  def _finished_durations(
    self, cells: Sequence[Cell]
  ) -> list[small_hours.Duration]:
    """Returns them with the seconds taken; what rows share counts once."""
    durations = []
    trained = {
      line.pretraining.folder: line.pretraining for line in self.lines.values()
    }
    for each in trained.values():
      if each.results is not None:
        guess = small_hours.of_pretraining(each.resolve())
        durations.append(guess._replace(taken=each.results['seconds']))
      for name in self._questions.values():
        answers = table_figures.read_summary(each.answers(name))
        if answers is not None:
          guess = self._guess_answers(each, name)
          durations.append(guess._replace(taken=answers['seconds']))
    runs = {run.key: run for cell in cells for run in cell.runs}
    for run in runs.values():
      summary = table_figures.read_summary(run.summary)
      for each in summary['runs'] if summary else ():
        durations.append(
          self._guess_tuning(run)._replace(taken=each['seconds'])
        )
    return durations

  def _guess_tuning(self, run: Run) -> small_hours.Duration:
    config = self._work.engine.resolve(run)
    size = table_plan.count_examples(run.part.task, None)
    limit = config.data.train_limit
    return small_hours.of_tuning(
      config,
      self._pretraining(run).resolve(),
      min(size or limit, limit),
    )

  def _guess_answers(self, run: Pretraining, name: str) -> small_hours.Duration:
    config = run.resolve()
    if name in self._objectives:
      return small_hours.of_perplexity(config)
    return small_hours.of_pairs(config, PAIRS_LIMIT)

  def fill(self, plan: Missing, *, rerun: bool) -> dict[tables.Key, str]:
    """Runs what is missing; returns {key of a failed run: its error}.

    What a pre-training is judged by comes before the next pre-training, and the
    page is written between them. One whose numbers are not finite is told there
    and leaves its cells empty. Raises processes.Preempted between two parts, if
    asked to end.
    """
    with processes.Preemption() as preemption:
      return self._fill(plan, preemption, rerun=rerun)

  def _fill(
    self, plan: Missing, preemption: processes.Preemption, *, rerun: bool
  ) -> dict[tables.Key, str]:
    from train.host import device

    device.enable_compilation_cache()
    for name in self.table.texts if plan.pretrainings else ():
      self._find(name)
    text = self._source
    pairs = {
      name: self._find(name)
      for _, names in plan.asked
      for name in names
      if name not in self._objectives
    }
    failed: dict[tables.Key, str] = {}
    tried: set[tables.Key] = set()
    waiting, count = [*plan.pretrainings], len(plan.pretrainings)
    while True:
      for each, names in plan.asked:
        for name in names if each.results is not None else ():
          key = each.name, f'{name}, seed {each.seed}', ''
          if key in tried:
            continue
          tried.add(key)
          preemption.end_if_due('what is finished is kept')
          try:
            self._answer(each, name, pairs.get(name))
          except tables.FAILURES as error:
            failed[key] = str(error).partition('\n')[0]
            console.say(f'failed: {error}')
      runs = [
        run
        for run in plan.runs
        if run.key not in tried and self._pretraining(run).results is not None
      ]
      tried |= {run.key for run in runs}
      if runs:
        preemption.end_if_due('what is finished is kept')
      failed |= tables.fill(runs, plan.changed, self._work.engine)
      if not waiting:
        return failed
      self.write(failed)
      preemption.end_if_due('what is finished is kept')
      each = waiting.pop(0)
      number = count - len(waiting)
      console.say(f'\n[{number}/{count}] pre-training\n{each.command}')
      try:
        self._work.pretrain(each, text)
        if each.diverged.exists():
          each.diverged.unlink()
      except FloatingPointError as error:  # the others go on
        files.write_atomically(each.diverged, f'{error}\n')
        failed[_key(each)] = _first_line(each.diverged)
        console.say(f'failed: {error}')
      except workdirs.BusyError as error:
        failed[_key(each)] = 'another process trains it; ask again at its end'
        console.say(f'left out: {error}')
      plan = self.plan(plan.chosen, rerun=rerun)

  def _answer(
    self, run: Pretraining, name: str, pairs: epath.Path | None
  ) -> None:
    """Writes the answers to pairs, or the perplexity by the objective `name`.

    `pairs` is the folder of these; None: there is an objective.
    """
    console.say(f'\n{run.folder}: {pairs or name}')
    began = time.time()
    if pairs is None:
      found = self._work.score(run, name)
    else:
      found = self._work.ask(run.folder, pairs)
    found = found | {'seconds': time.time() - began}
    files.write_atomically(run.answers(name), files.as_json(found) + '\n')

  def _is_asked(self, line: TrainedLine) -> bool:
    """Whether pairs and held-out text are scored for a row.

    Vectors of words score no sentence. Rows that share a pre-training would
    share its answers, too, whatever they add to it: the first has them.
    """
    is_first = self._firsts[line.pretraining.folder] == line.row
    return is_first and line.line.family != base.VECTORS

  def _pretraining(self, run: Run) -> Pretraining:
    return self.lines[run.line.name].pretraining

  @property
  def _source(self) -> str:
    """The text to pre-train on, as `data.source`."""
    data = self._data or 'DATA'
    return ','.join(
      TEXTS[name][0].format(folder=f'{data}/{name}')
      for name in self.table.texts
    )

  def _find(self, name: str) -> epath.Path:
    """Returns a folder below --data."""
    if self._data is None:
      held = [f'DIR/{each} holds {TEXTS[each][1]}' for each in self.table.texts]
      raise ValueError(
        f'{self.table.id} needs --data DIR, where {", ".join(held)}, to'
        ' pre-train on, and other folders of it the tasks'
      )
    place = epath.Path(self._data) / name
    if not place.is_dir():
      raise FileNotFoundError(f'--data {self._data}: holds no folder {name}')
    return place

  def read(self) -> Found:
    """Returns what the finished runs say."""
    cells = self._find_cells()
    figures, reasons = table_figures.read_figures(cells, self._request.table)
    values = self.gather(figures)
    differences = contrasts.find_differences(self.table, values)
    return Found(cells, reasons, values, differences)

  def gather(self, figures: table_rendering.Figures) -> contrasts.Values:
    """Returns the values of cells whose figures are there."""
    found: dict[tuple[str, str], contrasts.Value] = {}
    for column in self.table.columns:
      scale = 100.0 if column.percent else 1.0
      for name, each in self.lines.items():
        figure = figures.get((name, column.name))
        values, way = () if figure is None else figure.values, ''
        question = self._questions.get(column.name)
        if question and self._is_asked(each):
          answers = table_figures.read_summary(
            each.pretraining.answers(question)
          )
          if answers is not None:
            values = (answers['runs'][0]['metrics'][question],)
            way = answers.get('scoring', '')
        if values:
          scaled = tuple(scale * value for value in values)
          key = each.row, column.name
          others, origins, _ = found.get(key, contrasts.Value(()))
          origins += (each.pretraining.folder.name,)
          found[key] = contrasts.Value((*others, scaled), origins, way)
    return found

  def _find_tunings(self, cells: Sequence[Cell]) -> list[dict[str, Json]]:
    """Returns what is known of the finished fine-tunings, all seeds in one."""
    runs = {run.key: run for cell in cells for run in cell.runs}
    found = []
    for run in runs.values():
      summary = table_figures.read_summary(run.summary)
      if summary is not None:
        line = self.lines[run.line.name]
        found.append(
          {
            'row': line.row,
            'seed_of_pretraining': line.pretraining.seed,
            'task': ', '.join(filter(None, run.key[1:])),
            'seeds': len(table_figures.chosen_runs(summary)),
            'diverged': len(table_figures.lost_runs(summary)),
            'seconds': sum(each['seconds'] for each in summary['runs']),
            'device': summary.get('device', ''),
            'revision': summary.get('revision', ''),
            'command': run.command,
          }
        )
    return found

  def write(self, failed: Mapping[tables.Key, str]) -> None:
    """Writes the page, the differences and their picture."""
    request = self._request
    found = self.read()
    changed = tables.find_changes(found.cells, self._work.engine)
    failed = dict(failed) | {
      _key(each.pretraining): _first_line(each.pretraining.diverged)
      for each in self.lines.values()
      if each.pretraining.diverged.exists()
    }
    warnings = [
      f'{row}, {task}: {text}; --rerun runs it again'
      for (row, task, _), text in changed.items()
    ]
    warnings += [
      f'{row}, {task}: failed: {error}'
      for (row, task, _), error in failed.items()
    ]
    unfilled: dict[tuple[str, str], dict[str, None]] = {}
    for (name, column), text in found.reasons.items():
      key = self.lines[name].row, text.partition(': ')[0]
      unfilled.setdefault(key, {})[column] = None
    missing = [
      f'{row} ({", ".join(columns)}): {text}'
      for (row, text), columns in unfilled.items()
    ]
    runs = {
      each.pretraining.folder: each.pretraining for each in self.lines.values()
    }
    facts = {
      'command': f'python -m train.tables --table {self.table.id} --data DATA',
      'pretrainings': [each.facts for each in runs.values()],
      'fine_tunings': self._find_tunings(found.cells),
    }
    page = small_page.lay_out(
      self.table,
      found.values,
      found.differences,
      facts,
      {'Warnings': warnings, 'Not measured': missing},
    )
    table_rendering.write(page, request.out, request.stem)
    small_page.write_figures(
      facts,
      found.values,
      found.differences,
      request.out / f'{request.stem}.json',
    )
    if any(each.low is not None for each in found.differences):
      contrast_figure.write(
        self.table.title, found.differences, request.out / f'{request.stem}.png'
      )


def _key(run: Pretraining) -> tables.Key:
  return run.name, f'pre-training, seed {run.seed}', ''


def _first_line(path: epath.Path) -> str:
  return path.read_text().partition('\n')[0]


def _name(config: str, changes: FlatConfig) -> str:
  return ' '.join([config, *(f'{key}={v}' for key, v in changes.items())])


def _steps(plan: Missing) -> int:
  """Returns the steps to pre-train, but for vectors of words."""
  configs = [each.resolve() for each in plan.pretrainings]
  return sum(
    phase[0]
    for config in configs
    if config.train.num_epochs is None
    for phase in training_phases.check_phases(config)
  )
