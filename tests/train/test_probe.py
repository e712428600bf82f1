"""The command: what it writes, what it does not do twice, what it refuses."""

import json
import sys

import matplotlib.image
import numpy as np
import probe_sets
import pytest
from small_elmo import small_elmo

from models.pretrained import elmo as pretrained
from train import probe
from train.probing import fit
from train.vectors.vector_cache import VectorCache

OPTIONS = ['--steps=8', '--validate_every=4', '--batch_size=4', '--seeds=2']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Small sets in `sets`, an ELMo in `elmo`, and results in `done`."""
  folder = tmp_path_factory.mktemp('probe')
  (folder / 'sets').mkdir()
  probe_sets.write(folder / 'sets', copies=4)
  probe_sets.write_own(folder / 'sets', 'order', count=16)
  pretrained.write_folder(folder / 'elmo', *small_elmo())
  with pytest.MonkeyPatch.context() as patch:
    run(patch, folder, 'done', '--tasks=pos,order', '--control')
  return folder


def run(patch, folder, out, *options, data='sets'):
  """Runs the command with errors as they are raised."""
  named = [str(folder / 'elmo'), f'--data={folder / data}']
  places = [f'--out={folder / out}', f'--cache={folder / "cache"}']
  patch.setattr(sys, 'argv', ['probe', *named, *places, *OPTIONS, *options])
  patch.setattr(probe.command, 'main', lambda arguments, work: work(arguments))
  probe.main()


def contents(out):
  return {path.name: path.read_bytes() for path in out.iterdir()}


def refused(*arguments, **options):
  """Returns the message with which the command ends."""
  with pytest.raises((ValueError, OSError)) as error:
    run(*arguments, **options)
  return str(error.value)


@pytest.mark.slow
def test_files_of_results(folder):
  out = folder / 'done'
  assert sorted(path.name for path in out.iterdir()) == sorted(
    'layer_weights.png order.json pos.json probes.json probes.md'
    ' probes.tsv'.split()
  )
  task = json.loads((out / 'pos.json').read_text())
  # Mixes of layers 0 to 2, layers 1 and 2 alone, of two seeds.
  assert len(task['probes']) == len(task['control']['probes']) == 10
  assert task['settings']['steps'] == 8
  counts = [task['data'][x] for x in ('train', 'dev', 'test', 'classes')]
  assert counts == [18, 12, 15, 8]
  assert len(task['selectivity']['mixes']) == 3
  everything = json.loads((out / 'probes.json').read_text())
  assert [each['task'] for each in everything['tasks']] == ['pos', 'order']
  assert everything['tasks'][0] == task
  names, *rows = [
    line.split('\t') for line in (out / 'probes.tsv').read_text().split('\n')
  ][:-1]
  assert len(rows) == 30 and {len(row) for row in (names, *rows)} == {10}
  row = dict(zip(names, rows[4], strict=True))
  assert (row['task'], row['first_layer'], row['last_layer']) == (
    'pos',
    '0',
    '2',
  )
  found = task['probes'][4]
  assert float(row['test_f1']) == pytest.approx(found['test'], abs=1e-6)
  shares = [float(share) for share in row['layer_weights'].split()]
  np.testing.assert_allclose(shares, found['shares'], atol=1e-4)
  mean = np.mean([x['test'] for x in task['probes'][4:6]])
  page = (out / 'probes.md').read_text()
  assert '| pos_control |' in page and 'Layer k alone, selectivity' in page
  (line,) = [x for x in page.split('\n') if x.startswith('| pos |')][:1]
  assert f'| {100 * mean:.1f} ± ' in line
  image = matplotlib.image.imread(out / 'layer_weights.png')[..., :3]
  # Bars, and the lines of the centres of gravity.
  for colour in ((122, 166, 216), (31, 119, 180)):
    near = np.abs(image - np.array(colour) / 255).max(-1) < 0.02
    assert near.sum() > 500


def test_finished_tasks_are_not_trained_again(folder, monkeypatch, capsys):
  before = contents(folder / 'done')
  with monkeypatch.context() as patch:
    patch.setattr(fit, 'train', None)
    patch.setattr(VectorCache, 'compute', None)
    run(patch, folder, 'done', '--tasks=pos,order', '--control', '--json')
  assert contents(folder / 'done') == before
  printed, said = capsys.readouterr()
  assert json.loads(printed)['tasks'][1]['task'] == 'order'
  assert f'pos: read from {folder / "done" / "pos.json"}' in said
  # The same again elsewhere, a task at a time, and from the same vectors.
  compute = VectorCache.compute
  monkeypatch.setattr(VectorCache, 'compute', None)
  run(monkeypatch, folder, 'again', '--tasks=order')
  run(monkeypatch, folder, 'again', '--tasks=pos', '--control')
  monkeypatch.setattr(VectorCache, 'compute', compute)
  files = contents(folder / 'again')
  for name in ('pos.json', 'order.json'):
    new, old = (json.loads(x[name]) for x in (files, before))
    assert new['probes'] == old['probes'] and new['figures'] == old['figures']
  # Both tasks stand in the tables, the command's first.
  names = [x['task'] for x in json.loads(files['probes.json'])['tasks']]
  assert names == ['pos', 'order']


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (['--tasks=pos'], 'pos.json: was made with control=True, and this command'),
    (
      ['--tasks=order', '--steps=9'],
      'order.json: was made with steps=8, and t',
    ),
    (
      ['--tasks=order', '--limit=9'],
      'made with limit=None, and this command ha',
    ),
    (
      ['--tasks=order', '--published'],
      'made with learning_rate=0.001, and thi',
    ),
    (
      ['--tasks=entities', '--layers=single'],
      'made with layers=both, and this command has single. The tables show all',
    ),
    (
      ['--tasks=poss'],
      "no probing task 'poss', expected some of pos, constitu",
    ),
    (
      ['--tasks=entities', '--control'],
      'none of which has a control task; exp',
    ),
    (['--tasks=order', '--mix_factor=0'], '--mix_factor=0.0: expected above 0'),
  ],
)
def test_other_settings_are_refused(folder, monkeypatch, options, message):
  before = contents(folder / 'done')
  monkeypatch.setattr(VectorCache, 'vectors', None)
  assert message in refused(monkeypatch, folder, 'done', *options)
  assert contents(folder / 'done') == before


def test_other_files_are_refused(folder, monkeypatch):
  said = refused(monkeypatch, folder, 'x', data='none')
  assert 'found no such folder, expected the folder of the sets' in said
  said = refused(monkeypatch, folder, 'elmo/options.json', '--tasks=pos')
  assert 'is a file, expected a folder' in said
  (folder / 'theirs').mkdir()
  (folder / 'theirs' / 'pos.json').write_text('[]')
  said = refused(monkeypatch, folder, 'theirs', '--tasks=order')
  assert 'pos.json: found a file that train.probe did not write' in said
  # Another encoder's results, and another set's, are told apart.
  file = folder / 'other' / 'order.json'
  file.parent.mkdir()
  record = json.loads((folder / 'done' / 'order.json').read_text())
  record['settings']['weights'] = 'ffff'
  file.write_text(json.dumps(record))
  said = refused(monkeypatch, folder, 'other', '--tasks=order')
  assert 'order.json: was made with weights=ffff, and this command has' in said
  run(monkeypatch, folder, 'other', '--tasks=order', '--overwrite')
  new = json.loads(file.read_text())
  assert new['settings']['weights'] != 'ffff'
  with (folder / 'sets' / 'order' / 'dev.jsonl').open('a') as more:
    more.write('{"text": "ann .", "targets": []}\n')
  said = refused(monkeypatch, folder, 'other', '--tasks=order')
  assert 'was made with data=' in said
