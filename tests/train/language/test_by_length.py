"""Perplexities by length: each line as a file of its own, and their sum."""

import json
import math
import sys

import pytest
from small_gpt import small_trained

from train import score
from train.language import by_length, inputs, scoring
from train.vectors import trained_model

LINES = [
  'The cat sat on the mat .',
  'a',
  '',
  'a cat',
  'The cat sat on the mat . ' * 9,
  'it rained , and it rained , and so on',
]
TEXT = '\n'.join(LINES) + '\n'
OPTIONS = {'context': 16, 'stride': 5, 'detokenizer': 'wikitext'}
SUMS = ('lines', 'words', 'tokens', 'scored_tokens', 'nats')


@pytest.fixture(scope='module')
def found():
  return small_trained()


@pytest.mark.parametrize('unit', ['words', 'tokens'])
def test_lines_are_texts_of_their_own(found, unit, monkeypatch):
  monkeypatch.setattr(by_length, 'LINES', 2)
  figures = by_length.score_lines(
    found, TEXT, unit=unit, bins=(2, 9), **OPTIONS
  )
  assert figures['lines'] == 5
  expected = {}
  for line in LINES:
    try:
      alone, ids, _ = scoring.score_text(found, line, **OPTIONS)
    except ValueError:  # a line of one token or none
      if line:
        row = expected.setdefault(1, dict.fromkeys(SUMS, 0))
        row['lines'], row['tokens'] = row['lines'] + 1, row['tokens'] + 1
        row['words'] += 1
      continue
    length = len(line.split()) if unit == 'words' else len(ids)
    first = 1 if length <= 2 else 3 if length <= 9 else 10
    row = expected.setdefault(first, dict.fromkeys(SUMS, 0))
    for name, value in (alone | {'lines': 1}).items():
      if name in SUMS:
        row[name] += value
  assert [row['from'] for row in figures['by_length']] == sorted(expected)
  for row in figures['by_length']:
    assert row['to'] == {1: 2, 3: 9, 10: None}[row['from']]
    mine = expected[row['from']]
    assert {name: row[name] for name in SUMS} == pytest.approx(mine, rel=1e-6)
    if row['scored_tokens']:
      assert row['perplexity'] == pytest.approx(
        math.exp(mine['nats'] / mine['scored_tokens']), rel=1e-6
      )
  # The bins recombine to the whole.
  for name in SUMS:
    whole = sum(row[name] for row in figures['by_length'])
    assert figures[name] == pytest.approx(whole, rel=1e-12)
  mean = sum(
    row['scored_tokens'] * math.log(row['perplexity'])
    for row in figures['by_length']
    if row['perplexity']
  )
  assert figures['perplexity'] == pytest.approx(
    math.exp(mean / figures['scored_tokens']), rel=1e-6
  )


def test_command(found, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(trained_model, 'TrainedModel', lambda *_, **__: found)
  (tmp_path / 'text').write_text(TEXT)

  def run(*arguments):
    monkeypatch.setattr(
      sys, 'argv', ['score', 'W', str(tmp_path / 'text'), *arguments]
    )
    score.main()
    return capsys.readouterr()

  figures = json.loads(
    run('--by_length', 'words', '--bins', '3,8', '--json').out
  )
  assert figures == by_length.score_lines(
    found, TEXT, unit='words', bins=(3, 8)
  )
  shown = run('--by_length', 'tokens').out
  assert 'perplexity, 81 or more tokens' in shown and '(1 lines, ' in shown
  for options in (
    ['--bins', '3'],
    ['--by_length', 'words', '--log_probs', 'a.csv'],
    ['--by_length', 'lines'],
  ):
    with pytest.raises(SystemExit) as error:
      run(*options)
    assert error.value.code == 2


def test_bad_input(found):
  for wrong in ('', '0', '5,3', '3,3', '2,x', '-1'):
    with pytest.raises(ValueError, match=f'--bins={wrong}: expected growing'):
      inputs.parse_bins(wrong)
  with pytest.raises(ValueError, match='2 lines, none of 2 tokens or more'):
    by_length.score_lines(found, 'a\n\nb\n', unit='words')
  with pytest.raises(ValueError, match='--stride=9: expected 1 to --context=8'):
    by_length.score_lines(found, TEXT, unit='words', context=8, stride=9)
