"""The commands, as a user types them, and what they print and draw."""

import json

import pytest
import runs
from task_command import command

from train.run import curves, reports
from train.transfer import finetune


@pytest.mark.slow
def test_sweep_and_predict(own_set, small_bert, tmp_path):
  config = [
    '--config',
    'transfer:task=own',
    '--config.own.kind=classification',
    f'--config.data.source={own_set}',
    f'--config.init.weights={small_bert}',
    '--config.task.max_length=32',
    '--config.data.bucket=false',
    '--config.train.steps=2',
    '--config.train.platform=cpu',
    '--config.data.loader=plain',
    '--config.train.peak_tflops=0.1',
  ]
  swept = command(
    'train.sweep', *config, '--seeds', 1, '--workdir', tmp_path / 'sweep'
  )
  assert swept.returncode == 0, swept.stderr
  summary = json.loads((tmp_path / 'sweep' / 'summary.json').read_text())
  value = summary['mean']['dev/accuracy']
  assert f'dev/accuracy  {value:.4f} ± 0.0000' in swept.stdout
  answered = command(
    'train.predict',
    summary['best']['workdir'],
    '--input',
    own_set / 'dev.jsonl',
    '--output',
    tmp_path / 'a.jsonl',
    '--split',
    'dev',
    '--json',
  )
  assert answered.returncode == 0, answered.stderr
  assert json.loads(answered.stdout) == {'accuracy': value}
  assert len((tmp_path / 'a.jsonl').read_text().splitlines()) == 32


@pytest.mark.slow
def test_a_plan_leaves_nothing(make_config, tmp_path, capsys):
  config = make_config(train__steps=2)
  assert runs.train(config, tmp_path / 'plan', dry_run=True) is None
  assert not (tmp_path / 'plan').exists()
  printed = capsys.readouterr().out
  for words in (
    'task      own (classification)',
    'train     96 examples',
    'labels    bad, good',
    '2 steps of 16 examples',
  ):
    assert words in printed


@pytest.mark.slow
def test_a_report_of_a_fine_tuning(run_of, tmp_path, monkeypatch):
  config, workdir, results = run_of('own scores')
  drawn = []
  panels = curves.panels
  monkeypatch.setattr(
    curves, 'panels', lambda names: drawn.append(panels(names)) or drawn[0]
  )
  found = reports.run(workdir, tmp_path)
  for name in ('curves.png', 'ledger.png'):
    assert (tmp_path / name).stat().st_size > 10_000
  scores = {f'eval/own/{name}' for name in ('spearman', 'pearson')}
  assert set(drawn[0]['Scores of dev']) == scores
  assert set(drawn[0]['Loss']) == {'train/task_loss', 'eval/own/loss'}
  assert found['held_out'].keys() == scores | {'eval/own/loss'}
  best = found['held_out']['eval/own/spearman']['best']
  assert best == pytest.approx(results['metrics']['eval/own/spearman'])
  # Of one that is not finished, too.
  rows = reports.ledger.read(workdir)
  assert reports._seconds_left(rows[:2], config) is not None


@pytest.mark.slow
def test_what_a_run_prints(run_of, tmp_path, capsys):
  config, workdir, results = run_of('squad2')
  runs.train(config, tmp_path / 'plan', dry_run=True)
  printed = capsys.readouterr().out
  windows = printed.split('dev       12 examples in ')[1].split()[0]
  assert int(windows) > 12
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(finetune.FineTuning, 'begin', None)
    runs.train(config, workdir)
  printed = ''.join(capsys.readouterr())
  f1 = results['metrics']['eval/squad2/f1']
  assert f'squad2/f1            {f1:.4f}' in printed
  assert f'python -m train.predict {workdir}' in printed
