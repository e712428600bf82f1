"""Minimal pairs by the checkpoints that a run kept."""

import json
import shutil

import pytest

from train import minimal_pairs
from train.language import learning_curve
from train.run import workdirs

PAIRS = [
  {'good': 'The yield statement is used.', 'bad': 'The yield statement are.'},
  {'good': 'A list is a sequence.', 'bad': 'A list is sequence a.'},
]


@pytest.fixture
def pairs(tmp_path):
  path = tmp_path / 'pairs.jsonl'
  path.write_text(''.join(json.dumps(pair) + '\n' for pair in PAIRS))
  return path


def test_checkpoints_double(finished):
  """Of steps 4, 8 and 12, 8 is more than half of the last."""
  workdir, results = finished
  found = learning_curve.checkpoints(str(workdir))
  assert [each.name for each in found] == [f'{workdir}@4', f'{workdir}@12']
  store = results['store']
  assert found[-1].words == round(
    12 * 32 * 16 * store['words'] / store['tokens']
  )
  assert found[0].words == round(4 * 32 * 16 * store['words'] / store['tokens'])


def test_each_point_is_that_of_its_checkpoint(
  finished, pairs, run_command, tmp_path
):
  workdir, _ = finished
  picture, output = tmp_path / 'curve.png', tmp_path / 'figures.json'
  given = [workdir, pairs, '--curve', picture, '--output', output]
  printed = run_command(minimal_pairs, *given).out
  figures = json.loads(output.read_text())
  (points,) = figures['curves'].values()
  assert [point['step'] for point in points] == [4, 12]
  assert picture.read_bytes().startswith(b'\x89PNG')
  assert f'after {points[0]["words"]:,} words: ' in printed
  for point in points:
    alone = tmp_path / 'alone.json'
    name = f'{workdir}@{point["step"]}'
    run_command(minimal_pairs, name, pairs, '--output', alone)
    (model,) = json.loads(alone.read_text())['models'].values()
    assert model['groups'] == point['groups']


def test_systems_of_nearly_equal_figures_share_a_label():
  published = {'XL': 0.696, 'GPT-2': 0.83, 'LSTM': 0.698, '5-gram': 0.612}
  assert learning_curve.labels(published) == {
    'GPT-2': 0.83,
    'LSTM; XL': 0.698,
    '5-gram': 0.612,
  }


def test_what_has_no_curve_is_refused(finished, pairs, run_command, tmp_path):
  arpa = tmp_path / 'a.arpa'
  with pytest.raises(SystemExit, match='--curve: no checkpoint of a pre-train'):
    run_command(minimal_pairs, arpa, pairs, '--curve', tmp_path / 'c.png')
  workdir = tmp_path / 'run'
  shutil.copytree(finished[0], workdir)
  facts = json.loads((workdir / workdirs.STORE_FILE).read_text())
  del facts['words']
  (workdir / workdirs.STORE_FILE).write_text(json.dumps(facts))
  with pytest.raises(
    SystemExit, match='trained_on.json: has no count of words'
  ):
    run_command(minimal_pairs, workdir, pairs, '--curve', tmp_path / 'c.png')
  assert not (tmp_path / 'c.png').exists()
