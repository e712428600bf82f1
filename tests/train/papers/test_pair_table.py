"""Tables of minimal pairs: published figures to the digit, and ours beside."""

import csv
import json
import pydoc_data.topics
import statistics
import sys

import pytest
import small_published

from data.vocabulary import tokenization
from train import tables
from train.language import minimal_pairs, published_pairs
from train.papers import pair_table, table_rows
from train.run import command

ZORRO = table_rows.load_table('lm/zorro')
ARPA = """\\data\\
ngram 1=4

\\1-grams:
-1\t<s>
-1\t</s>
-2\t<unk>
-0.5\tgood

\\end\\
"""
SINGLE = 'mean cross-entropy of the unmasked sentence'
HIDDEN = 'pseudo-log-likelihood, summed'


@pytest.fixture(scope='module')
def sets(tmp_path_factory):
  """A folder with two pairs of each paradigm of Zorro, and weights."""
  folder = tmp_path_factory.mktemp('sets')
  families, _ = published_pairs.read('zorro')
  (folder / 'zorro').mkdir()
  for number, group in enumerate(g for of in families.values() for g in of):
    last = 'a good text\n' if number else 'a fine text\n'
    (folder / f'zorro/{group}.txt').write_text(
      f'a bad text\na good text\na poor text\n{last}'
    )
  (folder / 'x.arpa').write_text(ARPA)
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training('train:wordpiece:400'),
  )
  small_published.write_bert(folder / 'bert', tokenizer)
  return folder


@pytest.mark.parametrize('name', ['blimp', 'zorro'])
def test_published_figures_are_those_of_the_files(name, sesame_data):
  families, systems = published_pairs.read(name)
  with (sesame_data / f'unmasked/{name}.csv').open() as file:
    rows = list(csv.DictReader(file))
  groups = [group for of in families.values() for group in of]
  ways = {'mlm': HIDDEN, 'holistic': SINGLE}
  found = {}
  for row in rows:
    key = row['model'], row['corpora'], ways[row['scoring_method']]
    found.setdefault(key, []).append(row)
  of_files = [
    (
      key[0],
      key[2],
      len(of),
      {
        group: statistics.fmean(float(row[group]) for row in of)
        for group in groups
      },
      statistics.fmean(float(row['overall']) for row in of),
    )
    for key, of in found.items()
  ]
  copied = [
    each
    for each in systems
    if each.scoring in ways.values() and 'repository' not in each.name
  ]
  assert len(copied) == len(of_files)
  for model, way, runs, figures, overall in of_files:
    (same,) = [
      each
      for each in copied
      if each.name.startswith(model)
      and (each.scoring, each.runs) == (way, runs)
      and each.groups == pytest.approx(figures, abs=6e-5)
    ]
    assert same.mean(groups) == pytest.approx(overall, abs=0.011)


def test_blimp_s_own_rows_are_those_of_its_file(sesame_data):
  families, systems = published_pairs.read('blimp')
  text = (sesame_data / 'blimp/models_summary.jsonl').read_text()
  rows = [json.loads(line) for line in text.splitlines()]
  keys = {'ngram': '5-gram, 3.1 G words', 'lstm': 'LSTM, 83 M words'}
  keys |= {'txl': 'Transformer-XL', 'gpt2': 'GPT-2 774M'}
  theirs = {
    name: {row['UID']: row[key] for row in rows if row['UID'] != 'overall'}
    for key, name in keys.items()
  }
  of_pairs = {}
  for pair in minimal_pairs.read(str(sesame_data / 'blimp')):
    of_pairs[pair.group] = pair.family
  by_name = {each.name: each for each in systems}
  for name, shares in theirs.items():
    ours = by_name[name].groups
    assert {g: round(v / 100, 6) for g, v in ours.items()} == shares
  groups = [group for of in families.values() for group in of]
  assert len(groups) == 67 and set(groups) == of_pairs.keys()
  means = [round(by_name[name].mean(groups), 2) for name in theirs]
  assert means == [61.24, 69.81, 69.63, 83.02]


def test_zorro_s_own_row_is_that_of_its_file(sesame_data):
  families, (first, *_) = published_pairs.read('zorro')
  found = json.loads((sesame_data / 'zorro/roberta_base.json').read_text())
  theirs = found['roberta-base']
  assert first.groups == {g: theirs[g] for of in families.values() for g in of}
  assert round(first.mean([*first.groups]), 2) == theirs['mean'] == 82.49


def test_models_are_scored_once_in_each_way(sets, tmp_path, capsys):
  options = dict(
    weights=[f'words={sets / "x.arpa"}', f'{sets / "bert"}'], data=str(sets)
  )
  assert pair_table.make(ZORRO, tmp_path, dry_run=True, **options)
  first, second = capsys.readouterr().out.splitlines()
  assert first == f'words: {sets / "x.arpa"} scores 92 sentences'
  assert second.startswith('bert: ')
  assert pair_table.make(ZORRO, tmp_path, **options)
  text = capsys.readouterr().out
  assert text == (tmp_path / 'lm_zorro.md').read_text()
  for again, told in ((options, 'all of --w'), ({'weights': []}, 'name a m')):
    assert pair_table.make(ZORRO, tmp_path, dry_run=True, **options | again)
    assert f'nothing to run: {told}' in capsys.readouterr().err
  # Only "good" is known: the pair of two unknown words is a tie, and wrong.
  share = 100 * (22 + 0.5) / 23
  assert '| words (ours) | log-probability of the words after \\<s>' in text
  assert f'of \\</s>, summed | 1 | {share:.2f} | ' in text
  assert text.count('| bert (ours) | ') == 3  # twice by family, once a header
  assert 'each piece hidden in turn' in text and 'nothing hidden' in text
  place = tmp_path / 'lm_zorro/words/sum.json'
  assert json.loads(place.read_text())['weights'] == str(sets / 'x.arpa')
  # Nothing is scored again; without weights all rows stay.
  made = place.stat().st_mtime_ns
  assert pair_table.make(ZORRO, tmp_path, **options)
  assert pair_table.make(ZORRO, tmp_path, weights=())
  assert place.stat().st_mtime_ns == made
  assert capsys.readouterr().out.endswith(text)
  # Killed between two ways: only the second is made again.
  (tmp_path / 'lm_zorro/bert/holistic.json').unlink()
  other = tmp_path / 'lm_zorro/bert/sum.json'
  made = other.stat().st_mtime_ns
  assert pair_table.make(ZORRO, tmp_path, **options)
  assert other.stat().st_mtime_ns == made
  assert (tmp_path / 'lm_zorro/bert/holistic.json').exists()
  other_weights = {'weights': ['bert=x.arpa']}
  assert pair_table.make(ZORRO, tmp_path, **options | other_weights)
  told = f'bert has figures of {sets / "bert"}, which stay; --rerun scores x.a'
  assert told in capsys.readouterr().err
  assert pair_table.make(ZORRO, tmp_path, rerun=True, **options)
  assert other.stat().st_mtime_ns > made


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--weights=x.arpa'], 'lm/zorro needs --data DIR, where DIR/zorro holds'),
    (['--weights=a/x', '--weights=b/x'], "two have the name 'x'"),
    (['--seeds=2'], '--table lm/zorro: takes no --seeds'),
    (['--only', 'a'], '--table lm/zorro: takes no --only'),
    (['--weights=x.arpa', '--data=none'], 'none: there is no such file or fol'),
    (['--weights=x.arpa', '--data=less'], 'less: its paradigms are not those'),
  ],
)
def test_bad_input_is_named(arguments, message, monkeypatch, tmp_path):
  (tmp_path / 'less').mkdir()
  (tmp_path / 'less/own.txt').write_text('a\nb\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(command, 'run', lambda job: job())
  argv = ['tables', '--table=lm/zorro', '--out=out', *arguments]
  monkeypatch.setattr(sys, 'argv', argv)
  with pytest.raises((ValueError, OSError), match=message):
    tables.main()
  assert not (tmp_path / 'out').exists()
