"""The command of n-grams: files, an ARPA file, a store's table."""

import json
import sys

import pytest
from elmo_store import build_words, write_topics
from ngram_texts import draw_lines

from train import ngram


@pytest.fixture
def run(monkeypatch, capsys):
  def run(*arguments):
    words = ['ngram', *map(str, arguments), '--json']
    monkeypatch.setattr(sys, 'argv', words)
    ngram.main()
    return json.loads(capsys.readouterr().out)

  return run


def test_files_become_an_arpa_file_that_scores_alike(run, tmp_path):
  lines = draw_lines(80)
  for name, part in (('a.txt', lines[:40]), ('b.txt', lines[40:70])):
    (tmp_path / name).write_text('\n'.join(part))
  test, arpa = tmp_path / 'test', tmp_path / 'out.arpa.gz'
  test.write_text('\n'.join(lines[70:]))
  made = run(
    tmp_path / '*.txt',
    '--order=3',
    '--test',
    test,
    '--out',
    arpa,
    '--smoothing=jelinek_mercer:0.9,0.5,0.2',
    '--min_count=2',
  )
  assert made['order'] == 3 and made['train_words'] > 200
  read = run(arpa, '--test', test)
  assert read['perplexity'] == pytest.approx(made['perplexity'], rel=1e-6)
  assert read['unknown_words'] == made['unknown_words'] > 0
  assert read['3-grams'] == made['3-grams']


def test_a_store_has_a_table_of_its_orders(run, tmp_path):
  store = build_words(write_topics(tmp_path, 0, 20), tmp_path / 'store')
  out, arpa = tmp_path / 'figures.json', tmp_path / 'out.arpa'
  found = run(store, '--order=2', '--output', out, '--out', arpa)
  assert json.loads(out.read_text()) == found
  names = [row['model'] for row in found['rows']]
  assert names == ['1-gram', '2-gram']
  one, two = (row['perplexity'] for row in found['rows'])
  assert two < one
  read = run(store, '--arpa', arpa)
  (row,) = read['rows']
  assert row['perplexity'] == pytest.approx(two, rel=1e-6)
