"""A small table, and what fills its cells at once in place of sweeps."""

import itertools
import json

import ml_collections
from etils import epath

from configs.tables import base
from configs.tables.base import Column, Part, Row
from train.papers import table_plan, table_rows, tables
from train.run import settings as run_settings

RATE = 'optim.learning_rate'
# The offset of each seed's figures.
OFFSETS = (0.0, 0.02, -0.02, 0.01, -0.01)
MEANS = {'dev/f1': 0.88, 'dev/accuracy': 0.84, 'test/f1': 0.8}

# The tasks and splits that declarations may speak of.
SPLITS = {
  task: ('train', 'dev', 'test')
  for task in (
    'cola sst2 mrpc stsb qqp qnli rte wnli snli scitail race story_cloze swag'
    ' squad1 squad2 conll2003 sst5 sst5_phrases panx_en srl srl_ewt coref'
    ' coref_gum xnli_zh chnsenticorp lcqmc msra_ner'
  ).split()
} | {'mnli': ('train', 'dev', 'dev_mismatched')}
for task, languages in (('xnli', 'zh es de ar ur'), ('conll2003', 'de es nl')):
  more = (f'test@{language}' for language in languages.split())
  SPLITS[task] = ('train', 'dev', 'test', *more)


class Fake:
  """In place of sweeps: writes their summaries, at once."""

  def __init__(self, broken=()):
    self.runs = []
    self.broken = broken

  def run(self, run):
    task = run.part.task
    self.runs.append((run.line.name, task))
    if task in self.broken:
      self.broken = ()
      raise KeyboardInterrupt
    # Of a grid, the first settings are the best.
    tried = [
      dict(zip(run.grid, values, strict=True))
      for values in itertools.product(*run.grid.values())
    ]
    runs = [
      {
        'seed': seed,
        'settings': settings,
        'metrics': {
          name: mean + OFFSETS[seed] - 0.1 * number
          for name, mean in MEANS.items()
        },
      }
      for number, settings in enumerate(tried)
      for seed in range(run.num_seeds)
    ]
    summary = {
      'task': task,
      'runs': runs,
      'settings': tried[0],
      'best': max(runs, key=lambda run: run['metrics']['dev/f1']),
      'train_size': 3668,
      'device': '1 x cpu',
      'revision': 'abc',
      'config': run_settings.flatten(self.resolve(run)),
    }
    run.folder.mkdir(parents=True, exist_ok=True)
    run.summary.write_text(json.dumps(summary))

  def resolve(self, run):
    config = {'optim': {'learning_rate': 1e-5}, 'model': {'num_layers': 2}}
    for key, value in run.overrides.items():
      section, _, name = key.partition('.')
      config.setdefault(section, {})[name] = value
    return ml_collections.ConfigDict(config)

  @property
  def engine(self):
    return tables.Engine(
      run=self.run,
      resolve=self.resolve,
      family_of=lambda path: 'gpt' if 'gpt' in path else 'bert',
      has_split=lambda task, data, split: task != 'mnli',
    )


def spoil(run, seeds):
  """Makes seeds of a finished run diverged ones, as a sweep tells them."""
  summary = json.loads(run.summary.read_text())
  error = {'error': 'not finite', 'settings': summary.get('settings', {})}
  summary['diverged'] = [{'seed': seed} | error for seed in seeds]
  summary['runs'] = [r for r in summary['runs'] if r['seed'] not in seeds]
  if not summary['runs']:
    summary.pop('settings', None)
    summary.pop('best', None)
  run.summary.write_text(json.dumps(summary))


def small_table(**overrides):
  both = Part('mrpc', ('dev/f1', 'dev/accuracy'))
  columns = (
    base.dev_for_test('mrpc/f1', 'mrpc', 'f1'),
    base.on_dev('mrpc/accuracy', 'mrpc', 'accuracy'),
    base.on_dev('rte/accuracy', 'rte', 'accuracy'),
    base.on_dev('mnli/accuracy', 'mnli', 'accuracy'),
    Column('average', (both, Part('rte', ('dev/accuracy',)))),
    Column('swag_test/accuracy', missing='labels are not public'),
  )
  rows = (
    Row('Before', (80, 70.5, '91.93±0.19', '', '', '')),
    Row(
      'BERT',
      (89.0, 84.0, 66.4, 80.0, '', 86.3),
      family='bert',
      needs='a BERT',
      overrides={RATE: 3e-5},
    ),
    Row('GPT, large', (1.0,) * 6, family='gpt', needs='a GPT'),
  )
  settings = dict(
    id='my/small', title='Small', source='A et al.', columns=columns, rows=rows
  )
  return base.Table(**settings | overrides)


def make(fake, tmp_path, weights=None, table=None, **options):
  request = table_plan.CellRequest(
    table=small_table() if table is None else table,
    out=epath.Path(tmp_path),
    data='sets',
    num_seeds=options.pop('seeds', 3),
    overrides=options.pop('overrides', {}),
  )
  weights = {'BERT': 'b'} if weights is None else weights
  return tables.make_table(request, weights, engine=fake.engine, **options)


def read(tmp_path):
  return (tmp_path / 'my_small.md').read_text()


def row_of(text, *start):
  """Returns the cells of the one line of a table that begins so."""
  lines = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in text.splitlines()
    if line.startswith('|')
  ]
  (found,) = [line for line in lines if tuple(line[: len(start)]) == start]
  return found


def everything(task, data, split):
  return any(split in SPLITS[name] for name in task.split('+'))


def cells_of(
  table,
  weights,
  family,
  *,
  data='sets',
  has_split=everything,
  overrides=None,
):
  request = table_plan.CellRequest(
    table, epath.Path('out'), data, overrides=overrides or {}
  )
  lines = table_rows.find_lines(
    table, request.folder, weights, lambda path: family[path]
  )
  return table_plan.find_cells(request, lines, has_split)
