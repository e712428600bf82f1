"""Bengio et al. 2003, Table 1: n-grams and networks on the Brown corpus.

A row is run for each seed: its model is trained, and the perplexities of the
words to choose by and of those to test are written into figures.json.
"""

import json
import shlex
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from configs.tables.base import Row, Table
from data.ngrams import interpolation, smoothing, texts
from data.ngrams.model import perplexity
from train.host import console, files
from train.host.files import Json
from train.language import held_out, ngrams, scoring
from train.papers import (
  brown_text,
  column_heads,
  table_rendering,
  table_rows,
)
from train.papers.brown_text import BrownText
from train.run import settings

if TYPE_CHECKING:
  from train.vectors.trained_model import TrainedModel

# Of the command that it takes.
OPTIONS = ('data', 'only', 'seeds', 'rerun', 'run', 'dry_run')
NETWORKS = 'brown'  # the config of networks; other rows are n-grams
INTERPOLATED = 'interpolated'
BASELINE = 'modified Kneser-Ney, n = 5'  # ratios are to this row
PARTS = 'valid', 'test'
MIXED = 0.5  # the weight of the trigram in a mixture (section 4.2)
FIGURES = 'figures.json'
COLUMNS = ('valid', 'test', 'mixed valid', 'mixed test')  # of a row's values
HEADER = ('', 'valid', 'test', 'ratio', *COLUMNS[2:], 'ratio, mixed')
# As the paper prints them; of all the lowest is best.
HEADS = ('', 'valid.', 'test', 'ratio', 'mix valid.', 'mix test', 'ratio, mix')
BEST = ('', *[column_heads.LOW] * (len(HEADER) - 1))
DETAILS = tuple(
  'Row|Seeds|Words seen|Seconds|Hardware|Revision|Settings'.split('|')
)
TOLD = (
  'train.phases',
  'optim.learning_rate',
  'optim.weight_decay',
  'model.dropout_rate',
)

RunFigures = Mapping[str, Json]  # content of FIGURES, see `_count`, `_train`


class BrownRun(NamedTuple):
  """A row and a seed, and the folder of their figures."""

  row: Row
  seed: int
  folder: epath.Path

  @property
  def is_network(self) -> bool:
    """Whether a network is trained."""
    return self.row.args[0].partition(':')[0] == NETWORKS

  @property
  def figures(self) -> RunFigures | None:
    """The figures of the run; None if it is not finished."""
    path = self.folder / FIGURES
    return files.read_json(path) if path.exists() else None

  def overrides(self, store: str) -> dict[str, settings.Value]:
    """Returns key of the config -> value."""
    return {
      **self.row.overrides,
      'train.seed': self.seed,
      'data.folder': store,
    }

  def config(self, store: str = '') -> ConfigDict:
    """Returns the config of a network."""
    return settings.with_overrides(
      settings.load_config(self.row.args[0]), self.overrides(store)
    ).lock()

  def command(self, store: str) -> str:
    """Returns the command that trains the network."""
    if not self.is_network:
      return f'# {self.row.name}: counted, not trained'
    words = ['python', '-m', 'train.main', '--config', self.row.args[0]]
    words += [f'--config.{k}={v}' for k, v in self.overrides(store).items()]
    return shlex.join([*words, '--workdir', str(self.folder)])


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
  """Runs what is missing, writes OUT/TABLE.md and .tex, prints the Markdown.

  `only` are names of rows, `seeds` their number of runs. `dry_run` prints the
  commands of missing runs alone. With `rerun` runs of another config are set
  aside and run again. Returns whether all runs succeeded.
  """
  if unused:
    raise ValueError(f'--table {table.id}: takes no {" ".join(unused)}')
  out = epath.Path(out)
  files.check_folder('--out', out)
  folder = out / table.id.replace('/', '_')
  runs = _find_runs(table, folder, _chosen_rows(table, only), seeds)
  changed = {each.folder: text for each in runs if (text := _changes(each))}
  missing = [
    each
    for each in runs
    if each.figures is None or (rerun and each.folder in changed)
  ]
  if dry_run:
    for each in missing:
      print(each.command(str(folder / 'store')))
    return True
  failed: list[str] = []
  if run and missing:
    import jax

    from train.host import device

    jax.config.update('jax_platforms', 'cpu')  # of all configs of these rows
    device.enable_compilation_cache()
    text = brown_text.prepare(brown_text.find(data), folder)
    for each in missing:
      if each.folder in changed:
        console.say(f'set aside: {table_rows.set_aside(each.folder)}')
        del changed[each.folder]
      failed += _run(each, text, folder)
  every = _find_runs(table, folder, table.rows, seeds)
  warnings = [
    f'{each.row.name}, seed {each.seed}: was run with {changed[each.folder]};'
    ' --rerun runs it again'
    for each in runs
    if each.folder in changed
  ]
  page = lay_out(table, every, [*warnings, *failed])
  table_rendering.write(page, out, folder.name)
  return not failed


def _chosen_rows(table: Table, only: Sequence[str]) -> list[Row]:
  ours = [row for row in table.rows if row.args]
  names = [row.name for row in ours]
  for name in only:
    if name not in names:
      raise ValueError(
        f'--only {name}: there is no such row to run; rows are'
        f' {"; ".join(names)}'
      )
  return [row for row in ours if not only or row.name in only]


def _find_runs(
  table: Table,
  folder: epath.Path,
  rows: Sequence[Row],
  seeds: int | None,
) -> list[BrownRun]:
  """Returns the runs of rows, an n-gram's once; finished ones beyond `seeds`.

  The first seeds of all rows come first.
  """
  found = []
  for row in rows:
    if not row.args:
      continue
    place = folder / table_rows.slug(row.name)
    count = seeds or table.seeds
    while (place / str(count) / FIGURES).exists():
      count += 1
    first = BrownRun(row, 0, place / '0')
    found += [
      first._replace(seed=seed, folder=place / str(seed))
      for seed in range(count if first.is_network else 1)
    ]
  return sorted(found, key=lambda each: each.seed)


def _changes(run: BrownRun) -> str:
  """Returns how a finished run's config differs from today's, or ''.

  Keys that a run may continue with, `settings.FREE_KEYS`, do not count.
  """
  found = run.figures
  if found is None or not run.is_network:
    return ''
  there = found['config']
  wanted = _plain(settings.flatten(run.config()))
  differing = settings.differing_keys(
    there, {key: wanted[key] for key in wanted if key in there}
  )
  return ', '.join(
    f'{key}={old!r} and not {new!r}' for key, (old, new) in differing.items()
  )


def _plain(config: settings.FlatConfig) -> dict[str, Json]:
  """Returns a flat config as it is read from JSON."""
  return json.loads(files.as_json(dict(config)))


def _run(run: BrownRun, text: BrownText, folder: epath.Path) -> list[str]:
  """Writes the figures of a run; returns its failure, if any."""
  console.say(f'\n{run.row.name}, seed {run.seed}')
  run.folder.mkdir(parents=True, exist_ok=True)
  try:
    if run.is_network:
      figures = _train(run, text, str(folder / 'store'))
    else:
      figures = _count(run, text)
  except (ValueError, OSError, FloatingPointError) as error:
    console.say(f'failed: {error}')
    return [f'{run.row.name}, seed {run.seed}: failed: {error}']
  from train.host import device

  figures |= {'device': device.describe(), 'revision': device.revision()}
  files.write_atomically(run.folder / FIGURES, files.as_json(figures) + '\n')
  return []


def _count(run: BrownRun, text: BrownText) -> RunFigures:
  """Returns the figures of an n-gram."""
  method, order = run.row.args[0], int(run.row.args[1])
  began = time.monotonic()
  if method == INTERPOLATED:
    found = interpolated(text, order)
  else:
    estimate = smoothing.METHODS[method]
    (scorer,) = ngrams.of_store(text.store, [order], estimate)
    of_token = texts.words_of_store(text.store).of_token
    found = {
      name: scorer.log_probs(of_token[getattr(text, name)]) for name in PARTS
    }
  return {
    'readings': {'': {name: perplexity(found[name]) for name in PARTS}},
    'words_seen': brown_text.TRAIN,
    'seconds': time.monotonic() - began,
    'config': {},
  }


def interpolated(text: BrownText, order: int) -> dict[str, np.ndarray]:
  """Returns the log-probabilities of both parts' words but the first.

  The weights are fitted on the words to choose by, as in the paper.
  """
  words = texts.words_of_store(text.store)
  blocks = texts.store_blocks(text.store, words)
  with ngrams.counted(blocks, words.words, order) as counts:
    found = {
      name: interpolation.frequencies(
        counts, words.of_token[getattr(text, name)], order
      )
      for name in PARTS
    }
  weights = interpolation.fit(found['valid'])
  return {
    name: interpolation.log_probs(weights, each)[1:]
    for name, each in found.items()
  }


def _train(run: BrownRun, text: BrownText, store: str) -> RunFigures:
  """Trains a network, or continues its training; returns its figures."""
  from train.pretrain import job
  from train.run import training, workdirs
  from train.vectors.trained_model import TrainedModel

  config = run.config(store)
  job.check_config(config)
  planned = job.make(config, run.folder)
  if planned is not None:
    training.train(planned, run.folder, began=time.time())
  results = workdirs.read_results(run.folder)
  found = TrainedModel(run.folder, use=None)
  trigram = interpolated(text, 3)
  readings: dict[str, dict[str, float]] = {}
  for name in PARTS:
    for reading, scores in _score(found, text, name).items():
      row = readings.setdefault(reading, {})
      row[name] = perplexity(scores)
      if reading != 'backward':  # the trigram reads from the left
        mixed = np.logaddexp(
          np.log1p(-MIXED) + scores, np.log(MIXED) + trigram[name]
        )
        row[f'mixed {name}'] = perplexity(mixed)
  steps = [phase[0] for phase in config.train.phases]
  words = sum(n * length * rows for n, length, rows, *_ in config.train.phases)
  return {
    'readings': readings,
    'words_seen': words * results['steps'] // sum(steps),
    'seconds': results['seconds'],
    'config': _plain(settings.flatten(config)),
    'command': run.command(store),
  }


def _score(
  found: 'TrainedModel', text: BrownText, part: str
) -> dict[str, np.ndarray]:
  """Returns reading -> log-probabilities of a part's words but the first."""
  tokens = getattr(text, part)
  if found.name == 'nnlm':  # it needs few words before
    context = found.model.max_length
    scores = scoring.score_tokens(
      found.model,
      found.params,
      tokens,
      context=context,
      stride=max(1, context - found.model.order + 2),
    )
    return {'': scores.astype(np.float64)}
  starts = np.arange(0, len(tokens), brown_text.LINE)
  whole = held_out.Text(tokens, starts)
  scores = held_out.score(found, text.store, [whole])
  return {name: each[0].astype(np.float64) for name, each in scores.items()}


def lay_out(
  table: Table, runs: Sequence[BrownRun], warnings: Sequence[str]
) -> table_rendering.TablePage:
  """Returns the page: published rows, ours below, and how ours were made."""
  found: dict[str, list[RunFigures]] = {}
  for run in runs:
    if (figures := run.figures) is not None:
      found.setdefault(run.row.name, []).append(figures)
  base_published = next(
    row.values[1] for row in table.rows if row.name == BASELINE
  )
  base_ours = _mean(found.get(BASELINE, ()), '', 'test')
  rows, details, missing = [], [], []
  for row in table.rows:
    if any(map(str, row.values)):
      rows.append(_line(row.name, row.values, base_published))
    of_row = found.get(row.name, [])
    if row.args and not of_row:
      missing.append(f'{row.name}: has not been run')
    for reading in of_row[0]['readings'] if of_row else ():
      name = f'{row.name}, {reading}' if reading else row.name
      texts_ = [_text(of_row, reading, column) for column in COLUMNS]
      means = [_mean(of_row, reading, column) for column in COLUMNS]
      line = _line(name, means, base_ours)
      rows.append(
        (f'{name} (ours)', *texts_[:2], line[3], *texts_[2:], line[6])
      )
    if of_row:
      details.append(_detail(row.name, of_row))
  sheets = [
    table_rendering.Sheet(
      'Published and ours', HEADER, tuple(rows), HEADS, BEST
    ),
    table_rendering.Sheet('Ours, row by row', DETAILS, tuple(details)),
  ]
  lists = (
    ('Notes', table.notes),
    ('Warnings', tuple(warnings)),
    ('Not measured', tuple(missing)),
  )
  return table_rendering.TablePage(
    table.title,
    table.source,
    tuple(sheet for sheet in sheets if sheet.rows),
    tuple((title, told) for title, told in lists if told),
  )


def _values(
  figures: Sequence[RunFigures], reading: str, column: str
) -> list[float]:
  found = [each['readings'].get(reading, {}).get(column) for each in figures]
  return [value for value in found if value is not None]


def _mean(
  figures: Sequence[RunFigures], reading: str, column: str
) -> float | str:
  values = _values(figures, reading, column)
  return statistics.fmean(values) if values else ''


def _text(figures: Sequence[RunFigures], reading: str, column: str) -> str:
  values = _values(figures, reading, column)
  if len(values) < 2:
    return f'{values[0]:.1f}' if values else ''
  return f'{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}'


def _line(
  name: str, values: Sequence[float | str], base: float | str
) -> tuple[str, ...]:
  """Returns a row of texts, with the ratios of both test figures."""
  shown = [str(value) for value in values]
  ratios = [
    '' if '' in (value, base) else f'{value / base:.3f}'
    for value in (values[1], values[3])
  ]
  return (name, *shown[:2], ratios[0], *shown[2:], ratios[1])


def _detail(name: str, figures: Sequence[RunFigures]) -> tuple[str, ...]:
  first = figures[0]
  told = [
    f'{key.rpartition(".")[2]}={first["config"][key]}'
    for key in TOLD
    if key in first['config']
  ]
  seconds = statistics.fmean(each['seconds'] for each in figures)
  joined = (
    ', '.join(dict.fromkeys(each[key] for each in figures))
    for key in ('device', 'revision')
  )
  return (
    name,
    str(len(figures)),
    f'{first["words_seen"]:,}',
    f'{seconds:,.0f}',
    *joined,
    ', '.join(told),
  )
