"""Tables: declarations are whole; each cell has a recipe or a reason."""

import dataclasses
import math
import re
import shlex

import pytest
from etils import epath

from configs.tables import base
from data.tasks import registry
from train.papers import table_figures, table_plan, table_rendering, table_rows
from train.run import settings
from train.transfer import sweep

# The tasks and splits that declarations may speak of.
SPLITS = {
  task: ('train', 'dev', 'test')
  for task in (
    'cola sst2 mrpc stsb qqp qnli rte wnli snli scitail race story_cloze swag'
    ' squad1 squad2 conll2003 sst5 panx_en'
  ).split()
} | {'mnli': ('train', 'dev', 'dev_mismatched')}
METRICS = {
  *'accuracy f1 matthews pearson spearman em'.split(),
  'accuracy/middle',
  'accuracy/high',
}
TABLES = table_rows.shipped_tables()


def everything(task, data, split):
  return split in SPLITS[task]


def cells_of(table, weights, family, *, data='sets', has_split=everything):
  request = table_plan.Request(table, epath.Path('out'), data)
  lines = table_rows.find_lines(
    table, request.folder, weights, lambda path: family[path]
  )
  return table_plan.find_cells(request, lines, has_split)


def test_all_tables_are_there():
  assert len(TABLES) == 19
  assert {'bert/glue', 'gpt/ablation', 'elmo/where', 'sesame/transfer'} <= set(
    TABLES
  )


@pytest.mark.parametrize('table_id', TABLES)
def test_declarations_are_whole(table_id):
  table = table_rows.load_table(table_id)
  assert table.id == table_id
  names = [row.name for row in table.rows]
  assert len({table_rows.slug(name) for name in names}) == len(names)
  columns = [column.name for column in table.columns]
  assert len(set(columns)) == len(columns)
  assert not any(',' in name for name in columns)  # --only splits at them
  assert set(table.repeated) <= set(names)
  assert len(table.train_sizes) in (0, len(columns))
  for row in table.rows:
    assert len(row.values) == len(columns), row.name
    assert set(row.increase) <= set(names)
    ways = bool(row.family), bool(row.missing), bool(row.increase)
    assert any(ways) == row.run, row.name
    assert bool(row.needs) == bool(row.family), row.name
  for column in table.columns:
    assert not (column.parts and column.missing), column.name
    for part in column.parts:
      assert part.metrics
      if part.task == base.PRETRAINING:
        continue
      for metric in part.metrics:
        split, _, name = metric.partition('/')
        assert split in SPLITS[part.task], metric
        assert name in METRICS, metric


@pytest.mark.parametrize('table_id', TABLES)
def test_every_cell_of_ours_has_a_recipe_or_a_reason(table_id, tmp_path):
  table = table_rows.load_table(table_id)
  (tmp_path / 'results.json').write_text(
    '{"metrics": {"eval/perplexity": 9.0, "eval/mlm_perplexity": 9.0,'
    ' "eval/forward_perplexity": 9.0, "eval/backward_perplexity": 9.0}}'
  )
  rows = [row for row in table.rows if row.family]
  weights = {row.name: str(tmp_path / row.family / '..') for row in rows}
  for row in rows:
    (tmp_path / row.family).mkdir(exist_ok=True)
  family = {str(tmp_path / row.family / '..'): row.family for row in rows}
  cells = cells_of(table, weights, family)
  expected = {
    (row.name, column.name)
    for row in table.rows
    for column in table.columns
    if row.run
    and not row.increase
    and (column.parts or column.missing)
    and column.family in ('', row.family)
  }
  assert {(cell.line.name, cell.column.name) for cell in cells} == expected
  for cell in cells:
    if cell.reason:
      # With weights and data, only what no one can give is missing.
      assert cell.reason in (cell.line.row.missing, cell.column.missing)
      continue
    assert cell.runs
    for run in cell.runs:
      assert run.num_seeds >= 1
      assert run.line.weights is not None
  # Two runs of one folder are one run.
  runs = {}
  for cell in cells:
    for run in cell.runs:
      same = runs.setdefault(run.folder, run)
      assert same.key == run.key
      assert same.overrides == run.overrides


@pytest.mark.parametrize('table_id', TABLES)
def test_without_weights_every_cell_says_what_it_needs(table_id):
  table = table_rows.load_table(table_id)
  cells = cells_of(table, {}, {})
  assert all(cell.reason for cell in cells)
  for cell in cells:
    if cell.line.row.family and not cell.column.missing:
      assert f"--weights '{cell.line.name}=" in cell.reason


@pytest.mark.parametrize('table_id', ['bert/glue', 'gpt/ablation'])
def test_published_averages_are_those_of_the_columns(table_id):
  # The same columns are averaged as were by the paper.
  table = table_rows.load_table(table_id)
  names = [column.name for column in table.columns]
  average = names.index('average')
  parts = table.columns[average].parts
  singles = [column for column in table.columns if column.name != 'average']
  assert parts == tuple(part for column in singles for part in column.parts)
  for row in table.rows:
    others = [v for i, v in enumerate(row.values) if i != average]
    mean = math.fsum(others) / len(others)
    # The columns are rounded, and so is the average.
    assert abs(mean - row.values[average]) <= 0.07, row.name


def test_weights_are_of_a_row_or_of_ones_own(tmp_path):
  glue = table_rows.load_table('bert/glue')
  named = table_rows.name_weights(
    glue, ['BERT-Base=a/b', 'models/MiniLM/', 'mine=c', 'google-bert/bert-x']
  )
  assert named == {
    'BERT-Base': 'a/b',
    'MiniLM': 'models/MiniLM/',
    'mine': 'c',
    'bert-x': 'google-bert/bert-x',
  }
  # A path may have an equals sign where it is there.
  folder = tmp_path / 'lr=1'
  folder.mkdir()
  named = table_rows.name_weights(glue, [str(folder)])
  assert named == {'lr=1': str(folder)}
  # And a row's name: the longest that fits.
  layers = table_rows.load_table('bert/masking')
  assert table_rows.name_weights(layers, ['80 / 10 / 10=x']) == {
    '80 / 10 / 10': 'x'
  }


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    (['bert-base=a'], "the row is called 'BERT-Base'"),
    (['Pre-OpenAI SOTA=a'], 'is quoted'),
    (['BiLSTM+ELMo+Attn=a'], "ELMo's task models"),
    (['a/mine', 'b/mine'], 'two of the name'),
    (['mine='], 'expected WEIGHTS or NAME=WEIGHTS'),
  ],
)
def test_weights_that_make_no_sense_are_refused(given, message):
  glue = table_rows.load_table('bert/glue')
  with pytest.raises(ValueError, match=message):
    table_rows.name_weights(glue, given)


def test_an_unknown_table_names_those_there_are():
  with pytest.raises(ValueError, match='--table bert/gleu: .*bert/glue'):
    table_rows.load_table('bert/gleu')


def test_ones_own_rows_stand_below_their_family():
  glue = table_rows.load_table('bert/glue')
  cells = cells_of(glue, {'mine': 'm', 'other': 'g'}, {'m': 'bert', 'g': 'gpt'})
  names = list(dict.fromkeys(cell.line.name for cell in cells))
  assert names == [
    'BiLSTM+ELMo+Attn',
    'OpenAI GPT',
    'other',
    'BERT-Base',
    'BERT-Large',
    'mine',
  ]


def test_ones_own_weights_repeat_the_rows_of_an_ablation():
  table = table_rows.load_table('bert/feature_based')
  cells = cells_of(table, {'mine': 'm'}, {'m': 'bert'})
  own = {cell.line.name: cell.runs[0] for cell in cells if not cell.reason}
  assert len(own) == 7
  everything = own['mine: Fine-tune all']
  assert everything.config == 'transfer:task=conll2003'
  assert 'task.features' not in everything.overrides
  last = own['mine: Sum last four hidden']
  assert last.config == 'transfer:task=conll2003,recipe=frozen'
  assert last.overrides == {
    'init.weights': 'm',
    'data.source': 'sets',
    'task.features': 'sum_last_4',
  }


def test_gpt_has_its_recipe_and_may_be_untrained():
  table = table_rows.load_table('gpt/ablation')
  names = 'Transformer w/ aux LM (full)', 'Transformer w/o pre-training'
  cells = cells_of(table, dict.fromkeys(names, 'g'), {'g': 'gpt'})
  trained, untrained = (
    next(
      cell.runs[0]
      for cell in cells
      if (cell.line.name, cell.column.name) == (name, 'cola/matthews')
    )
    for name in names
  )
  assert trained.config == 'transfer:task=cola,recipe=gpt'
  assert trained.overrides['init.weights'] == 'g'
  assert untrained.config == 'transfer:task=cola,recipe=gpt,model=gpt'
  assert 'init.weights' not in untrained.overrides
  assert untrained.overrides['data.tokenizer'] == 'g'
  # It answers no questions by spans.
  squad = table_rows.load_table('bert/squad')
  cells = cells_of(squad, {'mine': 'g'}, {'g': 'gpt'})
  (reason,) = {cell.reason for cell in cells if cell.line.is_own} - {
    base.TEST_IS_HIDDEN
  }
  assert reason == 'needs a BERT, which alone answers squad1'


def test_glue_may_be_a_folder_among_others():
  table = table_rows.load_table('gpt/nli')

  def has_split(task, data, split):
    return data == ('sets' if task == 'scitail' else 'sets/GLUE')

  cells = cells_of(table, {'mine': 'b'}, {'b': 'bert'}, has_split=has_split)
  sources = {
    cell.column.name: cell.runs[0].overrides['data.source']
    for cell in cells
    if not cell.reason
  }
  assert sources['scitail/accuracy'] == 'sets'
  assert sources['rte/accuracy'] == 'sets/GLUE'


def test_reasons_name_data_and_families():
  glue = table_rows.load_table('bert/glue')

  def without_mnli(task, data, split):
    return task != 'mnli' and (task, split) != ('qnli', 'train')

  cells = cells_of(
    glue,
    {'BERT-Base': 'b', 'BERT-Large': 'g'},
    {'b': 'bert', 'g': 'gpt'},
    has_split=without_mnli,
  )
  reasons = {(cell.line.name, cell.column.name): cell.reason for cell in cells}
  assert not reasons['BERT-Base', 'mrpc/f1']
  assert reasons['BERT-Base', 'qnli/accuracy'] == (
    'needs qnli (train), which sets has not'
  )
  average = reasons['BERT-Base', 'average']
  assert 'mnli (train, dev_mismatched)' in average
  assert 'qnli (train)' in average
  assert 'family bert, and g holds a gpt' in reasons['BERT-Large', 'mrpc/f1']
  (cell, *_) = cells_of(glue, {'m': 'b'}, {'b': 'bert'}, data=None)[-10:]
  assert cell.reason == 'needs --data DIR'


def test_settings_that_the_paper_chose_are_in_the_commands():
  glue = table_rows.load_table('bert/glue')
  weights = {'BERT-Base': 'b', 'OpenAI GPT': 'g'}
  cells = cells_of(glue, weights, {'b': 'bert', 'g': 'gpt'})
  commands = {
    cell.line.name: cell.runs[0].command for cell in cells if not cell.reason
  }
  rates = '--grid optim.learning_rate=5e-05,4e-05,3e-05,2e-05 --seeds 5'
  assert rates in commands['BERT-Base']
  assert '--grid' not in commands['OpenAI GPT']
  ner = table_rows.load_table('bert/ner')
  (run, _) = (
    cell.runs[0]
    for cell in cells_of(ner, {'BERT-Base': 'b'}, {'b': 'bert'})
    if not cell.reason
  )
  assert run.grid == base.PAPER_GRID
  words = shlex.split(run.command)
  grid = sweep.parse_grid(words[words.index('--grid') + 1])
  assert grid == sweep.parse_grid('paper')
  for key, values in grid.items():
    for value in values:
      resolved = settings.flatten(table_plan.resolve(run)) | {key: value}
      assert type(resolved[key]) is type(value)
  # What is read from the frozen encoder was not among the choices.
  frozen = table_rows.load_table('bert/feature_based')
  cells = cells_of(frozen, {'mine': 'b'}, {'b': 'bert'})
  assert not any(run.grid for cell in cells for run in cell.runs)


@pytest.mark.parametrize('table_id', TABLES)
def test_what_tables_tell_and_try_are_keys(table_id):
  table = table_rows.load_table(table_id)
  known = settings.flatten(settings.load_config('transfer:task=mrpc'))
  keys = {key for grid in table.grids.values() for key in grid}
  assert keys <= set(table.tells) <= set(known)


def test_committed_figures_are_of_the_configs_that_are_here():
  table = table_rows.load_table('sesame/transfer')
  root = epath.Path(table_rows.__file__).parents[2]
  folder = root / 'results' / 'tables' / 'sesame_transfer' / 'MiniLM'
  cells = cells_of(table, {'MiniLM': 'm'}, {'m': 'bert'})
  runs = {run.part.task: run for cell in cells for run in cell.runs}
  for task, run in runs.items():
    summary = table_figures.read_summary(folder / task / 'summary.json')
    # Where weights and data lay, and what they were run on, is their own.
    run = dataclasses.replace(
      run, overrides=run.overrides | {'init.weights': None, 'data.source': None}
    )
    wanted = settings.flatten(table_plan.resolve(run))
    assert not table_figures.changed_keys(run, summary, wanted), task
    assert summary['config']['train.select'] == wanted['train.select'] == 'last'


@pytest.mark.parametrize(
  ('table_id', 'known'),
  [
    ('bert/glue', ['MRPC', 'SST-2', 'STS-B']),
    ('bert/squad_v2_leaderboard', []),
  ],
)
def test_test_sets_are_called_public_where_they_are(table_id, known):
  table = table_rows.load_table(table_id)
  page = table_rendering.lay_out(table, [], {}, {})
  notes = dict(page.lists)['Notes']
  assert notes[0].startswith('† Ours is of the dev set')
  public = [note.partition("'s")[0] for note in notes if 'public' in note]
  assert sorted(public) == known
  # MRPC's reader has them from the file that the note names.
  assert all(
    name in str(registry.find('mrpc').files['test'])
    for name in re.findall(r'msr\w+\.txt', ' '.join(notes))
  )
