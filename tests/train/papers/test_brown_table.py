"""Brown's table: the parts of the text, rows that go on, ratios, refusals."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import small_brown

from data.ngrams import texts
from data.ngrams.model import perplexity
from train import tables
from train.language import ngrams
from train.papers import brown_table, brown_text, table_rows
from train.run import command, settings

TABLE = table_rows.load_table('lm/brown')
NETWORK = 'network, n = 5, h = 50, m = 60, direct'
BASELINE = brown_table.BASELINE
SMALL = {
  'model.hidden_dim': 4,
  'model.embed_dim': 6,
  'model.num_samples': 0,
  'model.max_length': 24,
  'train.phases': ((6, 16, 8, 'continue'),),
  'train.eval_every': 6,
  'train.checkpoint_every': 3,
  'data.loader': 'plain',
  'eval.global_batch': 8,
  'optim.warmup_steps': 2,
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder of data sets with a small corpus."""
  folder = tmp_path_factory.mktemp('sets')
  small_brown.write(folder)
  return folder


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
  small_brown.cut(monkeypatch)


def small_table(*names, **overrides):
  rows = tuple(
    dataclasses.replace(row, overrides=row.overrides | SMALL | overrides)
    if row.args and row.args[0].startswith('brown')
    else row
    for row in TABLE.rows
    if row.name in names
  )
  return dataclasses.replace(TABLE, rows=rows, seeds=2)


def test_n_grams_are_counted_once_and_ratios_are_to_the_longest(
  folder, tmp_path, capsys
):
  names = [row.name for row in TABLE.rows[:5]]
  table = small_table(*names)
  assert brown_table.make(table, tmp_path, data=str(folder))
  printed = capsys.readouterr().out
  assert printed == (tmp_path / 'lm_brown.md').read_text()
  place = tmp_path / 'lm_brown/modified_Kneser-Ney_n_5/0/figures.json'
  found = json.loads(place.read_text())
  text = brown_text.prepare(brown_text.find(str(folder)), tmp_path / 'lm_brown')
  (scorer,) = ngrams.of_store(
    text.store, [5], brown_table.smoothing.modified_kneser_ney
  )
  ids = texts.words_of_store(text.store).of_token[text.test]
  test = perplexity(scorer.log_probs(ids))
  assert found['readings']['']['test'] == pytest.approx(test)
  assert f'| {names[3]} (ours) |' in printed
  assert f'| {test:.1f} | 1.000 |' in printed
  # The paper's row keeps its digits.
  assert f'| {names[0]} | 352 | 336 | 1.047 |' in printed
  assert f'| {names[4]} | 326 | 312 | 0.972 |' in printed
  # Nothing is run, and no text is needed, where all is there.
  made = place.stat().st_mtime_ns
  assert brown_table.make(table, tmp_path)
  assert place.stat().st_mtime_ns == made


@pytest.mark.slow
def test_a_network_goes_on_and_is_mixed(folder, tmp_path, monkeypatch, capsys):
  table = small_table(NETWORK, BASELINE)
  assert brown_table.make(table, tmp_path, data=str(folder), seeds=1)
  place = tmp_path / f'lm_brown/{table_rows.slug(NETWORK)}'
  found = json.loads((place / '0/figures.json').read_text())
  assert found['words_seen'] == 6 * 16 * 8
  figures = found['readings']['']
  assert {*figures} == {*brown_table.COLUMNS}
  assert figures['mixed test'] < max(
    figures['test'],
    perplexity(
      brown_table.interpolated(
        brown_text.prepare(brown_text.find(str(folder)), tmp_path / 'lm_brown'),
        3,
      )['test']
    ),
  )
  # Killed before its figures were written: it is scored again, not trained.
  (place / '0/figures.json').unlink()
  from train.run import training

  monkeypatch.setattr(training, 'train', None)
  assert brown_table.make(table, tmp_path, data=str(folder), seeds=1)
  again = json.loads((place / '0/figures.json').read_text())
  assert again['readings'] == found['readings']
  # A dry run names the missing seed alone.
  capsys.readouterr()
  assert brown_table.make(table, tmp_path, dry_run=True)
  (line,) = capsys.readouterr().out.splitlines()
  assert '--config brown:nnlm' in line and '--config.train.seed=1' in line
  # Another config is told, and not run unless it is asked for.
  # Another platform computes the same.
  other = small_table(
    NETWORK,
    BASELINE,
    **{'optim.learning_rate': 0.5, 'train.platform': 'cpu'},
  )
  assert brown_table.make(other, tmp_path, run=False)
  told = capsys.readouterr().out
  assert 'was run with optim.learning_rate=0.003 and not 0.5; --rerun' in told


@pytest.mark.slow
def test_the_scores_do_not_depend_on_windows(folder, tmp_path):
  """A network of n = 3 sees two words, however the text is cut."""
  table = small_table(NETWORK, BASELINE, **{'model.order': 3})
  brown_table.make(table, tmp_path, data=str(folder), seeds=1)
  from train.vectors.trained_model import TrainedModel

  place = tmp_path / f'lm_brown/{table_rows.slug(NETWORK)}/0'
  found = TrainedModel(place, use='score')
  text = brown_text.prepare(brown_text.find(str(folder)), tmp_path / 'lm_brown')
  whole = brown_table._score(found, text, 'test')['']
  assert len(whole) == len(text.test) - 1
  single = [
    brown_table.scoring.score_tokens(
      found.model,
      found.params,
      text.test[place - 2 : place + 1],
      context=24,
      stride=24,
    )[-1]
    for place in range(2, len(text.test), 37)
  ]
  np.testing.assert_allclose(whole[1::37], single, atol=1e-5)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ([], 'lm/brown needs --data DIR'),
    (
      ['--data', 'none'],
      '--data none: holds no brown.txt, nor brown/brown.txt',
    ),
    (['--only', 'MLP1'], '--only MLP1: there is no such row to run; rows are'),
    (['--weights', 'a=b'], '--table lm/brown: takes no --weights'),
    (['--config.x=1'], '--table lm/brown: takes no --config.x=1'),
  ],
)
def test_what_cannot_be_run_is_named(arguments, message, monkeypatch, tmp_path):
  monkeypatch.setattr(command, 'run', lambda job: job())
  argv = ['tables', '--table=lm/brown', f'--out={tmp_path}', *arguments]
  monkeypatch.setattr(sys, 'argv', argv)
  with pytest.raises((ValueError, OSError), match=message):
    tables.main()


def test_every_network_has_a_config():
  names = set()
  for row in TABLE.rows:
    if row.args and row.args[0].startswith('brown'):
      config = settings.with_overrides(
        settings.load_config(row.args[0]), row.overrides
      )
      names.add(config.model.name)
      assert row.args[0] == f'brown:{config.model.name}'
  assert names == {'nnlm', 'lstm', 'gpt', 'elmo'}
  with pytest.raises(ValueError, match='brown:rnn: expected nnlm, lstm'):
    settings.load_config('brown:rnn')


OTHERS = {
  'LSTM': {'model.embed_dim': 8, 'model.lstm_dim': 12, 'model.max_length': 24},
  'GPT': {
    'model.embed_dim': 8,
    'model.mlp_dim': 16,
    'model.max_length': 24,
    'train.phases': ((6, 16, 8, 'continue'),),
  },
  'ELMo': {
    'model.lstm_dim': 8,
    'model.projection_dim': 4,
    'model.filters': ((1, 4), (2, 4)),
    'model.num_samples': 0,
    'train.phases': ((6, 10, 8, 'continue'),),
    'optim.warmup_steps': 0,
  },
}


@pytest.mark.slow
@pytest.mark.parametrize('name', OTHERS)
def test_other_models_have_a_row(name, folder, tmp_path, capsys):
  common = {
    key: value for key, value in SMALL.items() if not key.startswith('model.')
  }
  rows = tuple(
    dataclasses.replace(row, overrides=common | OTHERS.get(row.name, {}))
    for row in TABLE.rows
    if row.name in (name, BASELINE)
  )
  table = dataclasses.replace(TABLE, rows=rows, seeds=1)
  assert brown_table.make(table, tmp_path, data=str(folder))
  text = capsys.readouterr().out
  place = tmp_path / f'lm_brown/{name}/0/figures.json'
  found = json.loads(place.read_text())['readings']
  readings = ['forward', 'backward'] if name == 'ELMo' else ['']
  assert [*found] == readings
  assert 'mixed test' in found[readings[0]]
  for reading in readings:
    label = f'{name}, {reading}' if reading else name
    assert f'| {label} (ours) | ' in text
    assert 5 < found[reading]['test'] < 200
  if name == 'ELMo':  # the trigram does not read from the right
    assert 'mixed test' not in found['backward']
