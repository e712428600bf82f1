"""Tasks one after the other: input first, vectors once for a corpus."""

import argparse
import dataclasses
import json

import probe_sets
import pytest
from small_elmo import small_elmo

from data.tasks.probes import tasks
from models.pretrained import elmo as pretrained
from train.probing import fit, job, plan
from train.vectors.trained_model import TrainedModel


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('job')
  (folder / 'sets').mkdir()
  probe_sets.write(folder / 'sets', copies=2)
  pretrained.write_folder(folder / 'elmo', *small_elmo())
  return folder


@pytest.fixture
def trained(monkeypatch):
  """The tasks whose probes would be trained; each finds all."""
  names = []

  def train(name, probes, packer, splits):
    names.append(name)
    shares = (1.0,) + (0.0,) * (probes.module.num_layers - 1)
    found = [
      fit.Result(member, 1.0, 1.0, 1, 1, shares, 1.0)
      for member in probes.members
    ]
    return found, 0.5

  monkeypatch.setattr(fit, 'train', train)
  return names


def run(folder, out, *names, **options):
  recipe = {field.name: None for field in dataclasses.fields(plan.Settings)}
  arguments = argparse.Namespace(
    **recipe,
    weights=str(folder / 'elmo'),
    tokenizer=None,
    data=str(folder / 'sets'),
    out=str(folder / out),
    cache=str(folder / 'cache'),
    published=False,
    overwrite=False,
    **{'layers': '0-2', 'seeds': 1, 'limit': None, 'control': False, **options},
  )
  return job.run(arguments, tasks.find(list(names), arguments.data))


@pytest.mark.slow
def test_a_corpus_is_embedded_once(folder, trained, embedded):
  every = list(tasks.PROBES)
  _, text = run(folder, 'all', *every)
  assert trained == every
  # Of EWT five sentences and of UD four, four of OntoGUM, three of SemEval.
  assert sorted(embedded) == [3, 4, 9]
  assert [each['task'] for each in json.loads(text)['tasks']] == every
  # Whatever tasks of it are asked for, alone and in another order.
  run(folder, 'few', 'srl', 'coref')
  run(folder, 'other', 'dependencies')
  assert len(embedded) == 3
  assert trained == [*every, 'srl', 'coref', 'dependencies']


def test_all_input_is_read_before_vectors(folder, trained, embedded):
  file = folder / 'sets' / 'ontogum' / 'test.tsv'
  text = file.read_text()
  file.write_text(text.replace('\t2)\t', '\t3)\t', 1))
  with pytest.raises(ValueError, match='test.tsv, line 7: found 3'):
    run(folder, 'wrong', 'pos', 'entities')
  file.write_text(text)
  with pytest.raises(
    ValueError, match='--layers=0-3: the model has the layers'
  ):
    run(folder, 'wrong', 'pos', layers='0-3')
  assert not trained and not embedded
  assert not (folder / 'wrong').exists()


def test_what_stands_after_an_error(folder, trained, monkeypatch):
  """Finished tasks stay, and the same command goes on behind them."""
  train = fit.train

  def stop(name, *arguments):
    if name == 'entities':
      raise KeyboardInterrupt
    return train(name, *arguments)

  with monkeypatch.context() as patch:
    patch.setattr(fit, 'train', stop)
    with pytest.raises(KeyboardInterrupt):
      run(folder, 'stopped', 'pos', 'entities', 'coref')
  assert [path.name for path in (folder / 'stopped').iterdir()] == ['pos.json']
  run(folder, 'stopped', 'pos', 'entities', 'coref')
  assert trained == ['pos', 'entities', 'coref']


def test_words_that_an_encoder_sees_as_one(small_bert, folder):
  seen = job.seen_by(TrainedModel(small_bert))
  assert seen('Yield') == seen('yield') != seen('field')
  seen = job.seen_by(TrainedModel(folder / 'elmo'))
  assert seen('Yield') != seen('yield')


def test_a_control_task_has_labels_of_its_own(folder, trained):
  run(folder, 'control', 'pos', 'constituents', control=True)
  assert trained == ['pos', 'pos_control', 'constituents']
  records = [
    json.loads((folder / 'control' / f'{name}.json').read_text())
    for name in ('pos', 'constituents')
  ]
  assert records[0]['control']['task'] == 'pos_control'
  # Both F1 are 1; mixes that were not trained have no selectivity.
  mixes = records[0]['selectivity']['mixes']
  assert mixes[:2] == [None, None] and mixes[2]['mean'] == 0
  assert records[1]['control'] is None and records[1]['selectivity'] is None
  assert [x['settings']['control'] for x in records] == [True, False]
