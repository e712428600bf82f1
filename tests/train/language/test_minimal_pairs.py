"""Minimal pairs: published files, shares, and pairs that are refused."""

import csv
import json
import math
import pydoc_data.topics

import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train import minimal_pairs as door
from train.language import minimal_pairs
from train.language.minimal_pairs import MinimalPair


def test_blimp_is_read_and_its_published_rows(sesame_data):
  folder = sesame_data / 'blimp'
  pairs = minimal_pairs.read(str(folder))
  groups = {pair.group for pair in pairs}
  assert len(pairs) == 67_000 and len(groups) == 67
  assert len({pair.family for pair in pairs}) >= 12
  others = minimal_pairs.published(str(folder))
  means = [100 * np.mean(list(each.values())) for each in others.values()]
  np.testing.assert_allclose(means, [61.24, 69.81, 69.63, 83.02], atol=0.005)
  assert all(each.keys() == groups for each in others.values())
  some = minimal_pairs.limited(pairs, 10)
  assert len(some) == 670 and some[0] == pairs[0]


def test_zorro_is_read(sesame_data):
  pairs = minimal_pairs.read(str(sesame_data / 'zorro'))
  assert len(pairs) == 23 * 2_000
  first = pairs[0]
  assert first.group == 'agreement_determiner_noun-across_1_adjective'
  assert first.family == 'agreement_determiner_noun'
  assert first.good != first.bad and minimal_pairs.published('none') == {}


def tokenizer_of(kind):
  return tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training(f'train:{kind}:400'),
  )


def pairs_of(*groups):
  return [MinimalPair('a', 'b', group, group[:1], 'x') for group in groups]


def test_a_tie_is_wrong_and_counted():
  pairs = pairs_of('g1', 'g1', 'g1', 'g1', 'g2', 'h')
  good = np.array([1.0, 2, 0, 3, 5, 1])
  bad = np.array([0.0, 2, 1, 0, 0, 1])
  found = minimal_pairs.figures(pairs, good, bad)
  assert found['groups'] == {'g1': 0.5, 'g2': 1.0, 'h': 0.0}
  assert found['families'] == {'g': 3 / 5, 'h': 0.0}
  assert found['mean'] == 0.5 and found['share'] == 0.5
  assert found['ties'] == 2 and found['pairs'] == 6
  low, high = found['interval']
  assert 1 / 3 <= low < 0.5 < high <= 2 / 3


def test_mcnemar_is_exact():
  first = np.array([True] * 9 + [False] * 4 + [True] * 5)
  second = np.array([False] * 9 + [True] * 4 + [True] * 5)
  found = minimal_pairs.mcnemar(first, second)
  tail = sum(math.comb(13, k) for k in range(5)) / 2**13
  assert found['only_first'] == 9 and found['only_second'] == 4
  assert found['p'] == pytest.approx(2 * tail)
  assert minimal_pairs.mcnemar(first, first)['p'] == 1


@pytest.mark.parametrize(
  ('name', 'text', 'message'),
  [
    ('a.tsv', 'good\tbad\nA\n', 'a.tsv, line 2: expected 2 columns'),
    ('a.tsv', 'good\tworse\nA\tB\n', 'a.tsv, line 1: no column bad among'),
    ('a.tsv', 'good\tbad\n', 'a.tsv: holds no pair'),
    ('a.tsv', 'good\tbad\nA\tA\n', "a.tsv, line 2: both sentences are 'A'"),
    ('a.tsv', 'good\tbad\nA\t \n', 'a.tsv, line 2: a sentence is empty'),
    ('a.jsonl', '{"good": "A"}\n', 'a.jsonl, line 1: expected an object with'),
    ('d/x.txt', 'A\nB\nC\n', 'x.txt: 3 lines, expected an even number'),
    ('d/x.jsonl', '{"sentence_good": "A"}', 'x.jsonl, line 1: expected an ob'),
    ('d/x.csv', 'A', 'd: holds neither NAME.jsonl, as BLiMP, nor NAME.txt'),
  ],
)
def test_what_is_no_pair_is_named(name, text, message, tmp_path):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_text(text)
  where = path if path.parent == tmp_path else path.parent
  with pytest.raises(ValueError, match=message):
    minimal_pairs.read(str(where))
  with pytest.raises(FileNotFoundError, match='no such file or folder'):
    minimal_pairs.read(str(tmp_path / 'none'))


def test_the_command_compares_models(run_command, tmp_path):
  small_published.write_bert(tmp_path / 'bert', tokenizer_of('wordpiece'))
  small_published.write_gpt(tmp_path / 'gpt2', tokenizer_of('bytebpe'))
  (tmp_path / 'x.arpa').write_text(
    '\\data\\\nngram 1=4\n\n\\1-grams:\n-1\t<s>\n-1\t</s>\n-2\t<unk>\n'
    '-0.5\treturns\n\n\\end\\\n'
  )
  (tmp_path / 'pairs.jsonl').write_text(
    ''.join(
      json.dumps({'good': good, 'bad': bad, 'group': group}) + '\n'
      for good, bad, group in [
        ('The function returns a value.', 'The function return a value.', 'v'),
        ('It returns.', 'It return.', 'v'),
        ('A name is bound.', 'A name are bound.', 'be'),
      ]
    )
  )
  said = run_command(
    door,
    'bert',
    'pairs.jsonl',
    '--beside=gpt2',
    '--figure=bars.png',
    '--scores=scores.csv',
    '--output=figures.json',
  )
  assert '| **mean over groups** |' in said.out
  assert 'bert: ' in said.out and '(McNemar, exact)' in said.out
  assert 'each piece hidden in turn' in said.out
  assert 'after the symbol <|endoftext|>' in said.out
  figures = json.loads((tmp_path / 'figures.json').read_text())
  assert (tmp_path / 'bars.png').read_bytes()[:4] == b'\x89PNG'
  with (tmp_path / 'scores.csv').open() as file:
    rows = list(csv.DictReader(file))
  for name in ('bert', 'gpt2'):
    right = [
      float(row[f'{name} good']) > float(row[f'{name} bad']) for row in rows
    ]
    assert figures['models'][name]['share'] == pytest.approx(np.mean(right))
  again = run_command(
    door, 'x.arpa', 'pairs.jsonl', '--scoring=mean', '--limit=1', '--json'
  )
  found = json.loads(again.out)['models']['x.arpa']
  # Only "returns" is known to the n-grams, and in one good sentence.
  assert found['pairs'] == 2 and found['groups'] == {'v': 1.0, 'be': 0.0}
  assert found['ties'] == 1
  with pytest.raises(SystemExit, match='the same WEIGHTS twice'):
    run_command(door, 'bert', 'pairs.jsonl', '--beside=bert')
