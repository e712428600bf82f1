"""Shows the metrics of a run to people: lines, results, curves."""

from collections.abc import Iterable, Mapping

from etils import epath

from train.engine.evaluate import LANGUAGES
from train.host import console, pictures
from train.run import ledger
from train.run import metrics as run_metrics
from train.run.workdirs import Results

_UNIGRAM = 'eval/unigram_perplexity'
_MANY = 12  # languages, beyond which a line and a legend would be unreadable
# Without a curve of their own: sums or quotients of other metrics.
_UNDRAWN = ('train/loss', 'train/grad_norm', 'eval/perplexity_ratio')
_PANELS = (
  'Loss',
  'Held-out perplexity',
  'Held-out perplexity of languages',
  'Scores of dev',
  'Scores of other languages',
  'Accuracy',
  'Other figures',
  'Learning rate',
)


def is_perplexity(metric: str) -> bool:
  """Whether a metric is a model's perplexity on all held-out text."""
  return (
    metric.startswith('eval/')
    and metric.endswith('perplexity')
    and metric != _UNIGRAM
    and not metric.startswith(LANGUAGES)
  )


def evaluation_line(step: int, row: Mapping[str, float]) -> str:
  """Returns one line: perplexities, else losses, and all other metrics.

  With several languages, the line has the perplexity of each, or with many
  languages the lowest and the highest.
  """
  of_languages, row = _split_languages(row)
  perplexities = [value for name, value in row.items() if is_perplexity(name)]
  others = []
  for name, value in row.items():
    label = name.removeprefix('eval/')
    of, _, kind = label.rpartition('_')
    if kind == 'accuracy' and of:
      others.append(f'{of.upper()} accuracy {value:.3f}')
    elif not (
      is_perplexity(name)
      or name in (_UNIGRAM, *_UNDRAWN)
      or (perplexities and kind == 'loss')
    ):
      others.append(f'{label.replace("_", " ")} {value:.3f}')
  if perplexities:
    values = ' and '.join(f'{value:.1f}' for value in perplexities)
    others.insert(0, f'perplexity {values} (unigram {row[_UNIGRAM]:.1f})')
  line = f'step {step}: held-out {", ".join(others)}'
  found = sorted(
    (value, name)
    for name, figures in of_languages.items()
    for key, value in figures.items()
    if key.endswith('perplexity')
  )
  if found:
    shown = found if len(found) <= _MANY else [found[0], found[-1]]
    values = ', '.join(f'{name} {value:.1f}' for value, name in shown)
    line += f'; perplexity by language, lowest first: {values}'
  return line


def _split_languages(
  row: Mapping[str, float],
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
  """Returns {language: {metric: value}}, and all other metrics."""
  found, others = {}, {}
  for name, value in row.items():
    if name.startswith(LANGUAGES):
      language, _, metric = name.removeprefix(LANGUAGES).partition('/')
      found.setdefault(language, {})[metric] = value
    else:
      others[name] = value
  return found, others


def print_results(results: Results, workdir: epath.PathLike) -> None:
  """Prints a finished run's metrics."""
  of_languages, figures = _split_languages(results['metrics'])
  rows = [
    (name.removeprefix('eval/'), f'{value:.4f}')
    for name, value in figures.items()
  ]
  rows += [
    (language, ', '.join(f'{n} {v:.4f}' for n, v in values.items()))
    for language, values in of_languages.items()
  ]
  title = (
    f'Held-out text after {results["steps"]} steps'
    f' ({console.duration(results["seconds"])}, {results["device"]})'
  )
  console.table(rows, title, console.show)
  if 'eval/perplexity_ratio' in figures:
    console.show(
      '\nThe model needs'
      f' {figures["eval/perplexity_ratio"]:.3f} of the perplexity that token'
      ' frequencies alone (unigram) give.'
    )
  rows = ledger.read(workdir)
  if rows:
    console.show('\n' + ledger.sentence(rows))
  console.show(
    f'Everything is in {workdir}: results.json, curves.png, metrics.csv,'
    f' {ledger.FILE}'
  )


def draw_curves(
  workdir: epath.PathLike, out: epath.PathLike | None = None
) -> None:
  """Draws a workdir's metrics.csv as curves.png, there or in folder `out`.

  The legends have the last values.
  """
  from matplotlib import ticker

  series: dict[str, tuple[list, list]] = {}
  for step, name, value in run_metrics.read_metrics(workdir):
    steps, values = series.setdefault(name, ([], []))
    steps.append(step)
    values.append(value)
  drawn = panels(series)
  last = max((steps[-1] for steps, _ in series.values()), default=1)
  rows = max(-(-len(drawn) // 2), 1)
  figure = pictures.figure(11, 3.5 * rows)
  name = epath.Path(workdir).expanduser().resolve().name
  figure.suptitle(pictures.shown(name) + ('' if drawn else ': no figures yet'))
  grid = figure.subplots(rows, 2, squeeze=False).flat
  plain = ticker.FuncFormatter(lambda value, _: f'{value:,.10g}')
  for axes in grid[len(drawn) :]:
    axes.set_axis_off()
  for axes, (title, names) in zip(grid, drawn.items(), strict=False):
    for name in names:
      steps, values = series[name]
      is_marked = name.startswith('eval/') or len(steps) == 1
      label = f'{name}  {values[-1]:.4g}'
      axes.plot(
        steps, values, '.-' if is_marked else '-', label=label, alpha=0.9
      )
    axes.set_title(title)
    axes.set_xlabel('step')
    axes.grid(alpha=0.3)
    axes.set_xlim(0, 1.02 * last)
    axes.xaxis.set_major_locator(
      ticker.MaxNLocator(steps=(1, 2, 5, 10), integer=True)
    )
    axes.xaxis.set_major_formatter(plain)
    if 'perplexity' in title:
      axes.set_yscale('log')
      axes.yaxis.set_major_formatter(plain)
      axes.yaxis.set_minor_formatter(plain)
    else:  # no power of ten beside the axis
      axes.ticklabel_format(axis='y', style='plain', useOffset=False)
    if 0 < len(axes.lines) <= _MANY:
      axes.legend(loc='best', fontsize='small')
  path = epath.Path(out or workdir) / 'curves.png'
  pictures.save(figure, path, dpi=110)


def is_of_task(metric: str) -> bool:
  """Whether a metric belongs to a fine-tuning: eval/TASK/METRIC."""
  return metric.startswith('eval/') and metric.count('/') > 1


def panels(metrics: Iterable[str]) -> dict[str, list[str]]:
  """Returns title -> metrics drawn under it, without times and total loss."""
  found: dict[str, list[str]] = {title: [] for title in _PANELS}
  for name in metrics:
    split, _, rest = name.partition('/')
    if split == 'time' or name in _UNDRAWN:
      continue
    if name == 'train/learning_rate':
      title = 'Learning rate'
    elif name.startswith(LANGUAGES):
      if not name.endswith('perplexity'):
        continue
      title = 'Held-out perplexity of languages'
    elif rest.endswith(('_loss', '/loss')):
      title = 'Loss'
    elif is_of_task(name) and '@' in name:
      title = 'Scores of other languages'
    elif is_of_task(name):
      title = 'Scores of dev'
    elif is_perplexity(name) or name == _UNIGRAM:
      title = 'Held-out perplexity'
    elif rest.endswith('accuracy'):
      title = 'Accuracy'
    else:
      title = 'Other figures'
    found[title].append(name)
  return {title: names for title, names in found.items() if names}
