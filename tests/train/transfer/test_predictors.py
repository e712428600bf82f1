"""Answers of workdirs: alone, together, and what is refused before."""

import argparse
import json
import pathlib
import shutil
import types

import numpy as np
import pyarrow as pa
import pytest
import runs
import small_tables
from pyarrow import parquet

from data.scoring import submissions
from data.tasks import examples
from train import predict
from train.host import processes
from train.run import checkpoint, settings, workdirs
from train.transfer import predictors, task_outputs

pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def members(make_config, tmp_path_factory):
  """Two workdirs of the same task, of two seeds."""
  folder = tmp_path_factory.mktemp('members')
  for seed in (0, 1):
    config = make_config(train__num_epochs=1.0, train__seed=seed)
    runs.train(config, folder / str(seed))
  return config, [folder / '0', folder / '1']


def read(path, split='test'):
  return lambda task: predictors.read_input(task, path, split)


def arguments(workdirs, source, output, **changes):
  fields = dict(split='test', n_best=None, null_odds=None, json=False)
  fields |= dict(task=None, both_orders=False)
  fields |= dict(input=str(source), output=str(output), **changes)
  return argparse.Namespace(workdirs=list(map(str, workdirs)), **fields)


def test_an_ensemble_is_the_mean_of_probabilities(members, own_set):
  _, workdirs = members
  alone = [
    predictors.predict([workdir], read(own_set / 'test.jsonl'))[2]
    for workdir in workdirs
  ]
  _, split, together = predictors.predict(
    workdirs, read(own_set / 'test.jsonl')
  )
  assert not split.is_labelled
  for a, b, both in zip(*alone, together, strict=True):
    mean = (np.array(a.probabilities) + np.array(b.probabilities)) / 2
    np.testing.assert_allclose(both.probabilities, mean, rtol=1e-6)
    assert both.answer == ('bad', 'good')[int(mean.argmax())]
  assert any(
    a.probabilities != b.probabilities for a, b in zip(*alone, strict=True)
  )


def test_the_command_writes_answers_and_prints_scores(
  members, own_set, tmp_path, capsys
):
  config, workdirs = members
  output = tmp_path / 'answers.jsonl'
  predict._run(
    arguments(
      workdirs[1:], own_set / 'dev.jsonl', output, split='dev', json=True
    )
  )
  printed = json.loads(capsys.readouterr().out)
  results = json.loads((workdirs[1] / 'results.json').read_text())
  assert printed == {'accuracy': results['metrics']['eval/own/accuracy']}
  gold = (own_set / 'dev.jsonl').read_text().splitlines()
  found = output.read_text().splitlines()
  right = [
    json.loads(a)['label'] == json.loads(b)['answer']
    for a, b in zip(gold, found, strict=True)
  ]
  assert np.mean(right) == pytest.approx(printed['accuracy'])


def test_outputs_that_do_not_fit_are_refused_before_compute(
  members, own_set, tmp_path, monkeypatch
):
  _, workdirs = members
  monkeypatch.setattr(task_outputs, 'run_model', None)
  source = own_set / 'test.jsonl'
  for output, changes, message in (
    ('a.tsv', {}, r"found the ending '\.tsv', expected \.jsonl"),
    ('a.jsonl', {'n_best': str(tmp_path / 'b.json')}, 'are of questions'),
    ('none/a.jsonl', {}, 'none'),
  ):
    with pytest.raises((ValueError, OSError), match=message):
      predict._run(
        arguments(workdirs[:1], source, tmp_path / output, **changes)
      )
  assert not list(tmp_path.iterdir())


def test_both_orders_are_two_files_and_their_mean(
  run_of, tmp_path, monkeypatch, capsys
):
  config, workdir, _ = run_of('own pairs')
  run_model, shifts = task_outputs.run_model, []

  def decided(*inputs):
    """Returns logits of both answers; a model of four steps gives one."""
    logits, loss = run_model(*inputs)
    if not shifts:
      shifts.append(np.median(logits, axis=0))
    return [1000 * (row - shifts[0]) for row in logits], loss

  monkeypatch.setattr(task_outputs, 'run_model', decided)
  source = pathlib.Path(config.data.source, 'dev.tsv')
  titles, *rows = [line.split('\t') for line in source.read_text().splitlines()]
  swapped = tmp_path / 'dev.tsv'  # by hand
  lines = [titles, *([name, b, a, label] for name, a, b, label in rows)]
  swapped.write_text(''.join('\t'.join(line) + '\n' for line in lines))
  answers, chances, figures = {}, {}, {}
  capsys.readouterr()  # what the run has printed
  for name, file in (('given', source), ('swapped', swapped), ('mean', source)):
    output = tmp_path / f'{name}.jsonl'
    options = dict(split='dev', json=True, both_orders=name == 'mean')
    predict._run(arguments([workdir], file, output, **options))
    figures[name] = json.loads(capsys.readouterr().out)
    records = [json.loads(line) for line in output.read_text().splitlines()]
    answers[name] = [each['answer'] for each in records]
    chances[name] = np.array(
      [[each['probabilities'][x] for x in ('no', 'yes')] for each in records]
    )
  flips = [
    a != b for a, b in zip(answers['given'], answers['swapped'], strict=True)
  ]
  assert 0 < np.mean(flips) < 1
  assert figures['mean']['flips'] == pytest.approx(np.mean(flips))
  for order in ('given', 'swapped'):
    found = figures['mean'][f'accuracy/{order}']
    assert found == figures[order]['accuracy']
  mean = (chances['given'] + chances['swapped']) / 2
  np.testing.assert_allclose(chances['mean'], mean, rtol=1e-4)
  assert answers['mean'] == [('no', 'yes')[i] for i in mean.argmax(axis=1)]
  right = [
    row[3] == each for row, each in zip(rows, answers['mean'], strict=True)
  ]
  assert figures['mean']['accuracy/mean'] == pytest.approx(np.mean(right))


def test_one_text_has_no_other_order(members, own_set, tmp_path, monkeypatch):
  _, workdirs = members
  monkeypatch.setattr(task_outputs, 'run_model', None)
  with pytest.raises(ValueError, match='own does not have two texts'):
    predict._run(
      arguments(
        workdirs[:1],
        own_set / 'dev.jsonl',
        tmp_path / 'a.jsonl',
        both_orders=True,
      )
    )
  assert not list(tmp_path.iterdir())


def test_scores_of_two_orders_differ_by_so_much(own_set):
  """Scores have no flips, but a distance."""
  task = types.SimpleNamespace(labels=())
  split = types.SimpleNamespace(is_labelled=False)
  given, swapped = (
    [examples.Prediction(str(i), score) for i, score in enumerate(scores)]
    for scores in ((1.0, 2.0), (1.5, 1.0))
  )
  orders = predictors.Orders(given, swapped, given)
  figures = predictors.compare_orders(task, split, orders)
  assert figures == {'mean_difference': 0.75}


def test_inputs_that_do_not_fit_are_refused(
  members, own_set, run_of, tmp_path, monkeypatch
):
  _, workdirs = members
  file = tmp_path / 'sets.jsonl'
  file.write_text('{"text": "the list"}\n{"words": ["a"]}\n')
  with pytest.raises(ValueError, match=r'sets\.jsonl, line 2: .*text'):
    predictors.predict(workdirs, read(file))
  with pytest.raises(FileNotFoundError, match='no such file'):
    predictors.predict(workdirs, read(tmp_path / 'none.jsonl'))
  with pytest.raises(ValueError, match='found a folder, expected a file'):
    predictors.predict(workdirs, read(own_set))
  # A file of another task, and in an official folder of one.
  config, workdir, _ = run_of('rte')
  with pytest.raises(ValueError, match='line 1'):
    predictors.predict([workdir], read(own_set / 'test.jsonl'))
  other = tmp_path / 'MRPC'
  other.mkdir()
  test = pathlib.Path(config.data.source, 'test.tsv').read_bytes()
  (other / 'test.tsv').write_bytes(test)
  with pytest.raises(ValueError, match="the folder of the task 'mrpc'"):
    predictors.predict([workdir], read(other / 'test.tsv'))
  monkeypatch.chdir(other)
  with pytest.raises(ValueError, match="the folder of the task 'mrpc'"):
    predictors.predict([workdir], read('test.tsv'))


def test_data_sets_are_read_as_in_training(
  members, own_set, tmp_path, monkeypatch, capsys
):
  """A folder of the hub's form, and what save_to_disk left, alone or split."""
  _, workdirs = members
  rows = {
    split: [json.loads(line) for line in file.read_text().splitlines()]
    for split in ('dev', 'test')
    for file in [own_set / f'{split}.jsonl']
  }
  data = tmp_path / 'hub' / 'en'
  data.mkdir(parents=True)
  for split, name in (('dev', 'train'), ('test', 'test')):
    table = pa.Table.from_pylist(rows[split])
    parquet.write_table(table, data / f'{name}-00000-of-00001.parquet')
    small_tables.write_saved(tmp_path / 'saved' / split, table)
    (tmp_path / 'saved' / split / 'dataset_info.json').unlink()
  splits = '{"splits": ["dev", "test"]}'
  (tmp_path / 'saved' / 'dataset_dict.json').write_text(splits)

  def answers(source, **changes):
    output = tmp_path / 'a.jsonl'
    predict._run(arguments(workdirs[:1], source, output, **changes))
    return output.read_text()

  expected = {x: answers(own_set / f'{x}.jsonl', split=x) for x in rows}
  capsys.readouterr()
  for source, split in (
    ('hf:hub:test', 'test'),
    ('hf:hub:en:test', 'test'),
    ('hf:hub', 'dev'),  # its split train
    ('hf:saved:test', 'test'),
    ('hf:saved/dev', 'dev'),
    ('saved/test', 'test'),
  ):
    with monkeypatch.context() as patch:
      patch.chdir(tmp_path)
      assert answers(source, split=None) == expected[split], source
    printed = capsys.readouterr()
    assert (f'own, {source}' in printed.out) == (split == 'dev')
    assert (f'{source}: ' in printed.err) == source.startswith('hf:')
  for source, message in (
    ('hf:hub:none', 'found no split .none., expected one of'),
    ('saved', '--input saved: found a folder, .*, as hf:saved:test'),
  ):
    with monkeypatch.context() as patch:
      patch.chdir(tmp_path)
      with pytest.raises(ValueError, match=message):
        answers(source)


def test_official_tasks_are_in_no_data_set(run_of):
  _, workdir, _ = run_of('rte')
  with pytest.raises(ValueError, match='--input hf:glue: found a data set of'):
    predictors.predict([workdir], read('hf:glue'))


def test_members_that_differ_are_refused(members, own_set, run_of):
  _, workdirs = members
  for kind, message in (
    ('rte', 'the task is own in the first, rte in the second'),
    ('own pairs', 'the labels is'),
    ('own scores', 'the kind is classification in the first, regression'),
  ):
    _, workdir, _ = run_of(kind)
    with pytest.raises(ValueError, match=message):
      predictors.predict([workdirs[0], workdir], read(own_set / 'test.jsonl'))


def test_workdirs_that_answer_nothing_are_refused(
  make_config, small_config, small_bert, run_of, tmp_path, monkeypatch
):
  with pytest.raises(FileNotFoundError, match='no workdir'):
    predictors.open_member(tmp_path / 'none')
  pretraining = tmp_path / 'pretraining'
  with checkpoint.Checkpoints(pretraining, keep=1) as checkpoints:
    checkpoints.save(2, {'params': {'a': np.zeros(1)}})
  (pretraining / 'config.json').write_text(settings.as_json(small_config()))
  with pytest.raises(ValueError, match='taught no task'):
    predictors.open_member(pretraining)
  with pytest.raises(ValueError, match='published weights need fine-tuning'):
    predictors.open_member(small_bert)
  with pytest.raises(ValueError, match='no fine-tuning'):
    runs.train(make_config(), pretraining)
  unfinished = tmp_path / 'unfinished'
  with monkeypatch.context() as patch:
    patch.setattr(processes.Preemption, 'is_due', lambda self: True)
    with pytest.raises(processes.Preempted):
      runs.train(make_config(train__num_epochs=1.0), unfinished)
  with pytest.raises(FileNotFoundError, match='not finished'):
    predictors.open_member(unfinished)


def test_a_model_that_a_sweep_dropped_is_missed_by_name(run_of, tmp_path):
  _, workdir, _ = run_of('own scores')
  without = tmp_path / 'run'
  shutil.copytree(
    workdir, without, ignore=shutil.ignore_patterns(workdirs.MODEL_FOLDER)
  )
  with pytest.raises(FileNotFoundError, match='a sweep keeps the model of its'):
    predictors.open_member(without)


def test_a_run_of_an_older_revision_is_refused_by_the_key_it_lacks(
  run_of, tmp_path
):
  config, workdir, _ = run_of('own scores')
  run = shutil.copytree(workdir, tmp_path / 'run')
  config = config.copy_and_resolve_references().unlock()
  del config.task.crf
  (run / 'config.json').write_text(settings.as_json(config))
  with pytest.raises(ValueError, match='config.json has no task.crf'):
    predictors.open_member(run)


def test_sets_that_were_moved_are_not_needed(run_of, tmp_path):
  config, workdir, _ = run_of('own scores')
  moved = tmp_path / 'moved'
  source = pathlib.Path(config.data.source)
  text = (source / 'dev.jsonl').read_text()
  (tmp_path / 'other.jsonl').write_text(text)
  source.rename(moved)
  try:
    task, split, found = predictors.predict(
      [workdir], read(tmp_path / 'other.jsonl')
    )
  finally:
    moved.rename(source)
  submissions.write(task, 'dev', split.examples, found, tmp_path / 'a.jsonl')
  assert (tmp_path / 'a.jsonl').read_text() == (
    workdir / 'predictions' / 'dev.jsonl'
  ).read_text()
