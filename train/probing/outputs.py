"""The results of probes as JSON, TSV and Markdown.

TASK.json has one task's settings, probes and figures; probes.json all tasks',
probes.tsv a line for each probe, probes.md the tables of the figures.
"""

from collections.abc import Mapping, Sequence

from etils import epath

from data import scratch
from data.text import text_files
from train.host import files
from train.host.files import Json
from train.papers import table_rendering
from train.papers.table_rendering import Sheet, TablePage
from train.probing import figure
from train.probing.plan import Record

JSON_FILE, TSV_FILE = 'probes.json', 'probes.tsv'
TABLE_FILE, FIGURE_FILE = 'probes.md', 'layer_weights.png'
COLUMNS = (
  'task',
  'first_layer',
  'last_layer',
  'seed',
  'dev_f1',
  'test_f1',
  'best_step',
  'steps',
  'gamma',
  'layer_weights',
)
SOURCE = 'Edge probing (Tenney et al. 2019): binary micro F1, in percent.'
INTERVAL = (
  "The interval behind ± is of the mean over seeds, Student's t, 95 %; the"
  ' seeds differ in first parameters and dropout.'
)
NOTES = (
  'Layer 0 is the embeddings of words or their pieces, without positions: the'
  ' lexical baseline.',
  'Expected layer: sum of l d(l) / sum of d(l) over layers from 1 on, d(l) the'
  ' gain in dev F1 of the mix of layers 0 to l over the one of 0 to l - 1.',
  'Centre of gravity: sum of l s(l), s the softmax weights of the mix of all'
  ' layers. KL: their divergence from equal weights, in bits, and that of the'
  ' gains, negative ones taken as 0.',
)


CURE = 'Give the same settings, another --out, or --overwrite'


def path_of(out: epath.PathLike, task: str) -> epath.Path:
  """Returns the file of a task's results."""
  return epath.Path(out) / f'{task}.json'


def read(path: epath.Path) -> Record:
  """Returns a task's results; raises ValueError for another file."""
  try:
    found = text_files.read_json(path)
  except ValueError as error:
    raise ValueError(f'{path}: not JSON ({error}); remove it') from None
  if not isinstance(found, dict) or not {'settings', 'probes'} <= found.keys():
    raise ValueError(
      f'{path}: found a file that train.probe did not write, expected its'
      ' results; name another --out'
    )
  return found


def check_settings(
  path: epath.Path,
  found: Record,
  expected: Mapping[str, Json],
  cure: str = CURE,
) -> None:
  """Raises ValueError, naming a setting in which results differ.

  Only settings in `expected` are compared.
  """
  for key, value in expected.items():
    there = found['settings'].get(key)
    if there != value:
      raise ValueError(
        f'{path}: was made with {key}={there}, and this command has {value}.'
        f' {cure}'
      )


def write(
  out: epath.PathLike, title: str, records: Sequence[Record]
) -> tuple[str, str]:
  """Writes the results of all tasks into files; returns Markdown and JSON.

  `records` stand in the order of the tables; `title` names the weights.
  """
  out = epath.Path(out)
  page = table_rendering.as_markdown(lay_out(title, records))
  text = files.as_json({'weights': title, 'tasks': list(records)}) + '\n'
  files.write_atomically(out / JSON_FILE, text)
  files.write_atomically(out / TSV_FILE, as_tsv(records))
  files.write_atomically(out / TABLE_FILE, page)
  with scratch.replacing(out / FIGURE_FILE) as new:
    figure.draw(title, records, new)
  return page, text


def as_tsv(records: Sequence[Record]) -> str:
  """Returns a line for each probe of each task, F1 from 0 to 1."""
  lines = ['\t'.join(COLUMNS)]
  for record in records:
    for name, part in _parts(record):
      for run in part['probes']:
        shares = ' '.join(f'{share:.4f}' for share in run['shares'])
        numbers = (run['first'], run['last'], run['seed'])
        scores = (f'{run["dev"]:.6f}', f'{run["test"]:.6f}')
        steps = (run['step'], run['steps'], f'{run["scale"]:.4f}')
        fields = (name, *numbers, *scores, *steps, shares)
        lines.append('\t'.join(map(str, fields)))
  return '\n'.join(lines) + '\n'


def _parts(
  record: Record,
) -> list[tuple[str, Record]]:
  """Returns (name, results) of a task, and of its control task."""
  parts = [(record['task'], record)]
  if record['control']:
    parts.append((f'{record["task"]}_control', record['control']))
  return parts


def lay_out(title: str, records: Sequence[Record]) -> TablePage:
  """Returns the tables of figures, of test F1 and of layers."""
  depth = max(record['settings']['num_layers'] for record in records)
  header = ('', *(f'k = {layer}' for layer in range(depth)))
  scores = [
    (name, part['figures'])
    for record in records
    for name, part in _parts(record)
  ]
  gains = [(x['task'], x['selectivity']) for x in records if x['control']]
  rows = [tuple(_figures(record)) for record in records]
  sheets = [Sheet('Layers', FIGURE_COLUMNS, tuple(rows))]
  for what, parts in (
    ('test F1', scores),
    ('selectivity: test F1 - control', gains),
  ):
    for key, layers in (
      ('mixes', 'Mix of layers 0 to k'),
      ('singles', 'Layer k alone'),
    ):
      rows = [
        (name, *map(_percent, part[key]))
        for name, part in parts
        if any(part[key][1:])
      ]
      if rows:
        sheets.append(Sheet(f'{layers}, {what}', header, tuple(rows)))
  seeds = sorted({record['settings']['seeds'] for record in records})
  recipe = [
    f'{record["task"]}: {record["data"]["train"]:,} training sentences,'
    f' {record["data"]["classes"]} classes, {record["seconds"]:,.0f} s'
    for record in records
  ]
  notes = (*NOTES, *((INTERVAL,) if seeds != [1] else ()))
  lists = ('Notes', notes), ('Tasks', tuple(recipe))
  return TablePage(f'Probes of {title}', SOURCE, tuple(sheets), lists)


FIGURE_COLUMNS = (
  '',
  'Layer 0, dev',
  'All layers, dev',
  'Layer 0, test',
  'All layers, test',
  'Best layer alone',
  'Expected layer',
  'Centre of gravity',
  'KL of weights',
  'KL of gains',
)


def _figures(record: Record) -> list[str]:
  figures = record['figures']
  mixes, singles = figures['mixes'], figures['singles']
  first = singles[0] or mixes[0]
  found = [(x['dev']['mean'], i) for i, x in enumerate(singles) if x]
  best = f'{max(found)[1]}' if len(found) > 1 else ''
  names = 'expected_layer', 'centre', 'mix_divergence', 'gain_divergence'
  return [
    record['task'],
    *(
      _percent(x, split)
      for split in ('dev', 'test')
      for x in (first, mixes[-1])
    ),
    best,
    *(_number(figures[name]) for name in names),
  ]


def _percent(figures: Mapping[str, Json] | None, split: str = 'test') -> str:
  """Returns a mean F1 in percent and its interval; '' without figures."""
  if figures is None:
    return ''
  figures = figures.get(split, figures)
  text = f'{100 * figures["mean"]:.1f}'
  if figures['interval'] is None:
    return text
  return f'{text} ± {100 * figures["interval"]:.1f}'


def _number(figures: Mapping[str, Json] | None) -> str:
  if figures is None or figures['mean'] is None:
    return ''
  text = f'{figures["mean"]:.2f}'
  if figures['interval'] is None:
    return text
  return f'{text} ± {figures["interval"]:.2f}'
