"""Tables that pre-train their rows: what is run, arguments and intervals."""

import dataclasses
import json
import math
import os
import re
import shlex
import signal
import time

import numpy as np
import pytest
from etils import epath
from fake_tables import spoil
from scipy import stats

from configs import ablation
from configs.tables import base, small
from configs.tables.base import Contrast
from configs.tables.small_bert_sizes import PERPLEXITY
from data.store import build
from data.tasks import registry
from data.text import languages
from train.host import processes
from train.papers import (
  contrasts,
  small_hours,
  small_table,
  table_plan,
  table_rows,
  tables,
)
from train.pretrain import job
from train.run import settings, training, workdirs
from train.run.training_phases import Phase
from train.transfer import assemble

SMALL = [
  name
  for name in table_rows.shipped_tables()
  if table_rows.load_table(name).maker == 'small_table'
]
# Row -> the score of each pre-training.
SCORES = {'full': (0.80, 0.84), 'less': (0.70, 0.72), 'none': (0.71, 0.69)}
TABLE = base.Table(
  id='small/bert_tasks',
  title='Made up',
  source='nobody',
  columns=(small.SST2, small.BLIMP),
  maker='small_table',
  seeds=3,
  contrasts=(
    Contrast('More is better', 'full', 'less'),
    Contrast('Something is better', 'none', 'less'),
    Contrast('Nothing is better', 'none', 'full'),
  ),
  rows=(
    small.row('full', (92.0, ''), 'ablation:bert'),
    small.row('less', (90.5, ''), 'ablation:bert,no_nsp'),
    small.row('none', ('', ''), 'ablation:bert,untrained'),
  ),
)


def folder_of(name, seed):
  config = settings.load_config(name)
  return f'{config.model.name}_{small_table._digest(config)}_seed_{seed}'


def row_and_seed(run):
  row, seed = re.fullmatch(r'(.+) \(\w+\), seed (\d)', run.line.name).groups()
  return row, int(seed)


FIRST = folder_of('ablation:bert', 0)


@pytest.fixture
def done():
  return []


@pytest.fixture
def make(tmp_path, monkeypatch, done):
  """Returns a function that makes the table, its long parts being made up."""
  for name in ('novels', 'wikitext-2', 'blimp'):
    (tmp_path / 'sets' / name).mkdir(parents=True)

  def pretrain(run, text):
    sets = tmp_path / 'sets'
    assert languages.paths(text) == [
      f'{sets}/novels/*.txt',
      f'{sets}/wikitext-2/wiki.train.tokens',
    ]
    done.append(('pretrain', run.config, run.seed))
    run.folder.mkdir(parents=True)
    found = {'steps': 10, 'seconds': 60.0, 'metrics': {'eval/perplexity': 9.0}}
    found |= {'device': 'a cpu', 'revision': 'abc'}
    (run.folder / 'results.json').write_text(json.dumps(found))

  def ask(workdir, pairs):
    assert (workdir / 'results.json').exists()
    assert pairs == tmp_path / 'sets/blimp'
    done.append(('ask', workdir.name))
    return {'runs': [{'seed': 0, 'metrics': {'blimp': 0.5}}]}

  def score(run, objective):
    done.append(('score', run.config, run.seed))
    return {'runs': [{'seed': 0, 'metrics': {objective: 7.0 + run.seed}}]}

  def tune(run):
    row, seed = row_and_seed(run)
    done.append(('tune', row, seed))
    mean = SCORES[row][seed]
    run.folder.mkdir(parents=True, exist_ok=True)
    runs = [
      {
        'seed': i,
        'settings': {},
        'metrics': {'dev/accuracy': mean + each},
        'main': mean,
        'seconds': 30.0,
      }
      for i, each in enumerate((-0.01, 0.0, 0.01))
    ]
    found = {'runs': runs, 'device': 'a cpu', 'revision': 'abc'}
    found['config'] = settings.flatten(table_plan.resolve(run))
    run.summary.write_text(json.dumps(found))

  monkeypatch.setattr(
    small_table,
    'WORK',
    small_table.Work(
      pretrain, ask, score, tables.Engine(tune, has_split=lambda *_: True)
    ),
  )

  def make(table=TABLE, **options):
    options = {'data': str(tmp_path / 'sets')} | options
    return small_table.make(table, tmp_path / 'out', **options)

  return make


def test_all_is_run_once_and_shared(make, done, tmp_path):
  assert make()
  kinds = [each[0] for each in done]
  assert (kinds.count('pretrain'), kinds.count('tune')) == (6, 6)
  seeds = [seed for kind, _, *seed in done if kind == 'pretrain']
  assert seeds == [[0]] * 3 + [[1]] * 3
  assert kinds.count('ask') == 6
  done.clear()
  assert make()
  assert not done
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert '| full (ours) | 82.0 ± 2.4 | 50.0 ± 0.0 |' in page
  assert (tmp_path / 'out/small_bert_tasks.png').exists()
  made = (
    '- Made by python -m train.tables --table small/bert_tasks --data DATA;'
  )
  assert made in page
  # How they were made: three fine-tunings of 30 s.
  assert '| ablation:bert | 1 | 10 | 9.0 | 60 | a cpu | abc |' in page
  assert '| full | 1 | 3 | 0 | 90 | a cpu | abc |' in page
  found = json.loads((tmp_path / 'out/small_bert_tasks.json').read_text())
  pretraining = found['pretrainings'][0]
  assert pretraining['command'].startswith('python -m train.main --config abl')
  assert (pretraining['seconds'], pretraining['device']) == (60, 'a cpu')
  assert len(found['fine_tunings']) == 6
  tuning = found['fine_tunings'][0]
  assert tuning.pop('command').startswith('python -m train.sweep --config tra')
  assert tuning == {
    'row': 'full',
    'seed_of_pretraining': 0,
    'task': 'sst2',
    'seeds': 3,
    'diverged': 0,
    'seconds': 90.0,
    'device': 'a cpu',
    'revision': 'abc',
  }
  assert 'was run with' not in page


def test_the_arguments_are_read_again(make, tmp_path):
  make()
  found = small_table.read_differences(TABLE, epath.Path(tmp_path) / 'out')
  page = json.loads((tmp_path / 'out/small_bert_tasks.json').read_text())
  assert [(each.mean, each.low, each.verdict) for each in found] == [
    (each['difference'], each['low'], each['verdict'])
    for each in page['differences']
  ]


def test_models_are_scored_by_one_objective(make, done, tmp_path):
  columns = (*TABLE.columns, PERPLEXITY)
  rows = tuple(
    dataclasses.replace(row, values=(*row.values, '')) for row in TABLE.rows
  )
  table = dataclasses.replace(TABLE, columns=columns, rows=rows)
  make(table, only=['mlm/ppl'])
  assert [each[0] for each in done].count('score') == 6
  assert 'tune' not in {each[0] for each in done}
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert '| full (ours) |  |  | 7.5 ± 0.7 |' in page
  assert '+10 stands for one lower by 9.5 %' in page


@pytest.mark.slow
def test_a_score_by_its_own_objective_is_that_of_the_run(
  small_store, tmp_path, monkeypatch
):
  """One of next sentences has the perplexity of rows without them, too."""
  found = {}
  for words in ('bert,no_nsp', 'bert'):
    run = small_table.Pretraining(
      f'ablation:{words}',
      {
        'train.phases': ((3, 32, 8, 'continue'),),
        'model.max_length': 32,
        'eval.max_windows': 8,
        'train.platform': 'cpu',
      },
      0,
      tmp_path / words,
      epath.Path(small_store),
    )
    config = run.resolve()
    training.train(job.make(config, run.folder), run.folder, began=time.time())
    (scored,) = small_table.score(run, 'mlm')['runs']
    found[words] = scored['metrics']['mlm'], run.results['metrics']
  ours, metrics = found['bert,no_nsp']
  assert ours == pytest.approx(metrics['eval/mlm_perplexity'], rel=1e-6)
  ours, metrics = found['bert']
  assert ours != pytest.approx(metrics['eval/mlm_perplexity'], rel=1e-6)


@pytest.mark.slow
def test_a_gpt_in_packed_rows_is_scored_on_the_windows_of_others(tmp_path):
  store = tmp_path / 'store'
  build.ensure_store('manual', 'train:bpe:500', store, progress=False)
  changes = {
    'data.tokenizer': 'train:bpe:500',
    'train.phases': ((3, 32, 8, 'continue'),),
    'model.max_length': 32,
    'eval.max_windows': 1_000_000,
    'optim.warmup_steps': 1,
    'train.platform': 'cpu',
  }
  run = small_table.Pretraining(
    'gpt_tiny:modern', changes, 0, tmp_path / 'run', epath.Path(store)
  )
  training.train(job.make(run.resolve(), run.folder), run.folder, began=0.0)
  (scored,) = small_table.score(run, 'lm')['runs']
  expected = run.results['metrics']['eval/perplexity']
  assert scored['metrics']['lm'] == pytest.approx(expected, rel=1e-5)


def test_a_pre_training_is_judged_before_the_next(make, done, tmp_path):
  def of_first(each):
    kind, name, *seed = each
    return name in ('ablation:bert', 'full', FIRST) and (seed in ([], [0]))

  make()
  first = [i for i, each in enumerate(done) if of_first(each)]
  later = [i for i, each in enumerate(done) if each[0] == 'pretrain'][1:]
  assert len(first) == 3 and max(first) < min(later)
  # Tables share pre-trainings.
  assert (tmp_path / f'out/pretraining/{FIRST}').is_dir()


def test_it_goes_on_where_it_was_stopped(make, done, tmp_path):
  make(only=['less'])
  assert {each[1] for each in done if each[0] == 'tune'} == {'less'}
  assert [each for each in done if each[0] == 'pretrain'] == [
    ('pretrain', 'ablation:bert,no_nsp', seed) for seed in (0, 1)
  ]
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert '- full (sst2/accuracy): has not been run\n' in page
  done.clear()
  make()
  assert not [each for each in done if 'less' in each or 'no_nsp' in each]


def test_the_others_go_on_where_a_pre_training_diverges(
  make, done, tmp_path, monkeypatch
):
  work = small_table.WORK

  def pretrain(run, text):
    if run.config == 'ablation:bert,no_nsp' and run.seed:
      raise FloatingPointError(
        'the loss was not finite in step 7.\nSo it ends.'
      )
    work.pretrain(run, text)

  monkeypatch.setattr(small_table, 'WORK', work._replace(pretrain=pretrain))
  assert not make()
  tuned = {each[1:] for each in done if each[0] == 'tune'}
  assert ('less', 1) not in tuned and ('none', 1) in tuned and len(tuned) == 5
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert (
    '- ablation:bert,no_nsp, pre-training, seed 1: failed: the loss was not'
    ' finite in step 7.\n'
  ) in page
  told = 'diverged: the loss was not finite in step 7.'
  assert f'| ablation:bert,no_nsp | 1 | {told} |' in page
  found = json.loads((tmp_path / 'out/small_bert_tasks.json').read_text())
  (lost,) = [each for each in found['pretrainings'] if 'diverged' in each]
  assert 'ablation:bert,no_nsp' in lost['command'] and lost['seed'] == 1
  # It is told later, too, and tried again only if that is asked for.
  tried = [each for each in done if each[0] == 'pretrain']
  make()
  assert [each for each in done if each[0] == 'pretrain'] == tried
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert 'pre-training, seed 1: failed: the loss was not' in page
  monkeypatch.setattr(small_table, 'WORK', work)
  make(rerun=True)
  assert ('pretrain', 'ablation:bert,no_nsp', 1) in done
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert 'failed' not in page


def test_diverged_fine_tunings_stay_in_the_table(
  make, done, tmp_path, monkeypatch
):
  work = small_table.WORK
  lost = {('less', 1): (2,), ('none', 0): (0, 1, 2)}

  def tune(run):
    work.engine.run(run)
    spoil(run, lost.get(row_and_seed(run), ()))

  engine = work.engine._replace(run=tune)
  monkeypatch.setattr(small_table, 'WORK', work._replace(engine=engine))
  for _ in range(2):
    make()
    page = (tmp_path / 'out/small_bert_tasks.md').read_text()
    told = 'sst2: fine-tuning by seed {} diverged: not finite; --rerun runs it'
    less = folder_of('ablation:bert,no_nsp', 1).replace('_seed_', '), seed ')
    none = folder_of('ablation:bert,untrained', 0).replace('_seed_', '), seed ')
    assert f'- less ({less}, {told.format("2")} again\n' in page
    assert f'- none ({none}, {told.format("0, 1, 2")} again\n' in page
    assert '| less | 1 | 2 | 1 | 60 | a cpu | abc |' in page
    assert '- none (sst2/accuracy): diverged\n' in page
    # Of 69, 70 and 71 (seed 0), and of 71 and 72 (seed 1).
    assert '| less (ours) | 70.6 ± 1.1 |' in page
    assert len([each for each in done if each[0] == 'tune']) == 6
  lost.clear()
  make(rerun=True)
  assert len([each for each in done if each[0] == 'tune']) == 8
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert 'diverged: ' not in page


def test_the_others_go_on_where_a_score_fails(
  make, done, tmp_path, monkeypatch
):
  work = small_table.WORK

  def ask(workdir, pairs):
    if workdir.name == FIRST:
      done.append(('failed', FIRST))
      raise ValueError('pairs.jsonl, line 3: has no good sentence\nat all')
    return work.ask(workdir, pairs)

  monkeypatch.setattr(small_table, 'WORK', work._replace(ask=ask))
  assert not make()
  kinds = [each[0] for each in done]
  assert (kinds.count('tune'), kinds.count('ask')) == (6, 5)
  assert kinds.count('failed') == 1
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert (
    '- ablation:bert, blimp, seed 0: failed: pairs.jsonl, line 3: has no good'
    ' sentence\n'
  ) in page
  monkeypatch.setattr(small_table, 'WORK', work)
  assert make()
  assert done[-1] == ('ask', FIRST)


def test_rows_of_one_pre_training_have_its_answers_once(make, done, tmp_path):
  """The second row's BiLSTM, above the pre-training, answers no pairs."""
  bilstm = small.row(
    'less', (1.0, ''), 'ablation:bert', overrides={'task.bilstm_layers': 2}
  )
  full, _, none = TABLE.rows
  table = dataclasses.replace(TABLE, rows=(full, bilstm, none))
  assert make(table)
  assert len([each for each in done if each[0] == 'ask']) == 4
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert '| less (ours) | 71.0 ± 1.4 |  |' in page
  found = json.loads((tmp_path / 'out/small_bert_tasks.json').read_text())
  judged = [
    each['argument']
    for each in found['differences']
    if each['column'] == 'blimp'
  ]
  assert judged == ['Nothing is better']


def test_a_quoted_row_stands_beside_ours(make, done, tmp_path):
  quoted = base.Row('A', (90.0, '')), base.Row('B', (88.5, ''))
  table = dataclasses.replace(
    TABLE,
    rows=(*quoted, *TABLE.rows),
    contrasts=(Contrast('More is better', 'full', 'less', ('A', 'B')),),
  )
  assert make(table)
  assert len([each for each in done if each[0] == 'pretrain']) == 6
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert '| A | 90.0 |  |\n' in page and 'A (ours)' not in page
  assert '| More is better | sst2/accuracy | +1.5 | +11.0 |' in page
  with pytest.raises(ValueError, match='--only A: there is no such cell'):
    make(table, only=['A'])


def test_published_figures_stand_beside_ours():
  table = table_rows.load_table('small/bert_sizes')
  values = {
    (row.name, column.name): contrasts.Value(((2.0,), (3.0,)))
    for row in table.rows
    if row.pretraining
    for column in table.columns
  }
  found = {
    (each.contrast.better, each.contrast.worse, each.column): each.published
    for each in contrasts.find_differences(table, values)
  }
  of_layers = 'L4 H128', 'L2 H128'
  assert found[*of_layers, 'sst2/accuracy'] == pytest.approx(91.3 - 88.4)
  assert found[*of_layers, 'mrpc/accuracy'] == pytest.approx(84.8 - 79.8)
  ratio = 100 * math.log(5.84 / 4.68)
  assert found[*of_layers, 'mlm/ppl'] == pytest.approx(ratio)
  assert found[*of_layers, 'blimp'] is None
  of_width = 'L2 H256', 'L2 H128', 'mrpc/accuracy'
  assert found[of_width] == pytest.approx(86.9 - 86.7)


def test_gpts_figures_stand_beside_ours_of_the_same_measure():
  published = table_rows.load_table('gpt/ablation')
  ours = table_rows.load_table('small/gpt_ablation')
  names = [column.name for column in ours.columns]
  assert names[:4] == [
    'sst2/accuracy',
    'mrpc/f1',
    'stsb/pearson',
    'cola/matthews',
  ]
  theirs = {row.name: row for row in published.rows}
  for row in ours.rows:
    if row.name in theirs:
      figures = dict(
        zip(
          [column.name for column in published.columns],
          theirs[row.name].values,
          strict=True,
        )
      )
      assert row.values[:4] == tuple(figures[name] for name in names[:4])
  for column in ours.columns[:4]:
    (metric,) = column.parts[0].metrics
    task = registry.find(column.parts[0].task)
    assert metric.removeprefix('dev/') in task.metrics
  # The argument is what the paper's own figures say.
  values = {
    (row.name, column.name): contrasts.Value(((2.0,), (3.0,)))
    for row in ours.rows
    for column in ours.columns
  }
  for each in contrasts.find_differences(ours, values):
    if 'auxiliary' in each.contrast.claim and each.column in names[:4]:
      assert each.published > 0


def test_another_pre_training_does_not_keep_the_old_scores(
  make, done, tmp_path
):
  make()
  done.clear()
  first = dataclasses.replace(TABLE.rows[0], changes={'train.steps': 9})
  longer = dataclasses.replace(TABLE, rows=(first, *TABLE.rows[1:]))
  make(longer, run=False)
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert '| full (ours)' not in page
  assert '- full (sst2/accuracy): has not been run\n' in page
  assert '--rerun' not in page
  assert not done
  make(longer)
  assert [each for each in done if each[0] != 'ask'] == [
    ('pretrain', 'ablation:bert', 0),
    ('tune', 'full', 0),
    ('pretrain', 'ablation:bert', 1),
    ('tune', 'full', 1),
  ]
  make()  # the old ones are still there
  assert (
    '| full (ours) | 8' in (tmp_path / 'out/small_bert_tasks.md').read_text()
  )


def test_two_processes_share_the_work(make, done, tmp_path, monkeypatch):
  work = small_table.WORK

  def pretrain(run, text):
    if run.config == 'ablation:bert':
      raise workdirs.BusyError('another process trains in it')
    work.pretrain(run, text)

  monkeypatch.setattr(small_table, 'WORK', work._replace(pretrain=pretrain))
  assert not make()
  assert {each[1] for each in done if each[0] == 'tune'} == {'less', 'none'}
  page = (tmp_path / 'out/small_bert_tasks.md').read_text()
  assert 'seed 0: failed: another process trains it; ask again' in page
  monkeypatch.setattr(small_table, 'WORK', work)
  assert make()


def test_equal_configs_share_a_pre_training(tmp_path):
  sizes = table_rows.load_table('small/bert_sizes')
  masking = table_rows.load_table('small/bert_masking')
  folders = [
    {
      line.pretraining.folder.name
      for line in small_table.SmallTable(
        table, tmp_path, None, None, small_table.WORK
      ).lines.values()
    }
    for table in (sizes, masking)
  ]
  assert FIRST in folders[0] & folders[1]
  assert [len(each) for each in folders] == [8, 12]


def test_some_cells_are_run_alone(make, done):
  make(only=['full,sst2/accuracy', 'none,blimp'])
  assert {each[1] for each in done if each[0] == 'tune'} == {'full'}
  assert {each[1] for each in done if each[0] == 'ask'} == {
    folder_of('ablation:bert,untrained', 0),
    folder_of('ablation:bert,untrained', 1),
  }


def test_intervals_are_those_of_a_pooled_deviation(make, tmp_path):
  make()
  found = json.loads((tmp_path / 'out/small_bert_tasks.json').read_text())
  rows = {
    each['argument']: each
    for each in found['differences']
    if each['column'] == 'sst2/accuracy'
  }
  # Of two trained rows with two pre-trainings each: 2 degrees of freedom.
  trained = SCORES['full'], SCORES['less']
  pooled = np.mean([np.var(each, ddof=1) for each in trained])
  bound = stats.t.ppf(0.975, 2) * math.sqrt(pooled) * 100
  more = rows['More is better']
  assert more['difference'] == pytest.approx(11.0)
  assert more['published'] == pytest.approx(1.5)
  assert more['high'] - more['difference'] == pytest.approx(bound)
  assert more['difference'] - more['low'] == pytest.approx(bound)
  verdicts = {name: each['verdict'] for name, each in rows.items()}
  assert verdicts == {
    'More is better': 'holds',
    'Something is better': 'does not show',
    'Nothing is better': 'reversed',
  }


def test_a_dry_run_prints_commands_and_hours(make, done, capsys):
  make(only=['less'])
  capsys.readouterr()
  done.clear()
  assert make(dry_run=True)
  assert not done
  out, err = capsys.readouterr()
  lines = out.splitlines()
  assert sum('-m train.main --config ablation:bert' in x for x in lines) == 4
  assert lines[0].startswith('python -m data.prepare --source ')
  assert '/novels/*.txt' in lines[0] and lines[0].split()[-1] in lines[1]
  assert sum('-m train.sweep' in each for each in lines) == 4
  assert sum('-m train.minimal_pairs' in each for each in lines) == 4
  assert '16,002 steps in all and 12 fine-tunings' in err
  assert 'hours, by the runs that are finished.' in err


def test_pre_trainings_of_another_text_are_others(make, capsys):
  make()
  capsys.readouterr()
  assert make(dataclasses.replace(TABLE, texts=('novels',)), dry_run=True)
  prepared, *trained = capsys.readouterr().out.splitlines()[:7]
  (source,) = languages.paths(prepared.split("'")[1])
  assert source.endswith('sets/novels/*.txt')
  store = prepared.split()[-1]
  assert store.endswith('/store_novels_train_wordpiece_8000_cased')
  assert all(f'--config.data.folder={store} ' in each for each in trained)
  assert all('/pretraining/bert_novels_' in each for each in trained)


def hours_of(make, capsys, **options):
  capsys.readouterr()
  make(dry_run=True, **options)
  return float(re.search(r'About ([\d.]+) hours', capsys.readouterr().err)[1])


def test_a_dry_run_guesses_hours_before_the_first_run(make, capsys):
  jobs = []
  for row in TABLE.rows:
    config = settings.load_config(row.pretraining)
    jobs += [small_hours.of_pretraining(config)] * 2
    jobs += [small_hours.of_pairs(config, small_table.PAIRS_LIMIT)] * 2
    tuning = settings.with_overrides(
      settings.load_config('transfer:task=sst2'), small.RECIPE
    )
    jobs += [small_hours.of_tuning(tuning, config, 8_000)] * 2 * 3
  hours = sum(job.seconds for job in jobs) / 3600
  assert hours_of(make, capsys) == pytest.approx(hours, abs=0.05)
  assert 1 < hours < 3


def test_finished_runs_correct_the_hours_and_count_once(make, capsys):
  """Two rows share a pre-training, which took 60 s in place of 900."""
  full, less, none = TABLE.rows
  same = dataclasses.replace(less, pretraining=full.pretraining)
  table = dataclasses.replace(TABLE, rows=(full, same, none))
  make(table, only=['full'])
  job = small_hours.of_pretraining(ablation.get_config('bert'))
  again = small_hours.of_pretraining(ablation.get_config('bert,untrained'))
  tuned = 2 * 3 * 30
  expected = 2 * again.seconds * 60 / job.seconds + 2 * tuned
  only = ['less,sst2/accuracy', 'none,sst2/accuracy']
  hours = hours_of(make, capsys, table=table, only=only)
  assert hours == pytest.approx(expected / 3600, abs=0.05)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'only': ['fulll']},
      '--only fulll: there is no such cell; rows and columns are full',
    ),
    ({'data': None}, 'needs --data DIR, where DIR/novels holds books'),
    ({'unused': ['--weights']}, 'takes no --weights'),
  ],
)
def test_what_cannot_be_run_is_refused(make, done, options, message):
  with pytest.raises(ValueError, match=message):
    make(**options)
  assert not done


@pytest.mark.parametrize('last', ['tune', 'pretrain', 'ask'])
def test_a_table_ends_where_it_is_asked_to(make, done, monkeypatch, last):
  """The signal comes too late for the run itself, which ends as usual."""
  work = small_table.WORK

  def asked(function):
    def run(*arguments):
      found = function(*arguments)
      if last == done[-1][0]:
        os.kill(os.getpid(), signal.SIGTERM)
      return found

    return run

  of_tasks = work.engine._replace(run=asked(work.engine.run))
  stopped = small_table.Work(
    asked(work.pretrain), asked(work.ask), work.score, of_tasks
  )
  monkeypatch.setattr(small_table, 'WORK', stopped)
  with pytest.raises(processes.Preempted):
    make()
  kinds = [each[0] for each in done]
  assert (kinds[-1], kinds.count(last)) == (last, 1)
  monkeypatch.setattr(small_table, 'WORK', work)
  assert make()
  kinds = [each[0] for each in done]
  assert (kinds.count('pretrain'), kinds.count('tune')) == (6, 6)


def test_a_fine_tuning_reads_no_more_than_its_pretraining(make, done):
  short = small.row('short', ('',), 'ablation:bert,2018')
  vectors = small.word_row('words', 1)  # they read any number
  table = dataclasses.replace(
    TABLE, columns=(small.SQUAD1,), contrasts=(), rows=(vectors, short)
  )
  message = (
    'squad1: task.max_length=256: expected 128 at most, model.max_length of'
    ' ablation:bert,2018'
  )
  with pytest.raises(ValueError, match=f'^{message}$'):
    make(table)
  assert not done


@pytest.mark.parametrize('name', ['novels', 'wikitext-2'])
def test_a_folder_without_text_is_named(make, done, tmp_path, name):
  (tmp_path / 'sets' / name).rmdir()
  with pytest.raises(FileNotFoundError, match=f'holds no folder {name}'):
    make()
  assert not done


@pytest.mark.parametrize('name', SMALL)
def test_the_shipped_tables_can_be_planned(name, tmp_path, capsys, monkeypatch):
  engine = tables.Engine(has_split=lambda *_: True)
  work = small_table.WORK._replace(engine=engine)
  monkeypatch.setattr(small_table, 'WORK', work)
  table = table_rows.load_table(name)
  names = {row.name for row in table.rows}
  for contrast in table.contrasts:
    assert {contrast.better, contrast.worse} <= names
  assert small_table.make(table, tmp_path, data='sets', dry_run=True)
  planned = capsys.readouterr().out
  for row in table.rows:
    assert row.pretraining in planned


def test_vectors_of_words_have_models_of_their_own(
  tmp_path, capsys, monkeypatch
):
  engine = tables.Engine(has_split=lambda *_: True)
  work = small_table.WORK._replace(engine=engine)
  monkeypatch.setattr(small_table, 'WORK', work)
  table = table_rows.load_table('small/bert_tasks')
  options = {'data': 'sets', 'only': ['word2vec'], 'dry_run': True}
  assert small_table.make(table, tmp_path, **options)
  lines = [shlex.split(each) for each in capsys.readouterr().out.splitlines()]
  tuned = {each[4]: each for each in lines if each[2] == 'train.sweep'}
  # A store, pre-trainings, tasks; no pairs.
  assert len(lines) == 1 + 2 + 2 * 6
  assert len(tuned) == 6
  folder = tmp_path / 'pretraining' / folder_of('ablation:word2vec', 1)
  found = tuned['transfer:task=cola,model=bcn']
  assert f'--config.task.word_vectors={folder}/vectors.txt' in found
  assert '--config.optim.learning_rate=0.001' in found  # the model's own
  assert '--config.data.train_limit=8000' in found  # of all rows
  assert '--config.train.select=last' in found


@pytest.mark.parametrize('task', small.WORD_MODELS)
def test_the_rate_of_models_of_words_falls_without_scores_of_dev(task):
  model = small.WORD_MODELS[task]
  config = settings.with_overrides(
    settings.load_config(f'transfer:task={task},model={model.name}'),
    small.NAMES | model.overrides,
  )
  assert (config.train.plateau, config.train.patience) == (None, None)
  schedule = assemble.make_schedule(config, Phase(100, 64, 32, 'continue'))
  rates = [float(schedule(step)) for step in (0, 50, 100)]
  peak = config.optim.learning_rate
  assert rates == pytest.approx([peak, peak / 2, 0])


@pytest.mark.parametrize(
  ('arg', 'keys'),
  [
    ('word2vec', {'model.name': 'word2vec', 'train.num_epochs': 5.0}),
    ('bert', {'train.objective': 'bert', 'model.left_to_right': False}),
    ('bert,no_nsp', {'train.objective': 'mlm'}),
    ('bert,ltr_no_nsp', {'train.objective': 'lm', 'model.left_to_right': True}),
    ('bert,mask=0/0/100', {'objective.random_fraction': 1.0}),
    ('bert,bert-mini', {'model.embed_dim': 256, 'model.mlp_dim': 640}),
    ('gpt', {'model.positions': 'rotary'}),
    ('lstm', {'model.lstm_dim': 256}),
    ('gpt,untrained', {'optim.learning_rate': 0.0}),
  ],
)
def test_configs_differ_by_what_is_asked(arg, keys):
  config = ablation.get_config(arg)
  for key, value in keys.items():
    section, name = key.split('.')
    assert config[section][name] == value
  phases = ablation.get_config('bert').train.phases
  of_the_budget = arg.split(',')[-1] not in ('untrained', 'word2vec')
  assert (config.train.phases == phases) is of_the_budget


@pytest.mark.parametrize('arg', ['elmo', 'gpt,no_nsp', 'bert,half', ''])
def test_an_unknown_variant_is_refused(arg):
  with pytest.raises(ValueError, match='expected'):
    ablation.get_config(arg)
