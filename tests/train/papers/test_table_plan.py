"""Runs of cells: each cell has a recipe, or a reason against it."""

import shlex

import pytest
from fake_tables import cells_of

from configs.tables import base
from train.papers import table_plan, table_rows
from train.run import settings
from train.transfer import sweep

TABLES = table_rows.shipped_tables()


# Rows of sesame/elmo without the larger models, and the tasks of these.
SMALL = ('Drawn vectors', 'GloVe + ELMo at both')
LARGE = ('srl_ewt/', 'coref_gum/', 'squad1/')


@pytest.mark.parametrize('table_id', TABLES)
def test_every_cell_of_ours_has_a_recipe_or_a_reason(table_id, tmp_path):
  table = table_rows.load_table(table_id)
  (tmp_path / 'results.json').write_text(
    '{"metrics": {"eval/perplexity": 9.0, "eval/mlm_perplexity": 9.0,'
    ' "eval/forward_perplexity": 9.0, "eval/backward_perplexity": 9.0}}'
  )
  rows = [row for row in table.rows if row.family not in ('', base.NO_WEIGHTS)]
  weights = {row.name: str(tmp_path / row.family / '..') for row in rows}
  for row in rows:
    (tmp_path / row.family).mkdir(exist_ok=True)
  family = {str(tmp_path / row.family / '..'): row.family for row in rows}
  cells = cells_of(
    table, weights, family, overrides={'task.word_vectors': 'glove.txt'}
  )
  expected = {
    (row.name, column.name)
    for row in table.rows
    for column in table.columns
    if (row.family or row.missing)
    and (column.parts or column.missing)
    and column.family in ('', row.family)
    # The published ESIM of gpt/nli was run on SNLI alone.
    and (row.name, 'snli' in column.name) != ('ESIM + ELMo (5x)', False)
    and not (row.name in SMALL and column.name.startswith(LARGE))
  }
  assert {(cell.line.name, cell.column.name) for cell in cells} == expected
  for cell in cells:
    if cell.reason:
      # With weights and data, only what no one can give is missing.
      missing = {cell.line.row.missing, cell.column.missing}
      assert cell.reason in missing
      continue
    assert cell.runs
    for run in cell.runs:
      assert run.num_seeds >= 1
      is_drawn = cell.line.family == base.NO_WEIGHTS
      assert (run.line.weights is None) == is_drawn
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
  for cell in cells:
    row = cell.line.row
    assert bool(cell.reason) == (row.family != base.NO_WEIGHTS)
    if row.family and cell.reason and not cell.column.missing:
      assert f"--weights '{row.name}=" in cell.reason


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
  assert everything.config == 'transfer:task=conll2003,recipe=bert'
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


def test_one_run_scores_all_languages():
  table = table_rows.load_table('multilingual/xnli')
  name = 'BERT zero shot, cased'
  cells = [
    cell
    for cell in cells_of(table, {name: 'm'}, {'m': 'bert'})
    if cell.line.name == name
  ]
  assert len(cells) == len(table.columns) and not any(c.reason for c in cells)
  assert len({cell.runs[0].folder for cell in cells}) == 1
  metrics = [cell.runs[0].part.metrics for cell in cells]
  assert metrics[:2] == [('test/accuracy',), ('test@zh/accuracy',)]
  config = table_plan.resolve(cells[0].runs[0])
  # google-research/bert, multilingual.md.
  optim, train, task = config.optim, config.train, config.task
  assert (optim.learning_rate, train.global_batch) == (5e-5, 32)
  assert (train.num_epochs, task.max_length) == (2.0, 128)
  assert task.test_languages == ('zh', 'es', 'de', 'ar', 'ur')


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
  assert (
    'family bert, and g is of the family gpt'
    in (reasons['BERT-Large', 'mrpc/f1'])
  )
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
