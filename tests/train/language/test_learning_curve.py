"""Minimal pairs by the checkpoints that a run kept."""

import json
import shutil

import numpy as np
import pytest

from data.ngrams import texts
from data.store import corpus
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
  found = learning_curve.points(str(workdir))
  assert [each.name for each in found] == [f'{workdir}@4', f'{workdir}@12']
  store = results['store']
  assert found[-1].words == round(
    12 * 32 * 16 * store['words'] / store['tokens']
  )
  assert found[0].words == round(4 * 32 * 16 * store['words'] / store['tokens'])


def test_words_are_those_of_an_overridden_batch(finished, tmp_path):
  workdir = tmp_path / 'run'
  shutil.copytree(finished[0], workdir)
  text = json.loads((workdir / 'config.json').read_text())
  text['train']['global_batch'] = 64
  (workdir / 'config.json').write_text(json.dumps(text))
  wide = learning_curve.points(str(workdir))[-1].words
  assert wide == pytest.approx(
    4 * learning_curve.points(str(finished[0]))[-1].words,
    abs=2,  # 16 rows
  )


def test_each_point_is_that_of_its_checkpoint(
  finished, pairs, run_command, tmp_path
):
  workdir, _ = finished
  picture, output = tmp_path / 'curve.png', tmp_path / 'figures.json'
  given = [workdir, pairs, '--curve', picture, '--output', output]
  printed = run_command(minimal_pairs, *given).out
  (figures,) = json.loads(output.read_text())['pairs'].values()
  (points,) = figures['curves'].values()
  names = [f'{workdir}@{step}' for step in (4, 12)]
  assert [point['name'] for point in points] == names
  assert picture.read_bytes().startswith(b'\x89PNG')
  assert f'after {points[0]["words"]:,} words: ' in printed
  for point in points:
    alone = tmp_path / 'alone.json'
    run_command(minimal_pairs, point['name'], pairs, '--output', alone)
    (of,) = json.loads(alone.read_text())['pairs'].values()
    (model,) = of['models'].values()
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


def test_n_grams_are_counted_in_a_share_of_each_document(
  small_store, pairs, run_command, tmp_path, monkeypatch
):
  monkeypatch.setattr(learning_curve, '_FEWEST_WORDS', 3_000)
  output = tmp_path / 'figures.json'
  given = [small_store, pairs, '--curve', tmp_path / 'curve.png']
  run_command(minimal_pairs, *given, '--output', output)
  (figures,) = json.loads(output.read_text())['pairs'].values()
  (points,) = figures['curves'].values()
  whole = points[-1]
  assert 3_000 <= points[0]['words'] < 6_000
  for place, point in enumerate(points[:-1]):
    part = 2 ** (len(points) - 1 - place)
    assert point['name'] == f'{small_store}@1/{part}'
    assert point['words'] == whole['words'] // part
  (model,) = figures['models'].values()
  assert (whole['name'], whole['mean']) == (str(small_store), model['mean'])


def test_a_share_of_a_store_is_the_beginning_of_each_document(
  small_store,
):
  store = corpus.open_store(small_store)
  words = texts.words_of_store(store)
  halves = np.concatenate(list(texts.store_blocks(store, words, 0.5)))
  expected = [
    [texts.BEGIN, *words.of_token[tokens[: -(-len(tokens) // 2)]], texts.END]
    for tokens in texts.documents(store, held_out=False)
  ]
  assert halves.tolist() == [word for text in expected for word in text]
